"""Moves into S3, within it and back, without Spark, on a real server that stumbles."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import CheckFailed, Unavailable, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.object_store_landing import strip_row_prefix
from altneu.pipeline.maintenance import move
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from tests import seeds
from tests.s3 import Store
from tests.unit.test_move import home, killed, made, moved, own, same, whole  # noqa: F401  # fixtures


def stumbles(store: Store) -> None:
    dice = random.Random(seeds.one())
    store.faults = lambda method, path: dice.choices([None, "503", "cut"], [94, 3, 3])[0]


def test_into_a_store_within_it_and_back(own: Home, tmp_path: Path, s3: str, store: Store) -> None:  # noqa: F811
    stumbles(store)
    new = moved(own, tmp_path / "new", f"{s3}/one/")
    same(own, new)
    places = (new.warehouse, new.landed_at, new.reports_at)
    assert places == tuple(f"{s3}/one/{name}" for name in ("warehouse", "landing", "reports"))
    assert filesystem.read_file(f"{new.reports_at}/diff-1-2.html") == b"of two revisions"
    assert {path.name for path in new.path.iterdir()} == {"altneu.toml", "altneu.db"}
    assert not any(name.startswith("_move") for name in filesystem.list_files(f"{s3}/one"))

    raw = tmp_path / "raw.csv"
    raw.write_text("src,dst\nada,bob\n")
    landing.land(new, [raw], landing.LandOptions(epoch="2024-03-03"))  # its file has a name of the store's own
    store.seen.clear()
    other = moved(new, tmp_path / "other", f"{s3}/two")
    same(new, other)
    fetched = {path for method, path in store.seen if method == "GET" and path.endswith(".parquet")}
    assert not fetched, "the store copies them itself"
    back = moved(other, tmp_path / "back")
    same(other, back)
    names = {file.name for batch in landing.list_batches(back).values() for file in batch.files}
    assert names == {strip_row_prefix(name) for name in names} and len(names) == 2


def test_killed_and_gone_on_with(  # type: ignore[no-untyped-def]
    home: Home,  # noqa: F811
    tmp_path: Path,
    s3: str,
    store: Store,
    killed,  # noqa: F811
) -> None:
    rng = random.Random(seeds.one())
    stumbles(store)
    copied, uncut = 0, killed(home, tmp_path / "whole", [f"{s3}/whole"], 0)[1]["copied"]
    for attempt in range(100):
        how, counts = killed(home, tmp_path / "new", [f"{s3}/new"], rng.randint(1, 80) + attempt)
        copied += counts["copied"]
        if how == "done" or (tmp_path / "new" / "altneu.toml").exists():
            break
        assert how == "killed"
    if (tmp_path / "new" / move.JOURNAL).exists():  # killed after there was a new home
        assert killed(home, tmp_path / "new", [f"{s3}/new"], 0)[0] == "done"
    assert attempt > 1 and copied <= uncut
    same(home, Home.open(tmp_path / "new"))


def test_places_that_are_not_ours(home: Home, tmp_path: Path, s3: str, store: Store) -> None:  # noqa: F811
    filesystem.write_file(f"{s3}/full/a.txt", b"theirs")
    with pytest.raises(UsageError, match=r"holds 1 files that do not belong to this move") as error:
        moved(home, tmp_path / "new", f"{s3}/full")
    assert "a prefix that is empty" in str(error.value.next)
    assert not (tmp_path / "new").exists()

    def stop(*_: object) -> dict[int, list[str]]:
        raise CheckFailed("stopped")

    with pytest.raises(CheckFailed):
        moved(home, tmp_path / "first", f"{s3}/mine", prove=stop)
    with pytest.raises(UsageError, match=r"mine holds another move, of .* into .*first on ") as error:
        moved(home, tmp_path / "second", f"{s3}/mine")
    assert f"delete what is below {s3}/mine" in str(error.value.next)

    def take(*_: object) -> dict[int, list[str]]:  # two that began at the same moment
        theirs = {"catalog": "other", "from": "a", "into": "b", "host": "c"}
        filesystem.write_file(f"{s3}/mine/{move.MARK}", json.dumps(theirs).encode())
        return {}

    with pytest.raises(UsageError, match="mine holds another move, of a into b on c"):
        moved(home, tmp_path / "first", f"{s3}/mine", prove=take)
    assert not (tmp_path / "first" / "altneu.toml").exists()


@pytest.mark.parametrize(
    ("fault", "method", "part", "says"),
    [
        ("403", "PUT", "parquet", r"could not be copied to s3://.*(ACCESS_DENIED|Access Denied)"),
        ("403", "PUT", "metadata.json", r"metadata.json cannot be written: .*(ACCESS_DENIED|Access Denied)"),
        ("403", "PUT", "_move.json", r"s3://.*: .*(ACCESS_DENIED|Access Denied)"),
        ("403", "GET", "list-type", r"s3://.*: .*(ACCESS_DENIED|Access Denied)"),
        ("503", "PUT", "parquet", r"could not be copied to s3://.*(reduce your request rate|SLOW_DOWN|SlowDown)"),
        ("cut", "PUT", "landing", r"could not be copied to s3://.*"),
    ],
)
def test_a_store_that_fails(
    fault: str,
    method: str,
    part: str,
    says: str,
    home: Home,  # noqa: F811
    tmp_path: Path,
    s3: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filesystem, "TRIES", 2)
    filesystem._s3_filesystem.cache_clear()
    store.faults = lambda verb, path: fault if verb == method and part in path else None
    with pytest.raises(Unavailable, match=says) as error:
        moved(home, tmp_path / "new", f"{s3}/new")
    assert "altneu doctor" in str(error.value.next) and "the same command again" in str(error.value.next)
    assert not (tmp_path / "new" / "altneu.toml").exists()
    store.faults = lambda verb, path: None
    same(home, moved(home, tmp_path / "new", f"{s3}/new"))
    filesystem._s3_filesystem.cache_clear()


def test_a_bucket_that_is_not_there(home: Home, tmp_path: Path, store: Store) -> None:  # noqa: F811
    with pytest.raises(Unavailable, match="nowhere does not exist, or you have no access"):
        moved(home, tmp_path / "new", "s3://nowhere/a")


def test_the_digests_are_remembered(home: Home, tmp_path: Path, s3: str, store: Store) -> None:  # noqa: F811
    """No landed object is read again by the first command in the new home."""
    new = moved(home, tmp_path / "new", f"{s3}/new")
    store.seen.clear()
    found = landing.digest_batches(Ledger(new), landing.list_batches(new).values())
    assert found and not [path for method, path in store.seen if method == "GET" and ".csv" in path]
