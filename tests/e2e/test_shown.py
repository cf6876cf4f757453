"""Whatever a reader is shown is audited from where it is read, and repaired.

Damage planted into a published home, in SQL's tables and in those of Iceberg, is found by `altneu audit`, taken back by
`altneu repair`, and later runs go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph.motif_patterns import Pattern
from altneu.pipeline import cli
from altneu.pipeline.checking import audit
from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.reading import views
from altneu.pipeline.state import schema as books
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch

pytestmark = pytest.mark.usefixtures("tiny")

TOML = """
[vertices]
ids = "string"
[edges]
live_for = 3
[motifs]
square = "a-b, b-c, c-d, a-d"
"""
LAST = 4
BATCH: dict[str, Any] = {"vertices": range(9), "size": 30, "deletes": 1 / 6, "loops": False}


class Scene:
    """A published home, and what it shows."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.seed = seeds.one()
        self.rng = random.Random(self.seed)
        self.home, self.ledger = home_helpers.make(path, TOML)
        for epoch in range(0, LAST + 1, 2):  # holes, in which edges expire
            home_helpers.put(self.home, epoch, draw_batch(self.rng, **BATCH))
        home_helpers.run(self.ledger, range(0, LAST + 1, 2))
        self.warehouse = Warehouse(spark, self.home)

    def totals(self) -> list[dict[str, Any]]:
        rows = views.select_totals(self.ledger, all_epochs=True)
        return [{key: value for key, value in row.items() if key != "revision"} for row in rows]

    def batches(self) -> list[tuple[int, int, int]]:
        return [(batch.epoch, batch.rows, batch.bad_rows) for batch in self.ledger.outputs.published_batches().values()]

    def failed(self) -> set[tuple[int, str]]:
        row = self.ledger.revisions.get()
        epochs = audit.auditable_epochs(self.ledger, row)
        found = audit.audit_published(self.warehouse, row, epochs, lambda text: None)
        return {(check["epoch"], check["name"]) for check in found if not check["passed"]}

    def command(self, *words: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(self.home.path), *words])
        return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    yield Scene(spark, tmp_path_factory.mktemp("shown") / "home")


def total(measure: str, k: int, epoch: int, diff: int) -> Callable[[Scene], None]:
    """More of a measure from an epoch on, in the rows of the newest run."""

    def plant(scene: Scene) -> None:
        row = {"run_id": scene.ledger.revisions.get().run_id, "measure": measure, "k": k, "epoch": epoch}
        key = sa.and_(*(books.totals.c[name] == value for name, value in row.items()))
        with scene.ledger.database.engine.begin() as connection:
            more = books.totals.update().where(key).values(diff=books.totals.c.diff + diff)
            if not connection.execute(more).rowcount:
                connection.execute(books.totals.insert().values(**row, diff=diff))

    return plant


def lost_total(measure: str) -> Callable[[Scene], None]:
    def plant(scene: Scene) -> None:
        with scene.ledger.database.engine.begin() as connection:
            connection.execute(books.totals.delete().where(books.totals.c.measure == measure))

    return plant


def of_batch(**more: int) -> Callable[[Scene], None]:
    """Other numbers of a batch, in the run that published it."""

    def plant(scene: Scene) -> None:
        columns = {name: books.batches.c[name] + n for name, n in more.items()}
        run_id = scene.ledger.revisions.get(scene.ledger.outputs.published_batches()[2].revision).run_id
        mine = (books.batches.c.run_id == run_id) & (books.batches.c.epoch == 2)
        with scene.ledger.database.engine.begin() as connection:
            connection.execute(books.batches.update().where(mine).values(**columns))

    return plant


def table(name: str, change: Callable[[Any], Any]) -> Callable[[Scene], None]:
    """Another content of a table, in the snapshot that the newest revision pins."""

    def plant(scene: Scene) -> None:
        row, warehouse = scene.ledger.revisions.get(), scene.warehouse
        rows = change(warehouse.read_snapshot(name, row.snapshots[name])).localCheckpoint()
        rows.writeTo(warehouse.table_name(name)).overwrite(F.lit(True))
        pins = {**row.snapshots, name: warehouse.load_metadata(name).main_snapshot()}
        texts = {key: str(value) for key, value in pins.items()}
        where = books.ledger.c.revision == row.revision
        with scene.ledger.database.engine.begin() as connection:
            connection.execute(books.ledger.update().where(where).values(snapshots=texts))

    return plant


def shifted(column: str, at: str) -> Callable[[Any], Any]:
    return lambda rows: rows.withColumn(column, F.expr(f"CASE WHEN {at} THEN {column} + 1 ELSE {column} END"))


EQUAL = "equal a full recomputation"
DAMAGE: dict[str, tuple[Callable[[Scene], None], str]] = {  # what is planted -> the check that must fail
    "triangles": (total("triangles", 0, 2, 5), f"triangle totals {EQUAL}"),
    "vertices": (total("vertices", 0, 0, -1), f"vertex totals {EQUAL}"),
    "edges in a hole": (total("edges", 0, 3, 1), f"edge totals {EQUAL}"),
    "wedges": (total("wedges", 0, 4, 2), f"wedge totals {EQUAL}"),
    "a truss": (total("truss", 3, 4, 1), f"truss sizes {EQUAL}"),
    "a truss that is not there": (total("truss", 60, 4, 1), f"maximum trussness values {EQUAL}"),
    "a motif": (total("motif", 0, 4, 1), f"motif totals {EQUAL}"),
    "a motif that nobody declared": (total("motif", 7, 4, 1), f"motif totals {EQUAL}"),
    "lost triangles": (lost_total("triangles"), f"triangle totals {EQUAL}"),
    "rows of a batch": (of_batch(rows=3), "batches have as many rows as are stored"),
    "quarantined rows": (of_batch(bad_rows=1), "batches have as many quarantined rows as are stored"),
    "a degree": (table("degrees", shifted("diff", "vertex = 3 AND epoch = 0")), f"degrees of vertices {EQUAL}"),
    "a lost name": (table("names", lambda rows: rows.where("id <> 3")), "every vertex has one name"),
    "a name twice": (
        table("names", lambda rows: rows.withColumn("name", F.expr("if(id = 3, '0', name)"))),
        "every vertex has one name",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_repaired(scene: Scene, damage: str) -> None:
    plant, check = DAMAGE[damage]
    right = scene.totals(), scene.batches()
    plant(scene)
    known = len(scene.ledger.checks.select())
    assert scene.command("audit") == 1
    assert check in {found.name for found in scene.ledger.checks.select()[known:] if not found.passed}, scene.seed
    assert scene.command("repair") == 0, scene.seed
    assert (scene.totals(), scene.batches()) == right, scene.seed
    home_helpers.put(scene.home, LAST, draw_batch(scene.rng, **BATCH))  # and later runs go on
    home_helpers.run(scene.ledger, [LAST])
    assert scene.failed() == set(), scene.seed


@pytest.mark.law(12)
def test_a_fault_in_the_reading_of_motifs_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit reads `[motifs]` by itself: a pattern that the stages count twice is a difference."""
    monkeypatch.setattr(Pattern, "canonical", lambda pattern: pattern.edges)  # nothing is refused as one pattern
    home, ledger = home_helpers.make(tmp_path / "home", '[motifs]\npath = ["a-b, b-c", "x-y, y-z"]\n')
    home_helpers.put(home, 1, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)])
    with pytest.raises(CheckFailed, match="critical"):
        home_helpers.run(ledger, [1])
    (run,) = ledger.runs.list_all()
    failed = {check.name for check in ledger.checks.select(run_id=run.run_id) if not check.passed}
    assert failed == {f"motif totals {EQUAL}", f"motif counts of vertices {EQUAL}"}
