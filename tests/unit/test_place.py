"""A home's identity: one, whatever its path or its database's URI; and what is said of a home that is elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest

from altneu.pipeline import cli
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.local import doctor
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.state import home_identity
from altneu.pipeline.storage.relocate import relocate_home
from altneu.pipeline.tasks import airflow_page, dag_epochs, run_batching
from tests import home_helpers


def settled(path: Path | str) -> str:
    return home_identity.require_identity(Home.open(path)).catalog


def sql(home: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with sqlite3.connect(home / "altneu.db") as connection:
        return connection.execute(statement, values).fetchall()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A home of before homes had a format, at its place: its catalog is named by a hash of the places."""
    path, _ = home_helpers.old(tmp_path)
    home = Home.open(path)
    relocate_home(home)
    name = "altneu_" + hashlib.sha256(f"{home.database} {home.warehouse}".encode()).hexdigest()[:8]
    sql(path, "UPDATE iceberg_tables SET catalog_name = ?", name)
    for later in ("home", "altneu_version"):
        sql(path, f"DROP TABLE {later}")
    return path


def test_a_home_has_one_identity_however_it_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    name = settled(home.path)
    (tmp_path / "link").symlink_to(home.path)
    monkeypatch.chdir(tmp_path)
    assert settled(tmp_path / "link") == settled("home") == settled(Path("link/../home")) == name
    other, _ = home_helpers.make(tmp_path / "other")
    assert settled(other.path) != name


def test_a_home_that_left_a_link_where_it_was(old: Path, tmp_path: Path) -> None:
    name = settled(old)
    old.rename(tmp_path / "elsewhere")
    old.symlink_to(tmp_path / "elsewhere")
    assert settled(old) == name


def test_relative_places_in_the_settings_are_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = '[storage]\ndatabase = "sqlite:///small.db"\nwarehouse = "big"\n'
    home, _ = home_helpers.make(tmp_path / "home", toml)
    assert home.warehouse == str(tmp_path / "home" / "big") and (home.path / "small.db").exists()
    name = settled(home.path)
    monkeypatch.chdir(home.path)
    assert settled(".") == name


def _claimed(path: str) -> str:
    return home_identity.claim_identity(Home.open(path)).catalog


def test_processes_that_come_together_get_one_identity(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        found = list(pool.map(_claimed, [str(home.path)] * 12))
    assert len(set(found)) == 1 and found[0] == settled(home.path)


def test_an_old_home_keeps_its_name_and_reading_stores_nothing(old: Path) -> None:
    names = sql(old, "SELECT DISTINCT catalog_name FROM iceberg_tables")
    before = sql(old, "SELECT name FROM sqlite_master ORDER BY name")
    assert home_identity.open_ledger(Home.open(old)).revisions.get().revision == 6
    assert [(settled(old),)] == names
    assert sql(old, "SELECT name FROM sqlite_master ORDER BY name") == before
    home_identity.claim_identity(Home.open(old))
    assert sql(old, "SELECT catalog, format, warehouse, database FROM home") == [
        (*names[0], 1, str(old / "warehouse"), str(old / "altneu.db"))
    ]


def test_an_old_home_whose_password_once_changed(old: Path) -> None:
    """Then it has empty tables under a second name: the pinned snapshots tell which tables are meant."""
    name = settled(old)
    locations = sql(old, "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables")
    for namespace, table, location in locations:
        empty = Path(str(location)).with_name(f"00000-{table}.metadata.json")
        empty.write_text(json.dumps({"snapshots": []}))
        for later in ("altneu_00000000", "altneu_ffffffff"):
            row = (later, namespace, table, str(empty))
            columns = "catalog_name, table_namespace, table_name, metadata_location"
            sql(old, f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?)", *row)
    assert settled(old) == name
    sql(old, "UPDATE iceberg_tables SET catalog_name = 'altneu_11111111' WHERE catalog_name = ?", name)
    assert settled_or_elsewhere(old) == "altneu_11111111"


def settled_or_elsewhere(path: Path) -> str:
    found = home_identity.find_identity(Home.open(path))
    assert found is not None
    return found.catalog


def test_a_home_of_a_later_version(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home_identity.claim_identity(Home.open(old))
    sql(old, "UPDATE home SET format = 7")
    for command in (["status"], ["land", "x.csv", "--columns", "src,dst", "--epoch", "1"], ["relocate"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(old), *command])
        shown = capsys.readouterr().err
        assert ended.value.code == 2 and "(format 7; this version knows up to 1)" in shown


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_home_elsewhere_names_the_command(
    how: str, old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    if how == "moved":
        old.rename(there)
    else:
        shutil.copytree(old, there)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--home", str(there), "status"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and "next: altneu relocate" in shown and str(old / "warehouse") in shown
    with pytest.raises(home_identity.HomeMoved):
        home_identity.require_identity(Home.open(there))
    relocate_home(Home.open(there))
    assert home_identity.open_ledger(Home.open(there)).revisions.get().revision == 6


def test_programs_and_airflow_are_told_too(old: Path, tmp_path: Path) -> None:
    there = old.rename(tmp_path / "there")
    for ask in (
        lambda: airflow_page.epoch_grid(str(there)),
        lambda: run_batching.plan_epoch(str(there), 19_783),
        lambda: dag_epochs.check_landing(str(there), 19_783, patience=timedelta(1), manual=False),
        lambda: Graph(there),
    ):
        with pytest.raises(home_identity.HomeMoved) as refused:
            ask()
        assert refused.value.next is not None and refused.value.next.startswith("altneu relocate")
    told = {check.name: check for check in doctor.list_checks(there)}["Place"]
    assert told.ok is False and told.remedy.startswith("altneu relocate")
    relocate_home(Home.open(there))
    assert "Place" not in {check.name for check in doctor.list_checks(there)}


def test_doctor_makes_no_database(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "new", create=True)
    assert "Place" not in {check.name for check in doctor.list_checks(home.path)}
    assert not (home.path / "altneu.db").exists()


def test_a_lost_database(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old / "altneu.db").unlink()
    for _ in range(2):  # looking at it makes it no better
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(old), "status"])
        shown = capsys.readouterr()
        assert ended.value.code == 1 and "is lost or empty, but" in shown.err and "next: restore it" in shown.err
        assert "revision 0" not in shown.out
    home_helpers.open_database(f"sqlite:///{old / 'altneu.db'}")  # an empty one
    with pytest.raises(AltneuError, match="lost or empty"):
        home_identity.open_ledger(Home.open(old))


def test_relocation_does_not_bring_back_a_lost_database(old: Path) -> None:
    (old / "altneu.db").unlink()
    with pytest.raises(AltneuError, match="lost or empty"):
        relocate_home(Home.open(old))


def test_a_copy_whose_tables_are_outside(old: Path, tmp_path: Path) -> None:
    """Two databases on the same tables: refused while the original is there, and after it without a word of consent."""
    (old / "warehouse").rename(tmp_path / "tables")
    with (old / "altneu.toml").open("a") as file:
        file.write(f'\n[storage]\nwarehouse = "{tmp_path / "tables"}"\n')
    relocate_home(Home.open(old))
    home_identity.open_ledger(Home.open(old))
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    with pytest.raises(UsageError, match="Two databases on the same tables") as refused:
        home_identity.open_ledger(Home.open(copy))
    assert refused.value.next is not None and refused.value.next.startswith("altneu relocate --original-gone")
    with pytest.raises(UsageError, match="which still exists"):
        relocate_home(Home.open(copy), original_gone=True)
    shutil.rmtree(old)
    with pytest.raises(UsageError, match="Two databases on the same tables"):
        relocate_home(Home.open(copy))
    relocate_home(Home.open(copy), original_gone=True)
    assert home_identity.open_ledger(Home.open(copy)).revisions.get().revision == 6


def test_a_copy_whose_database_is_outside(old: Path, tmp_path: Path) -> None:
    """It is the original's: the copy does not take it."""
    (old / "altneu.db").rename(tmp_path / "ledger.db")
    with (old / "altneu.toml").open("a") as file:
        file.write(f'\n[storage]\ndatabase = "sqlite:///{tmp_path / "ledger.db"}"\n')
    relocate_home(Home.open(old), original_gone=True)
    before = (tmp_path / "ledger.db").read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    with pytest.raises(home_identity.HomeMoved):
        home_identity.open_ledger(Home.open(copy))
    with pytest.raises(UsageError, match="which still exist: a copy needs a database of its own"):
        relocate_home(Home.open(copy))
    assert (tmp_path / "ledger.db").read_bytes() == before
    assert home_identity.open_ledger(Home.open(old)).revisions.get().revision == 6
    shutil.rmtree(old / "warehouse")  # it was moved, then
    relocate_home(Home.open(copy))
    assert home_identity.open_ledger(Home.open(copy)).revisions.get().revision == 6


def test_a_home_that_may_only_be_read(old: Path) -> None:
    """Nothing is written by looking: the file stays as it is, to the byte."""
    file = old / "altneu.db"
    home_identity.open_ledger(Home.open(old))  # columns that came later are added once
    before, times = file.read_bytes(), os.stat(file).st_mtime_ns
    assert home_identity.open_ledger(Home.open(old)).revisions.get().revision == 6
    assert file.read_bytes() == before and os.stat(file).st_mtime_ns == times
