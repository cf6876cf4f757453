"""Relocation: what it writes differs in its paths alone; stopped anywhere it has changed nothing; it needs a whole
copy, and neither reads nor writes the original."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import AltneuError
from pipeline.home.home import Home
from pipeline.state import filesystem, home_identity
from pipeline.storage import avro_patch
from pipeline.storage.relocate import relocate_home
from tests import home_helpers

MADE = "/srv/altneu/home"  # where the stored home was made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(home_helpers.old(tmp_path)[0])


def locations(home: Home) -> dict[str, str]:
    with sqlite3.connect(home.path / "altneu.db") as connection:
        return dict(connection.execute("SELECT table_name, metadata_location FROM iceberg_tables").fetchall())


def here(home: Home, location: str) -> Path:
    return Path(location.replace(MADE, str(home.path)))


def digests(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def values(content: bytes, *paths: tuple[str, ...]) -> list[Any]:
    """The values of some fields of an Avro file, in its order."""
    found: list[Any] = []
    avro_patch.rewrite_values(content, {path: lambda value: found.append(value) or value for path in paths})  # type: ignore[func-returns-value]
    return found


def test_only_the_paths_differ(home: Home) -> None:
    before = {table: json.loads(here(home, location).read_text()) for table, location in locations(home).items()}
    relocate_home(home)
    assert home_identity.open_ledger(home).revisions.get().revision == 6
    lists = 0
    for table, location in locations(home).items():
        old, new = before[table], json.loads(Path(location).read_text())
        assert new["location"] == str(home.path / "warehouse" / "graph" / table)
        pairs = list(zip(old["snapshots"], new["snapshots"], strict=True))
        for was, is_ in pairs:
            contents = here(home, was["manifest-list"]).read_bytes(), Path(is_["manifest-list"]).read_bytes()
            _compare_lists(home, *contents)
            is_["manifest-list"] = was["manifest-list"]
            lists += 1
        new |= {"location": old["location"], "metadata-log": old["metadata-log"]}
        assert new == old  # refs, schemas, sequence numbers, properties, …
    assert lists > 20


def _compare_lists(home: Home, old: bytes, new: bytes) -> None:
    """Two lists of manifests, and the manifests, differ in their paths and lengths alone."""
    was, is_ = (values(each, ("manifest_path",)) for each in (old, new))
    lengths = values(new, ("manifest_length",))
    assert lengths == [Path(path).stat().st_size for path in is_]
    before = iter([*values(old, ("manifest_length",))])
    back = dict(zip(is_, was, strict=True))
    again = avro_patch.rewrite_values(
        new, {("manifest_path",): back.get, ("manifest_length",): lambda length: next(before)}
    )
    assert again == avro_patch.rewrite_values(old, {})
    for path in was:
        manifest = here(home, path).read_bytes()
        moved = Path(next(new for new, old in back.items() if old == path)).read_bytes()
        field = ("data_file", "file_path")
        assert all(Path(file).exists() for file in values(moved, field))
        restored = avro_patch.rewrite_values(moved, {field: lambda file: file.replace(str(home.path), MADE)})
        assert restored == avro_patch.rewrite_values(manifest, {})


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 7, 88])
def test_stopped_in_the_middle_nothing_has_changed(after: int, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before, database, real = digests(home.path), (home.path / "altneu.db").read_bytes(), filesystem.write_file
    written: list[str] = []

    def write(location: str, content: bytes) -> None:
        if len(written) == after:
            real(location, content[: len(content) // 2])
            raise Stopped
        written.append(location)
        real(location, content)

    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "write_file", write)
        with pytest.raises(Stopped):
            relocate_home(home)
    assert (home.path / "altneu.db").read_bytes() == database
    assert {name: digest for name, digest in digests(home.path).items() if name in before} == before
    with pytest.raises(home_identity.HomeMoved):
        home_identity.open_ledger(home)
    relocate_home(home)
    assert home_identity.open_ledger(home).revisions.get().revision == 6


def test_stopped_before_the_transaction_ends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before = locations(home)

    def stop(*arguments: object) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(home_identity, "identity_row", stop)  # between the changes of the catalog and the commit
        with pytest.raises(Stopped):
            relocate_home(home)
    assert locations(home) == before
    relocate_home(home)
    assert home_identity.open_ledger(home).revisions.get().revision == 6


@pytest.mark.parametrize("lost", ["data/*.parquet", "metadata/*-m0.avro", "metadata/snap-*.avro"])
@pytest.mark.parametrize("how", ["missing", "broken off"])
def test_a_copy_that_is_not_whole(lost: str, how: str, home: Home) -> None:
    relocate_home(home)  # so that all files are in use
    there = Home.open(shutil.copytree(home.path, home.path.parent / "there"))
    token = Path(locations(home)["upserts"]).name.removesuffix(".metadata.json").partition("-")[2]
    found = sorted((there.path / "warehouse/graph/upserts").glob(lost))
    file = next(path for path in found if path.suffix == ".parquet" or token in path.name)
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-5])
    before = locations(there)
    with pytest.raises(AltneuError, match=r"incomplete: .*missing or damaged. Nothing was changed") as error:
        relocate_home(there)
    assert file.name in error.value.what
    assert locations(there) == before


def test_a_copy_does_not_touch_the_original(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    relocate_home(home)
    before = digests(home.path)
    there = Home.open(shutil.copytree(home.path, home.path.parent / "there"))
    touched: list[str] = []
    for name in ("read_file", "write_file", "list_sizes"):
        real = getattr(filesystem, name)

        def noted(location: str, *rest: Any, real: Any = real) -> Any:
            touched.append(location)
            return real(location, *rest)

        monkeypatch.setattr(filesystem, name, noted)
    relocate_home(there)
    assert touched and all(location.startswith(f"{there.path}/") for location in touched)
    assert digests(home.path) == before
    assert home_identity.require_identity(home).catalog != home_identity.require_identity(there).catalog
    assert all(location.startswith(f"{there.path}/") for location in locations(there).values())


def test_a_full_disk(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(location: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(filesystem, "write_file", full)
    with pytest.raises(AltneuError, match=r"cannot be written: No space left on device\. Nothing was changed"):
        relocate_home(home)


def test_there_and_back_again(home: Home) -> None:
    """Moved many times, also into a folder whose path begins like the old one."""
    relocate_home(home)
    path = home.path
    for name in ("home-2", "home-2-home", "home"):
        path = path.rename(path.parent / name)
        moved = Home.open(path)
        relocate_home(moved)
        assert home_identity.open_ledger(moved).revisions.get().revision == 6
        assert {Path(location).parts[-6] for location in locations(moved).values()} == {name}
    assert relocate_home(Home.open(path)).tables == 0


def test_a_home_without_tables(tmp_path: Path) -> None:
    made, _ = home_helpers.make(tmp_path / "new")
    assert relocate_home(made).tables == 0
    home_identity.claim_identity(made)
    there = made.path.rename(tmp_path / "there")
    relocate_home(Home.open(there))
    assert home_identity.open_ledger(Home.open(there)).revisions.get().revision == 0
