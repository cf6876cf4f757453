"""Moves without Spark: what is refused, what is killed and gone on with, what fails; the original stays as it is."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

import altneu.pipeline.state.copy_database
from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, CheckFailed, Unavailable, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings_file import replace_settings
from altneu.pipeline.maintenance import move, move_target
from altneu.pipeline.state import filesystem, home_identity, lease
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunState
from altneu.pipeline.state.schema import metadata
from altneu.pipeline.storage import file_inventory, iceberg
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers, seeds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home.open(home_helpers.old(tmp_path_factory.mktemp("made"))[0])
    relocate_home(home)
    home.reports.mkdir()
    (home.reports / "diff-1-2.html").write_text("of two revisions")
    return home.path


@pytest.fixture(scope="module")
def whole(made: Path) -> dict[str, str]:
    """The digests of the stored home."""
    return digests(made)


@pytest.fixture
def home(made: Path, whole: dict[str, str]) -> Iterator[Home]:
    """The stored home, of six revisions: no move changes it."""
    yield Home.open(made)
    assert digests(made) == whole


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Home:
    """The same, to be changed."""
    home = Home.open(shutil.copytree(made, tmp_path / "home"))
    relocate_home(home)
    return home


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def rows(home: Home) -> dict[str, list[Any]]:
    """All that the database says, but for what is its own."""
    engine = sa.create_engine(home.database, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(sa.select(table)).all()))
            for table in metadata.sorted_tables
            if table.name not in ("home", "digests")
        }


def moved(home: Home, folder: Path, *to: str, prove: move.Prove | None = None) -> Home:
    found = move.move_home(
        home, move_target.parse_target(folder, to), lambda text: None, prove or (lambda *homes: {1: ["edges"]})
    )
    assert found is not None and found.home.path == folder
    return Home.open(folder)


def same(home: Home, new: Home) -> None:
    """All of the home is in the new one, which answers for itself."""
    ledger = home_identity.open_ledger(new)
    assert rows(new) == rows(home)
    found = file_inventory.take_inventory(ledger)
    assert found.files == file_inventory.take_inventory(Ledger(home)).files and not found.missing_files
    ours, theirs = landing.list_batches(home), landing.list_batches(new)
    assert ours.keys() == theirs.keys()
    assert landing.digest_batches(ledger, theirs.values()) == landing.digest_batches(
        Ledger(home), ours.values(), remember=False
    )
    assert [batch.sealed for batch in theirs.values()] == [batch.sealed for batch in ours.values()]
    identities = [home_identity.require_identity(each) for each in (home, new)]
    assert identities[0].catalog != identities[1].catalog
    assert not {move.JOURNAL, move.MARK} & {path.name for path in new.path.iterdir()}


def test_a_copy_is_all_of_it(own: Home, tmp_path: Path) -> None:
    new = moved(own, tmp_path / "new")
    same(own, new)
    assert (new.reports / "diff-1-2.html").read_text() == "of two revisions"
    shutil.rmtree(own.path)  # nothing leads back
    assert not file_inventory.take_inventory(home_identity.open_ledger(new)).missing_files


def test_there_and_back_with_postgres(
    home: Home, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = moved(home, tmp_path / "new", postgres)
    same(home, new)
    assert new.config.storage.database == postgres and not list(new.path.glob("*.db"))
    with sa.create_engine(postgres).begin() as connection:  # numbers go on where they were
        last = connection.execute(sa.text("SELECT max(id) FROM checks")).scalar()
        assert (
            connection.execute(sa.text("SELECT nextval(pg_get_serial_sequence('checks', 'id'))")).scalar() == last + 1
        )
    back = moved(new, tmp_path / "back")
    same(home, back)
    with pytest.raises(UsageError, match="belongs to another home"):
        moved(home, tmp_path / "other", postgres)
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(
        altneu.pipeline.state.copy_database, "refuse_other_home", lambda *database: None
    )  # of two that came together
    with pytest.raises(UsageError, match="belongs to another home"):
        moved(home, tmp_path / "other", postgres)
    assert rows(new) == rows(home)


# -- Killed --------------------------------------------------------------------------------------------------------


@pytest.fixture
def killed() -> Iterator[Callable[..., tuple[str, dict[str, int]]]]:
    root = Path(__file__).parents[2]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.kill_move"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def call(home: Home, folder: Path, to: list[str], at: int) -> tuple[str, dict[str, int]]:
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps([str(home.path), str(folder), to, at]) + "\n")
        server.stdin.flush()
        how, counts = json.loads(server.stdout.readline())
        return how, counts

    yield call
    assert server.stdin
    server.stdin.close()
    server.wait(10)


def test_killed_at_any_step_and_gone_on_with(home: Home, tmp_path: Path, killed) -> None:  # type: ignore[no-untyped-def]
    """However often: what was copied is not copied again, and before the end there is no new home."""
    rng = random.Random(seeds.one())
    _, whole = killed(home, tmp_path / "whole", [], 0)
    copied = 0
    for attempt in range(200):
        how, counts = killed(home, tmp_path / "new", [], rng.randint(1, 60) + attempt)
        copied += counts["copied"]
        if how == "done" or (tmp_path / "new" / "altneu.toml").exists():
            break
        assert how == "killed"
    if (tmp_path / "new" / move.JOURNAL).exists():  # killed after there was a new home: see below
        assert killed(home, tmp_path / "new", [], 0)[0] == "done"
    assert attempt > 2
    assert copied <= whole["copied"]
    same(home, Home.open(tmp_path / "new"))


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_the_end(every: int, home: Home, tmp_path: Path, killed) -> None:  # type: ignore[no-untyped-def]
    """Around the moment at which there is a new home: the same command ends it, and changes nothing of it then."""
    steps = killed(home, tmp_path / "whole", [], 0)[1]["steps"]
    for at in range(steps - 8, steps + 1, every):
        folder = tmp_path / f"new-{at}"
        assert killed(home, folder, [], at)[0] == "killed"
        there = (folder / "altneu.toml").exists()
        if there:
            (folder / "altneu.toml").write_text((folder / "altneu.toml").read_text() + "# mine\n")
            before = digests(folder)
        if not there or (folder / move.JOURNAL).exists():  # else it had ended
            assert killed(home, folder, [], 0)[0] == "done"
        if there:
            assert {name: each for name, each in digests(folder).items() if "reports" not in name} == {
                name: each for name, each in before.items() if name != move.JOURNAL and "reports" not in name
            }
        same(home, Home.open(folder))


# -- Refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "to", "says", "then"),
    [
        ("home", [], "one contains the other", "another folder"),
        ("home/within", [], "one contains the other", "another folder"),
        (".", [], "one contains the other", "another folder"),
        ("full", [], "full is not empty: it contains a.txt", "a new folder"),
        ("full/a.txt", [], "is a file", "a folder that does not exist"),
        ("there", [], "there is a home already", "a folder that does not exist"),
        ("new", ["elsewhere"], "a folder on this machine is named without --to", "altneu move elsewhere"),
        ("new", ["file:///elsewhere"], "a folder on this machine is named without --to", "altneu move"),
        ("new", ["ftp://host/a"], "not a known kind of place", "s3://bucket/prefix"),
        (
            "new",
            ["s3://key:secret@bucket/a"],
            r"s3://\*\*\*@bucket/a: this is not a known kind of place",
            "s3://bucket/prefix",
        ),
        ("new", ["s3://a/b", "s3://c/d"], "names a store already", "once"),
        ("new", ["postgresql://me@h/a", "postgresql://me@h/b"], "names a database already", "once"),
        (
            "new",
            ["postgresql://me:pw@h/a"],
            r"me:\*\*\*@h/a: the new altneu.toml would contain the password",
            "PGPASSWORD",
        ),
        ("new", ["postgresql://h/a?password=pw"], r"would contain the password", "PGPASSWORD"),
        ("new", ["postgresql://me@h"], "expected a database in PostgreSQL", "postgresql.psycopg://user@host/database"),
        ("new", ["sqlite:///a.db"], "expected a database in PostgreSQL", "postgresql.psycopg://user@host/database"),
        ("new", ["https://host/api?token=x"], r"host/api\?\*\*\*: expected the address", "ALTNEU_CATALOG_TOKEN"),
        ("new", ["https://me:pw@host/api"], r"https://\*\*\*@host/api: expected the address", "ALTNEU_CATALOG_TOKEN"),
        ("new", ["https://a/b", "https://c/d"], "names a catalog already", "once"),
    ],
)
def test_wrong_uses(own: Home, tmp_path: Path, folder: str, to: list[str], says: str, then: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")
    home_helpers.make(tmp_path / "there")
    before = digests(tmp_path)
    with pytest.raises(UsageError, match=says) as error:
        moved(own, tmp_path / folder, *to)
    assert re.search(then, str(error.value.next))
    assert "secret" not in str(error.value) and "pw" not in str(error.value)
    assert digests(tmp_path) == before and not (tmp_path / "new").exists()


def test_a_home_at_work_is_not_moved(own: Home, tmp_path: Path) -> None:
    ledger = Ledger(own, writes=True)
    ledger.runs.create("mine", ledger.revisions.get().revision, epochs=[1], config={})
    with lease.hold_lease(ledger, "mine"), pytest.raises(UsageError, match=r"run mine of 1 epoch.* is active"):
        moved(own, tmp_path / "new")
    ledger.runs.finish("mine", RunState.FAILED)
    same(own, moved(own, tmp_path / "new"))


def test_a_second_mover(home: Home, tmp_path: Path) -> None:
    """Of the same folder while the first is at work; of another home later."""
    other = Home.open(shutil.copytree(home.path, tmp_path / "other"))
    relocate_home(other)

    def meanwhile(*_: object) -> dict[int, list[str]]:
        with pytest.raises(UsageError, match=r"another altneu move is filling .*new"):
            moved(home, tmp_path / "new")
        raise CheckFailed("stopped")

    with pytest.raises(CheckFailed, match="stopped"):
        moved(home, tmp_path / "new", prove=meanwhile)
    with pytest.raises(UsageError, match=r"holds an unfinished move of .*home, with --to \[\]") as error:
        moved(other, tmp_path / "new")
    assert "rm -r" in str(error.value.next)
    with pytest.raises(UsageError, match="holds an unfinished move"):
        moved(home, tmp_path / "new", "postgresql://nobody@nowhere/a")
    same(home, moved(home, tmp_path / "new"))


def test_a_home_that_changes_meanwhile(own: Home, tmp_path: Path) -> None:
    def run(*_: object) -> dict[int, list[str]]:
        ledger = Ledger(own, writes=True)
        ledger.runs.create("mine", ledger.revisions.get().revision, epochs=[1], config={})
        ledger.runs.finish("mine", RunState.FAILED)
        return {}

    with pytest.raises(AltneuError, match="has changed the home while it was copied") as error:
        moved(own, tmp_path / "new", prove=run)
    assert "the same command again" in str(error.value.next)
    assert not (tmp_path / "new" / "altneu.toml").exists()
    same(own, moved(own, tmp_path / "new"))


def test_a_landing_that_changes_meanwhile(own: Home, tmp_path: Path) -> None:
    file = next(own.landing.glob("epoch=*/*.csv"))

    def stop(*_: object) -> dict[int, list[str]]:
        raise CheckFailed("stopped")

    with pytest.raises(CheckFailed):
        moved(own, tmp_path / "new", prove=stop)
    text = file.read_text()
    file.write_text(text[:-2] + "7\n")  # as many bytes
    shutil.rmtree(own.landing / sorted(path.name for path in own.landing.glob("epoch=*"))[-1])
    new = moved(own, tmp_path / "new")
    assert (new.landing / file.parent.name / file.name).read_text() == file.read_text()
    same_names = [sorted(path.name for path in each.landing.glob("epoch=*/*.csv")) for each in (own, new)]
    assert same_names[0] == same_names[1]


@pytest.mark.parametrize("lost", ["data/*.parquet", "metadata/*-m0.avro", "metadata/snap-*.avro"])
def test_a_home_that_is_not_whole(own: Home, tmp_path: Path, lost: str) -> None:
    used = {str(path) for path in (own.path / "warehouse" / "graph" / "upserts").glob(lost)}
    for path in used:
        Path(path).unlink()
    with pytest.raises(AltneuError, match="upserts") as error:
        moved(own, tmp_path / "new")
    assert "altneu doctor" in str(error.value.next)
    assert not (tmp_path / "new" / "altneu.toml").exists()


def test_a_disk_that_is_full(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, copied = filesystem._copy_stream, 0

    def poured(source: Any, target: Any) -> int:
        nonlocal copied
        copied += 1
        if copied > 7:
            raise OSError(errno.ENOSPC, "No space left on device", "new")
        return real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "_copy_stream", poured)
        with pytest.raises(Unavailable, match=r"could not be copied to .*No space left on device") as error:
            moved(home, tmp_path / "new")
    assert "files that are copied are not copied again" in str(error.value.next)
    assert not (tmp_path / "new" / "altneu.toml").exists()
    same(home, moved(home, tmp_path / "new"))


def test_the_lock_outlives_no_process(home: Home, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with (tmp_path / "new" / move.JOURNAL).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another altneu move"):
            moved(home, tmp_path / "new")
        stream.write('{"half')  # killed while it wrote
    same(home, moved(home, tmp_path / "new"))


def test_no_password_is_written(tmp_path: Path) -> None:
    text = '# database = "postgresql+psycopg://me:secret@host/a"\n[storage]\ndatabase = "postgresql+psycopg://me:secret@h/a"\n'
    new = replace_settings(text, {("storage", "database"): "postgresql+psycopg://me@other/b"})
    assert (
        new
        == '# database = "postgresql+psycopg://me@host/a"\n[storage]\ndatabase = "postgresql+psycopg://me@other/b"\n'
    )


def test_files_that_only_spark_sees_are_not_missing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    table = iceberg.IcebergTable(
        "t", f"{elsewhere}/metadata/1.metadata.json", {"location": str(elsewhere)}, cast(Any, None)
    )
    assert not file_inventory.is_missing_files(table, {1})
