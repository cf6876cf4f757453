"""Databases of every version: brought up to date by who writes, readable before, refused when they are later ones.

`tests/data/databases` holds the statements with which earlier versions made their tables, as they sent them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from altneu.pipeline import cli
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.state import database, delivery_cursors, home_identity, versions
from altneu.pipeline.state.delivery_cursors import DeliveryCursor
from altneu.pipeline.state.records import RunKind, RunState, StagedBatch
from altneu.pipeline.state.schema import metadata, version
from altneu.pipeline.state.versions import DatabaseOutdated
from tests import home_helpers
from tests.postgres import DATABASE_KINDS

REPO = Path(__file__).resolve().parents[2]
DATABASES = REPO / "tests" / "data" / "databases"
OLD = sorted({file.name.split(".")[0] for file in DATABASES.iterdir()})
FIRST = """
INSERT INTO runs (run_id, parent, epochs, state, config, started_at)
    VALUES ('a', 0, '[1, 2]', 'published', '{}', '2026');
INSERT INTO runs (run_id, parent, epochs, state, config, started_at)
    VALUES ('b', 1, '[3]', 'unchanged', '{}', '2027');
INSERT INTO ledger (revision, parent, run_id, frontier, snapshots, config_digest, published_at)
    VALUES (1, 0, 'a', 2, '{"edges": "9007199254740993"}', 'd', '2026');
INSERT INTO batches (run_id, epoch, digest, files, rows, bad_rows) VALUES ('a', 1, 'x', 1, 5, 0)
"""


@pytest.fixture(params=DATABASE_KINDS)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'altneu.db'}"
    return str(request.getfixturevalue("postgres"))


def make(uri: str, name: str) -> None:
    """A database as an earlier version left it, with a published run."""
    with database.shared_engine(uri) as engine:
        statements = (DATABASES / f"{name}.{engine.dialect.name}.sql").read_text() + FIRST
        with engine.begin() as connection:
            for statement in statements.split(";\n"):
                connection.exec_driver_sql(statement.replace("%", "%%"))


def shape(uri: str) -> dict[str, Any]:
    """Tables, columns, keys and indexes, as the database tells them."""
    with database.shared_engine(uri) as engine:
        there = sa.inspect(engine)
        return {
            name: {
                "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in there.get_columns(name)},
                "key": set(there.get_pk_constraint(name)["constrained_columns"]),
                "unique": sorted(str(c["column_names"]) for c in there.get_unique_constraints(name)),
                "foreign": sorted(str(c["constrained_columns"]) for c in there.get_foreign_keys(name)),
                "indexes": sorted(
                    (i["name"], str(i["column_names"])) for i in there.get_indexes(name) if not i["unique"]
                ),
            }
            for name in there.get_table_names()
        }


def number(uri: str) -> str | None:
    with database.open_connection(uri) as connection:
        return versions.stored_version(connection)


def test_the_scripts_are_in_a_row_and_end_where_the_tables_are() -> None:
    scripts = versions._load_scripts()
    assert tuple(scripts) == versions.known_versions()
    assert [script.down_revision for script in scripts.values()] == [None, *versions.known_versions()[:-1]]
    shown = {(table, name) for script in scripts.values() for table, names in script.SHOWS.items() for name in names}
    shown -= {("told", "asset"), ("told", "claimed")}  # `v0012` renames this table
    tables = metadata.tables.values()
    assert shown <= {(table.name, each.name) for table in tables for each in (*table.columns, *table.indexes)}


@pytest.mark.parametrize("name", OLD)
def test_an_old_database_becomes_what_a_new_one_is(uri: str, name: str, tmp_path: Path) -> None:
    make(uri, name)
    with database.open_connection(uri) as connection:
        assert (versions.stored_version(connection), versions.version_of_tables(connection)) == (None, name)
    ledger = home_helpers.open_database(uri, writes=True)
    assert number(uri) == versions.newest_version()
    new = f"sqlite:///{tmp_path / 'new.db'}"
    if not uri.startswith("sqlite"):
        with database.shared_engine(uri) as engine:  # the same server, another schema of names
            migrated = shape(uri)
            metadata.drop_all(engine)
        home_helpers.open_database(uri)
        assert shape(uri) == migrated
        return
    home_helpers.open_database(new)
    assert shape(uri) == shape(new)
    assert ledger.revisions.get().snapshots == {"edges": 2**53 + 1}


@pytest.mark.parametrize("name", OLD)
def test_what_was_there_is_read_and_goes_on(uri: str, name: str) -> None:
    make(uri, name)
    ledger = home_helpers.open_database(uri, writes=True)
    assert [(run.kind, run.state, run.epochs) for run in ledger.runs.list_all()] == [
        (RunKind.RUN, RunState.PUBLISHED, (1, 2)),
        (RunKind.RUN, RunState.UNCHANGED, (3,)),
    ]
    assert ledger.outputs.published_batches()[1].rows == 5
    ledger.runs.create("c", 1, epochs=[4], config={})
    ledger.outputs.put_batches("c", [StagedBatch(4, "y", 1, 2, 0)])
    assert ledger.publish_revision("c", 1, frontier=4, snapshots={"edges": 1}, digest="d", mark=None).revision == 2
    assert home_helpers.open_database(uri).outputs.published_batches()[4].rows == 2


@pytest.mark.parametrize("number", ["v0010", "v0011"])
def test_what_was_claimed_and_delivered_before_the_cursors_had_their_name_stays_so(uri: str, number: str) -> None:
    from alembic import command

    make(uri, "v0005")
    with database.shared_engine(uri) as engine:
        with versions._lock_for_migration(engine) as connection:
            config = versions._migration_config(connection)
            command.stamp(config, "v0005")
            command.upgrade(config, number)
        with engine.begin() as connection:
            values = "VALUES ('claimed', 3, 5, 'task'), ('delivered', 4, NULL, NULL)"
            connection.exec_driver_sql(f"INSERT INTO told (asset, revision, claimed, teller) {values}")
    with pytest.raises(DatabaseOutdated, match=number):
        delivery_cursors.read_cursor(home_helpers.open_database(uri), "claimed")
    ledger = home_helpers.open_database(uri, writes=True)
    assert delivery_cursors.read_cursor(ledger, "claimed") == DeliveryCursor(3, 5, "task")
    assert delivery_cursors.read_cursor(ledger, "delivered") == DeliveryCursor(4)
    assert "told" not in shape(uri)


def test_a_reader_of_an_old_database_changes_nothing_and_is_told_what_to_type(uri: str) -> None:
    make(uri, "v0001")
    before = shape(uri)
    reader = home_helpers.open_database(uri)
    assert reader.outputs.published_batches()[1].rows == 5, "this needs no new column"
    with pytest.raises(
        DatabaseOutdated,
        match=f"does not have what this command needs .*v0001; this version needs {versions.newest_version()}",
    ) as told:
        reader.revisions.get()
    assert "altneu doctor" in (told.value.next or "")
    assert shape(uri) == before
    home_helpers.open_database(uri, writes=True)
    assert reader.revisions.get().revision == 1


def test_a_database_without_a_number_that_lacks_nothing_is_read_as_it_is(uri: str) -> None:
    make(uri, "v0005")
    before = shape(uri)
    assert home_helpers.open_database(uri).revisions.get().revision == 1
    assert shape(uri) == before


def test_columns_that_an_interrupted_version_has_added_stay(uri: str) -> None:
    """Each was added in a transaction of its own then."""
    make(uri, "v0001")
    with database.shared_engine(uri) as engine, engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN kind VARCHAR(16)")
        connection.exec_driver_sql("UPDATE runs SET kind = 'rebuild'")
    assert {run.kind for run in home_helpers.open_database(uri, writes=True).runs.list_all()} == {RunKind.REBUILD}


def test_a_database_without_a_number_that_has_all_tables_keeps_what_was_delivered(uri: str) -> None:
    ledger = home_helpers.open_database(uri, writes=True)
    delivery_cursors.start_cursor(ledger, "delivered", 4)
    before = shape(uri)
    with database.shared_engine(uri) as engine, engine.begin() as connection:
        connection.execute(version.delete())
    ledger = home_helpers.open_database(uri, writes=True)
    assert number(uri) == versions.newest_version() and shape(uri) == before
    assert delivery_cursors.read_cursor(ledger, "delivered") == DeliveryCursor(4)


@pytest.mark.parametrize("writes", [False, True])
def test_a_database_of_a_later_version_is_refused(uri: str, writes: bool) -> None:
    home_helpers.open_database(uri)
    with database.shared_engine(uri) as engine, engine.begin() as connection:
        connection.execute(version.update().values(version_num="v9999"))
    before = shape(uri)
    with pytest.raises(
        UsageError, match=f"later version of altneu .*v9999; this version knows up to {versions.newest_version()}"
    ):
        home_helpers.open_database(uri, writes=writes)
    assert shape(uri) == before


def test_a_migration_that_fails_leaves_the_old_version(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(uri, "v0001")
    before = shape(uri)

    def broken(config: object, revision: str) -> None:
        upgrade(config, "v0003")
        raise RuntimeError("stopped")

    from alembic import command

    upgrade = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", broken)
        with pytest.raises(RuntimeError):
            home_helpers.open_database(uri, writes=True)
    assert shape(uri) == before
    assert home_helpers.open_database(uri, writes=True).revisions.get().revision == 1


WRITER = """
import logging, sys
from altneu.pipeline.state import database, versions
from tests import home_helpers
logging.basicConfig(format="%(message)s", stream=sys.stdout)
database.SECONDS_UNTIL_MESSAGE = 0.1
print(home_helpers.open_database(sys.argv[1], writes=True).revisions.get().revision, flush=True)
"""


def test_of_two_that_migrate_at_once_one_waits(uri: str) -> None:
    make(uri, "v0001")
    with database.shared_engine(uri) as engine, versions._lock_for_migration(engine) as connection:
        line = [sys.executable, "-c", WRITER, uri]
        other = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=REPO)
        assert other.stdout is not None
        said = other.stdout.readline()
        assert said.startswith("waiting for another writer of"), said
        assert versions.stored_version(connection) is None
    assert other.communicate(timeout=120)[0] == "1\n"
    assert number(uri) == versions.newest_version()


@pytest.fixture
def altneu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """A command: its code, and what it says."""
    monkeypatch.setenv("COLUMNS", "1000")

    def call(home: Path, *words: str) -> tuple[int, str]:
        code = 0
        try:
            cli.main(["--home", str(home), *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def test_a_stored_home_of_an_earlier_version(tmp_path: Path, altneu: Callable[..., tuple[int, str]]) -> None:
    home, _ = home_helpers.old(tmp_path)
    assert altneu(home, "relocate")[0] == 0  # it was made elsewhere
    assert number(Home.open(home).database) == versions.newest_version()
    code, shown = altneu(home, "status", "--format", "json")
    assert code == 0 and json.loads(shown)["revision"] == 6


def test_doctor_brings_a_database_up_to_date(tmp_path: Path, altneu: Callable[..., tuple[int, str]]) -> None:
    home = home_helpers.make(tmp_path / "home")[0]
    (home.path / "altneu.db").unlink()
    make(home.database, "v0003")
    names = [column.name for column in home_identity.tables.columns]
    row = ["altneu_1", "altneu", "edges", f"{home.warehouse}/altneu/edges/metadata/1.json", ""]
    with database.shared_engine(home.database) as engine, engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE iceberg_tables ({', '.join(names)})")
        connection.execute(home_identity.tables.insert().values(dict(zip(names, row, strict=True))))
        place_of = home.path / "altneu.db"
        connection.execute(sa.text("CREATE TABLE home AS SELECT 1 AS id, 'altneu_1' AS catalog, 1 AS format, "
            f"'{home.warehouse}' AS warehouse, '{place_of}' AS database, '2026' AS made_at"))  # fmt: skip
    code, shown = altneu(home.path, "status")
    assert code == 2, shown
    assert "an earlier version of altneu has made the database" in shown and "next: altneu doctor" in shown
    shown = altneu(home.path, "doctor")[1]
    assert f"its tables had version v0004, and have {versions.newest_version()} now" in shown
    assert altneu(home.path, "status")[0] == 0
