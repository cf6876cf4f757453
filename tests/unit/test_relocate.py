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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline.errors import AltneuError
from altneu.pipeline.home.home import Home
from altneu.pipeline.state import filesystem, home_identity
from altneu.pipeline.storage import avro_files
from altneu.pipeline.storage.relocate import relocate_home
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
    before, after = (avro_files.parse_avro(content) for content in (old, new))
    for was, is_ in zip(before.records, after.records, strict=True):
        path = Path(is_["manifest_path"])
        assert is_["manifest_length"] == path.stat().st_size
        manifest = here(home, was["manifest_path"]).read_bytes()
        _compare_manifests(home, *(avro_files.parse_avro(content) for content in (manifest, path.read_bytes())))
        is_ |= {field: was[field] for field in ("manifest_path", "manifest_length")}
    _compare_files(before, after)


def _compare_manifests(home: Home, before: avro_files.AvroFile, after: avro_files.AvroFile) -> None:
    for entry in after.records:
        file = entry["data_file"]
        assert Path(file["file_path"]).exists()
        file["file_path"] = file["file_path"].replace(str(home.path), MADE)
    _compare_files(before, after)


def _compare_files(before: avro_files.AvroFile, after: avro_files.AvroFile) -> None:
    """Two Avro files have the same records, metadata and, but for its spaces, schema."""
    assert after.records == before.records
    metadata = (file.metadata | {"avro.schema": json.loads(file.metadata["avro.schema"])} for file in (before, after))
    assert next(metadata) == next(metadata)


def _add_position_deletes(home: Home, table: str) -> str:
    """Add a file that deletes the first row of a data file, as a serving table has them. Return the data file."""
    metadata = json.loads(here(home, locations(home)[table]).read_text())
    newest = max(metadata["snapshots"], key=lambda snapshot: snapshot["sequence-number"])["manifest-list"]
    listed = avro_files.parse_avro(here(home, newest).read_bytes())
    manifest = avro_files.parse_avro(here(home, listed.records[0]["manifest_path"]).read_bytes())
    (entry, *_), folder = manifest.records, metadata["location"]
    data, deletes, path = entry["data_file"]["file_path"], f"{folder}/data/deletes.parquet", f"{folder}/metadata/d.avro"
    pq.write_table(pa.table({"file_path": [data], "pos": pa.array([0], pa.int64())}), here(home, deletes))
    bounds = [{"key": 2147483546, "value": data.encode()}, {"key": 2147483545, "value": bytes(8)}]
    file = {"content": 1, "file_path": deletes, "file_size_in_bytes": here(home, deletes).stat().st_size}
    file |= {"referenced_data_file": data, "lower_bounds": bounds, "upper_bounds": bounds}
    manifest.records[:] = [entry | {"data_file": entry["data_file"] | file}]
    here(home, path).write_bytes(avro_files.format_avro(manifest))
    length = here(home, path).stat().st_size
    listed.records.append(listed.records[0] | {"manifest_path": path, "manifest_length": length, "content": 1})
    here(home, newest).write_bytes(avro_files.format_avro(listed))
    return str(data)


def test_files_of_deleted_positions_name_the_data_files_of_the_new_place(home: Home) -> None:
    data = str(here(home, _add_position_deletes(home, "degrees")))
    relocate_home(home)
    metadata = json.loads(Path(locations(home)["degrees"]).read_text())
    newest = max(metadata["snapshots"], key=lambda snapshot: snapshot["sequence-number"])["manifest-list"]
    listed = avro_files.parse_avro(Path(newest).read_bytes()).records
    (path,) = (Path(each["manifest_path"]) for each in listed if each["content"] == 1)
    (entry,) = avro_files.parse_avro(path.read_bytes()).records
    file = entry["data_file"]
    assert file["referenced_data_file"] == data and Path(data).exists()
    assert Path(file["file_path"]).stat().st_size == file["file_size_in_bytes"]
    assert pq.read_table(file["file_path"]).to_pylist() == [{"file_path": data, "pos": 0}]
    for bounds in (file["lower_bounds"], file["upper_bounds"]):
        assert [each["value"] for each in bounds] == [data.encode(), bytes(8)]


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
