"""Tables that a REST catalog lists, on a real one: the same history as beside the ledger, and all that goes wrong."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.errors import AltneuError, Unavailable, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import Rest
from altneu.pipeline.local import doctor
from altneu.pipeline.maintenance import move_target, rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.maintenance.move import move_home
from altneu.pipeline.reading import views
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import catalogs, file_inventory, refs_without_spark
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.relocate import relocate_home
from altneu.pipeline.storage.table_fingerprints import published_fingerprints
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch
from tests.proxy import Proxy

BATCH: dict[str, Any] = {"vertices": range(8), "size": 14, "deletes": 0.2, "loops": False}


def settings(rest: Proxy, namespace: str, **more: str) -> str:
    given = {"type": "rest", "uri": rest.endpoint, "namespace": namespace} | more
    return "[storage]\ncatalog = {" + ", ".join(f"{name} = {json.dumps(text)}" for name, text in given.items()) + "}\n"


def shown(home: Home, spark: SparkSession) -> list[Any]:
    """Totals of every epoch, the trussness of every edge ever, fingerprints."""
    ledger = Ledger(home)
    row = ledger.revisions.get()
    warehouse = Warehouse(spark, home)
    truss = (
        warehouse.read_table("trussness", row)
        .groupBy("a", "b", "epoch", "k")
        .agg({"diff": "sum"})
        .where("sum(diff) <> 0")
    )
    prints = published_fingerprints(warehouse, row)
    assert {table: ledger.outputs.fingerprints_of(row.revision)[table] for table in prints} == prints
    return [views.select_totals(ledger, all_epochs=True), sorted(map(tuple, truss.collect())), prints]


@pytest.mark.usefixtures("unaudited", "tiny")
def test_a_history_is_that_beside_the_ledger(spark: SparkSession, tmp_path: Path, rest: Proxy) -> None:
    """With a correction, a rollback and a compaction; with 503s and broken connections all along."""
    rng, faults = random.Random(seeds.one()), random.Random(seeds.one())
    batches = [draw_batch(rng, **BATCH) for _ in range(4)]
    both = [home_helpers.make(tmp_path / "sql"), home_helpers.make(tmp_path / "rest", settings(rest, "a"))]
    rest.faults = lambda method, path: faults.choices([None, "503", "cut"], [95, 3, 2])[0] if method == "GET" else None
    for home, ledger in both:
        for epoch, rows in enumerate(batches[:3]):
            home_helpers.put(home, epoch, rows)
        home_helpers.run(ledger, [0, 1, 2])
        home_helpers.put(home, 1, batches[3])
        home_helpers.run(ledger, [1])
    home, ledger = both[1]
    assert shown(home, spark) == shown(both[0][0], spark)
    assert home_identity.find_identity(home).catalog.startswith(home_identity.REST_PREFIX)  # type: ignore[union-attr]
    assert DuckTables(home).collect_rows(DuckTables(home).read_table("edges", ledger.revisions.get()))
    for home, ledger in both:
        rollback.roll_back(ledger, 1)
        for table, pin in ledger.revisions.get().snapshots.items():  # without Spark, by the server
            refs = refs_without_spark.open_branches(home).load_metadata(table).ref_snapshots()
            assert (refs["main"], refs[f"r{ledger.revisions.get().revision}"]) == (pin, pin), (home.path, table)
        compact(ledger, spark)
    home, ledger = both[1]
    assert shown(home, spark)[:2] == shown(both[0][0], spark)[:2]
    assert Warehouse(spark, home).remove_orphans("edges") == 0
    found = file_inventory.take_inventory(ledger)
    assert found.files > 5 and not found.missing_files


@pytest.mark.parametrize("history", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("unaudited", "tiny")
def test_a_home_moves_into_a_catalog_and_out_of_it(
    history: int, spark: SparkSession, tmp_path: Path, rest: Proxy
) -> None:
    """While it stumbles; into a namespace of its own alone; what is there goes on, and comes back."""
    rng, faults = random.Random(seeds.one()), random.Random(seeds.one())
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch in range(history):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
        home_helpers.run(ledger, [epoch])
    rest.faults = lambda method, path: faults.choices([None, "503", "cut"], [95, 3, 2])[0] if method == "GET" else None
    to = move_target.parse_target(tmp_path / "there", [f"{rest.endpoint}?namespace=moved{history}"])
    there = move_home(home, to, lambda text: None)
    assert there is not None and [*there.proved_tables] == [*range(1, history + 1)]
    assert shown(there.home, spark) == shown(home, spark)
    home_helpers.put(there.home, 0, draw_batch(rng, **BATCH))
    home_helpers.run(Ledger(there.home), [0])
    compact(Ledger(there.home), spark)
    other = move_target.parse_target(tmp_path / "other", [f"{rest.endpoint}?namespace=moved{history}"])
    with pytest.raises(UsageError, match=f"the namespace moved{history} of http.* has a table .* of another home"):
        move_home(home, other, lambda text: None)
    if history > 2:  # from one namespace into another
        again = move_target.parse_target(tmp_path / "again", [f"{rest.endpoint}?namespace=again{history}"])
        twice = move_home(there.home, again, lambda text: None)
        assert twice is not None and shown(twice.home, spark) == shown(there.home, spark)
        there = twice
    back = move_home(there.home, move_target.parse_target(tmp_path / "back", []), lambda text: None)
    assert back is not None and shown(back.home, spark) == shown(there.home, spark)
    home_helpers.run(Ledger(back.home), [0], remove=True)


@pytest.mark.usefixtures("unaudited", "tiny")
def test_wrong_uses(spark: SparkSession, tmp_path: Path, rest: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home's namespace, another kind of catalog, a catalog that is gone or refuses: nothing is lost."""
    home, ledger = home_helpers.make(tmp_path / "home", settings(rest, "b"))
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 1), (1, 3, None, "upsert", 2)])
    home_helpers.run(ledger, [0])
    before = shown(home, spark)

    other, books = home_helpers.make(tmp_path / "other", settings(rest, "b"))
    home_helpers.put(other, 0, [(4, 5, None, "upsert", 0)])
    with pytest.raises(UsageError, match="the namespace b of the catalog has a table upserts of another home"):
        home_helpers.run(books, [0])

    def again(text: str) -> Home:
        (home.path / "altneu.toml").write_text(text)
        return Home.open(home.path)

    cases: list[tuple[str, type[AltneuError], str, Callable[[Home], object]]] = [
        ("", UsageError, "listed in a REST catalog, but by .* they are in the home's database", tables),
        (settings(rest, "nobody"), AltneuError, "there is no table edges", tables),
        (settings(rest, "nobody"), AltneuError, "has no tables of this home, but .* contains rows", made(spark)),
        (settings(rest, "b"), UsageError, "cannot be relocated", relocate_home),
    ]
    for text, kind, says, action in cases:
        changed = again(text)
        with pytest.raises(kind, match=says):
            action(changed)
    assert shown(again(settings(rest, "b")), spark) == before

    rest.faults = lambda method, path: "503"
    with pytest.raises((Unavailable, AltneuError), match="the catalog http"):
        tables(home)
    rest.faults = lambda method, path: "cut"
    with pytest.raises(Unavailable, match="does not answer"):
        tables(home)
    assert [check.ok for check in doctor._check_stores(home.path) if check.name == "Catalog"] == [False]
    rest.faults = lambda method, path: None
    assert [check.ok for check in doctor._check_stores(home.path) if check.name == "Catalog"] == [True]
    assert shown(home, spark) == before

    former, old = home_helpers.make(tmp_path / "former")
    home_helpers.put(former, 0, [(1, 2, None, "upsert", 0)])
    home_helpers.run(old, [0])
    (former.path / "altneu.toml").write_text(settings(rest, "c"))
    with pytest.raises(UsageError, match=r"listed in the home's database, but by .* they are in a REST catalog"):
        Warehouse(spark, Home.open(former.path))


def tables(home: Home) -> dict[str, str]:
    found = catalogs.open_catalog(home, home_identity.require_identity(home)).metadata_locations("edges")
    if "edges" not in found:
        raise AltneuError("there is no table edges", "altneu status")
    return found


def made(spark: SparkSession) -> Callable[[Home], object]:
    return lambda home: Warehouse(spark, home).ensure_tables()


@pytest.mark.usefixtures("unaudited", "tiny")
def test_an_answer_that_is_lost(spark: SparkSession, tmp_path: Path, rest: Proxy) -> None:
    """A commit whose answer does not come: the run fails or goes on; the next one publishes what is landed."""
    rng = random.Random(seeds.one())
    home, ledger = home_helpers.make(tmp_path / "home", settings(rest, "d"))
    expected, books = home_helpers.make(tmp_path / "expected")
    for epoch in range(4):
        rows = draw_batch(rng, **BATCH)
        for each in (home, expected):
            home_helpers.put(each, epoch, rows)
        home_helpers.run(books, [epoch])
        if epoch:
            rest.faults = lambda method, path: "lost" if method == "POST" and rng.random() < 0.1 else None
            for _ in range(3):
                try:
                    home_helpers.run(ledger, [epoch])
                    break
                except Exception as error:
                    print(f"epoch {epoch}: {error}")
        rest.faults = lambda method, path: None
        home_helpers.run(ledger, [epoch])
    assert shown(home, spark)[:2] == shown(expected, spark)[:2]


def test_tokens_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALTNEU_CATALOG_CREDENTIAL", "me:secret")
    rest = Rest(type="rest", uri="https://host/api", warehouse="mine", scope="PRINCIPAL_ROLE:ALL")
    assert catalogs._connection_properties(rest) == {
        "uri": "https://host/api",
        "warehouse": "mine",
        "scope": "PRINCIPAL_ROLE:ALL",
        "credential": "me:secret",
    }


def test_a_server_without_the_home(tmp_path: Path, rest: Proxy) -> None:
    """Nothing is there yet: reading finds no table, and makes none."""
    home, _ = home_helpers.make(tmp_path / "home", settings(rest, "e"))
    assert catalogs.RestCatalogClient(home.config.storage.catalog).metadata_locations() == {}  # type: ignore[arg-type]
    assert not any("POST" in seen for seen in rest.seen)
    shutil.rmtree(home.path)
