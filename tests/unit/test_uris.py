"""A path is itself wherever it becomes a URI: the file that each library opens by it is the one at the path."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from altneu.pipeline.errors import AltneuError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.uris import sqlite_uri
from altneu.pipeline.reading import external_access
from altneu.pipeline.state import filesystem, home_identity
from altneu.pipeline.storage.catalogs import jdbc_options
from altneu.pipeline.storage.duckdb_tables import DuckTables, Query, read_parquet_files
from tests import home_helpers
from tests.report.seed import Seed

NASTY = [
    "a%41",
    "aA",
    "%2F",
    "%25",
    "100%",
    "a#b",
    "a?b",
    "axb",
    "a b",
    "it's",
    'say "so"',
    "größe",
    "a&b",
    "a;b",
    "a=b",
]
NASTY += ["a[x]b", "*", "**", "{x,y}", "a\\b", "~", "$HOME", "a@b", "a:b", "a+b", "a,b", "?mode=memory", "file:x", "‮b"]
# a folder's name: such words in a row, or whatever characters it may have
names = st.lists(st.sampled_from(NASTY), min_size=1, max_size=4).map("".join) | st.text(
    st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40
).filter(lambda name: name not in (".", ".."))


def with_nasty_names(function):  # type: ignore[no-untyped-def]
    for name in NASTY:
        function = example(name)(function)
    return settings(deadline=None, max_examples=15)(given(names)(function))


@with_nasty_names
def test_sqlalchemy_opens_the_file_at_the_path(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.mkdir()
        uri = Home.draft_home(path).database
        assert uri == sqlite_uri(path / "altneu.db") and sa.make_url(uri).database == str(path / "altneu.db")
        home_helpers.open_database(uri)
        assert [each.name for each in Path(folder).iterdir()] == [name] and (path / "altneu.db").is_file()
        with sa.create_engine(sqlite_uri(path / "altneu.db", "timeout=60")).connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM ledger")).scalar() == 0
            assert home_identity.database_place(connection) == str((path / "altneu.db").resolve())


@with_nasty_names
def test_sqlite_opens_the_file_at_the_path_by_the_uri_for_java(name: str) -> None:
    """Its driver cuts at the first question mark, and lets SQLite decode what begins with `file:`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.mkdir()
        uri = jdbc_options(sqlite_uri(path / "a.db"), str(path))["uri"]
        file = uri.removeprefix("jdbc:sqlite:").partition("?")[0]
        sqlite3.connect(file, uri=file.startswith("file:")).execute("CREATE TABLE t (n)")
        assert [each.name for each in Path(folder).iterdir()] == [name] and (path / "a.db").is_file()


@with_nasty_names
def test_duckdb_reads_the_file_at_the_path_and_no_other_that_matches_it(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for each in {name, "aA", "axb", "ayb", "b"}:
            Path(folder, each).mkdir()
            pq.write_table(pa.table({"folder": [each]}), Path(folder, each, "rows.parquet"))
        source = read_parquet_files([Path(folder, name, "rows.parquet")])
        rows = DuckTables(Home.draft_home(folder)).collect_rows(Query(f"SELECT * FROM {source}"))
        assert rows == [{"folder": name}]


@with_nasty_names
def test_locations_of_files_are_paths(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home.draft_home(Path(folder, name))
        location = f"{home.warehouse}/graph/t/metadata/00000-a.metadata.json"
        filesystem.write_file(location, b"x")
        assert filesystem.local_path(location) == Path(folder, name, "warehouse/graph/t/metadata/00000-a.metadata.json")
        assert filesystem.read_file(location) == b"x" and filesystem.list_sizes(home.warehouse) == {
            location[len(home.warehouse) + 1 :]: 1
        }
        assert home.landing == Path(folder, name, "landing") and home.reports == Path(folder, name, "reports")


@with_nasty_names
def test_pyiceberg_opens_the_tables_by_what_the_command_prints(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seed = Seed(Path(folder, name))
        with pytest.raises(AltneuError):
            external_access.external_access(seed.ledger)  # nothing is published
        where = external_access._catalog_properties(seed.home, "mine")
        catalog = SqlCatalog("mine", uri=where["uri"], warehouse=where["warehouse"])
        catalog.create_namespace("graph")
        table = catalog.create_table(
            "graph.t", pa.schema([("n", pa.int64())]), location=f"{where['warehouse']}/graph/t"
        )
        table.append(pa.table({"n": [1]}))
        assert catalog.load_table("graph.t").scan().to_arrow().to_pylist() == [{"n": 1}]
        assert [each.name for each in Path(folder).iterdir()] == [name]
