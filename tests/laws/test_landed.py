"""The edges that landed rows leave, as the proof derives them a second time, against a slow reading of the rules; and
what is said where stored rows are other ones, of the pairs that landed again and of the part that is recounted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from altneu.algorithms.fingerprint import Fingerprint
from altneu.pipeline.checking.duckdb_audit import Conditions
from altneu.pipeline.checking.edge_rederivation import last_rows, steps_of_pairs
from altneu.pipeline.run.choices.plan_choice import Strategy
from altneu.pipeline.run.stages import proof_verification
from altneu.pipeline.run.stages.held_rows import HeldRows
from altneu.pipeline.run.stages.suites import _are_unique
from altneu.pipeline.storage import local_frame
from altneu.pipeline.storage.table_schemas import table_columns
from tests import home_helpers, seeds

Stored = tuple[int, int, bool, int, int, bool, int]  # a, b, forth, epoch, seq, on, diff


def drawn(rng: random.Random) -> list[Stored]:
    """Rows of few pairs, with ties, copies, and rows that were taken back and came again."""
    rows: list[Stored] = []
    for _ in range(rng.randrange(30)):
        a = rng.randrange(3)
        row = (a, a + 1 + rng.randrange(2), rng.random() < 0.5, rng.randrange(4), rng.randrange(3), rng.random() < 0.6)
        rows += [(*row, 1)] + [(*row, -1)] * (rng.random() < 0.3) + [(*row, 1)] * (rng.random() < 0.2)
    rng.shuffle(rows)
    return rows


def slowly(rows: list[Stored], live_for: int | None) -> dict[tuple[int, int, int], int]:
    """(a, b, epoch) → diff of the edges, epoch by epoch."""
    there: Counter[tuple[int, int, bool, int, int, bool]] = Counter()
    for *row, diff in rows:
        there[tuple(row)] += diff  # type: ignore[index]
    present = [row for row, copies in there.items() if copies > 0]
    found = {}
    before: set[tuple[int, int]] = set()
    for epoch in range(12):
        edges = set()
        for a, b, forth, *_ in present:
            key = [(e, seq, on) for x, y, f, e, seq, on in present if (x, y, f) == (a, b, forth) and e <= epoch]
            if key:
                at, _, on = max(key)
                if on and (live_for is None or epoch < at + live_for):
                    edges.add((a, b))
        found |= {(*edge, epoch): 1 for edge in edges - before} | {(*edge, epoch): -1 for edge in before - edges}
        before = edges
    return found


@pytest.mark.parametrize("live_for", [None, 1, 3])
@pytest.mark.parametrize("seed", seeds.several(range(40)))
def test_edges_follow_from_the_rows(seed: int, live_for: int | None) -> None:
    rows = drawn(random.Random(seed))
    kinds = (np.int64, np.int64, np.bool_, np.int64, np.int64, np.bool_, np.int64)
    columns = [np.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    a, b, epoch, diff = steps_of_pairs(*last_rows(*columns), live_for)
    found = dict(zip(zip(a.tolist(), b.tolist(), epoch.tolist(), strict=True), diff.tolist(), strict=True))
    assert found == slowly(rows, live_for)


@pytest.mark.parametrize(
    ("rows", "alone"),
    {
        "none": ([], True),
        "numbered": ([(0, 1, 2, 1, 1), (0, 1, 2, 2, 1), (1, 1, 2, 1, 1)], True),
        "another direction": ([(0, 1, 2, 1, 1), (0, 2, 1, 1, 1)], True),
        "rivals": ([(0, 1, 2, 1, 1), (0, 1, 2, 1, 1)], False),
        "taken back": ([(0, 1, 2, 1, 1), (0, 1, 2, 1, -1)], False),
        "copies in one row": ([(0, 1, 2, 1, 2)], True),
    }.values(),
)
def test_whether_rows_are_alone(tiny: SparkSession, rows: list[tuple[int, ...]], alone: bool) -> None:
    frame = tiny.createDataFrame(rows, "epoch bigint, src bigint, dst bigint, seq bigint, diff bigint")
    assert _are_unique(frame) is alone


FRONTIER, WINDOW, OPEN = 4, 5, 2**63 - 1
PART = (1, 2)  # the vertices that are recounted
Stored = dict[str, list[tuple[Any, ...]]]
# a triangle that landed at epoch 1, and an edge that landed at 4, the run's: all expire five epochs later
LANDED = {1: [(1, 2), (2, 3), (1, 3)], 4: [(7, 8)]}


def stored_rows() -> Stored:
    """All tables as they should be."""
    edges = [(a, b, epoch) for epoch, pairs in LANDED.items() for a, b in pairs]
    return {
        "upserts": [(a, b, "upsert", 0, "f", 1, e, 1 + (e == FRONTIER), 1) for a, b, e in edges],
        "edges": [(a, b, e + WINDOW, e, 1 + (e == FRONTIER), 1) for a, b, e in edges],
        "degrees": [(v, 1, 1, 2) for v in (1, 2, 3)] + [(v, FRONTIER, 2, 1) for v in (7, 8)],
        "triangle_counts": [(v, 1, 1, 1) for v in (1, 2, 3)],
        "trussness": [(1, 2, 3, 1, 1, 1), (1, 3, 3, 1, 1, 1), (2, 3, 3, 1, 1, 1), (7, 8, 2, FRONTIER, 2, 1)],
    }


def print_rows(*rows: tuple[int, ...]) -> Fingerprint:
    """`rows`: the data, and how often."""
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    return Fingerprint.from_rows(columns[:-1], columns[-1])


RECOUNTED = {  # of vertices 1 and 2, and of the edges that begin there
    "edges": print_rows((1, 2, 1), (2, 3, 1), (1, 3, 1)),
    "degrees": print_rows((1, 2), (2, 2)),
    "triangle_counts": print_rows((1, 1), (2, 1)),
    "trussness": print_rows((1, 2, 3, 1), (2, 3, 3, 1), (1, 3, 3, 1)),
}


def replace_row(table: str, old: tuple[Any, ...], new: tuple[Any, ...]) -> Callable[[Stored], None]:
    def spoil(stored: Stored) -> None:
        at = stored[table].index(old)
        stored[table][at] = new

    return spoil


def double_degree_of(vertex: int) -> Callable[[Stored], None]:
    row = next(row for row in stored_rows()["degrees"] if row[0] == vertex)
    return replace_row("degrees", row, (*row[:-1], 2 * row[-1]))


PAIRS = "edges of the pairs that landed"
NEW_EDGE = (7, 8, FRONTIER + WINDOW, FRONTIER, 2, 1)
OLD_EDGE = (1, 3, 1 + WINDOW, 1, 1, 1)
# what is stored instead → what is said: epoch, what, of what
SPOILT: dict[str, tuple[Callable[[Stored], None], list[tuple[int, str, str]]]] = {
    "nothing": (lambda stored: None, []),
    "a new edge is lost": (lambda stored: stored["edges"].remove(NEW_EDGE), [(4, "landed", PAIRS)]),
    "a new edge is another one": (
        replace_row("edges", NEW_EDGE, (7, 9, *NEW_EDGE[2:])), [(4, "landed", PAIRS)],
    ),
    "a new edge ends early": (
        replace_row("edges", NEW_EDGE, (7, 8, FRONTIER + 2, *NEW_EDGE[3:])),
        [(4, "landed", f"{PAIRS}, at epoch {FRONTIER + 2}")],
    ),
    "a new edge never ends": (
        replace_row("edges", NEW_EDGE, (7, 8, OPEN, *NEW_EDGE[3:])), [(4, "landed", f"{PAIRS}, at epoch 9")],
    ),
    "a new edge has no end": (
        replace_row("edges", NEW_EDGE, (7, 8, None, *NEW_EDGE[3:])), [(4, "landed", PAIRS)],
    ),
    "a new edge ends before the first epoch": (
        replace_row("edges", NEW_EDGE, (7, 8, 0, *NEW_EDGE[3:])), [(4, "landed", PAIRS)],
    ),
    "an old edge of the part is lost": (
        lambda stored: stored["edges"].remove(OLD_EDGE),
        [(1, "landed", PAIRS), (4, "landed", PAIRS), (4, "part", "the rows of edges")],
    ),
    "a degree of the part": (double_degree_of(2), [(4, "part", "the rows of degrees")]),
    "a count of the part": (
        replace_row("triangle_counts", (1, 1, 1, 1), (1, 1, 1, 2)), [(4, "part", "the rows of triangle_counts")],
    ),
    "a trussness of the part": (
        replace_row("trussness", (1, 3, 3, 1, 1, 1), (1, 3, 4, 1, 1, 1)), [(4, "part", "the rows of trussness")],
    ),
    "a degree of another part": (double_degree_of(3), []),  # its turn comes
}  # fmt: skip


@pytest.mark.law(1, 10)
@pytest.mark.parametrize("name", SPOILT)
def test_rows_of_landed_pairs_and_of_the_recounted_part_are_compared(
    tiny: SparkSession, tmp_path: Path, name: str
) -> None:
    spoil, wanted = SPOILT[name]
    home, _ = home_helpers.make(tmp_path / "home", f"[edges]\nlive_for = {WINDOW}\n")
    stored = stored_rows()
    spoil(stored)

    def read(table: str) -> Any:
        return local_frame.local_frame(tiny, table_columns(home, table), stored[table])

    run = SimpleNamespace(
        home=home,
        frontier=FRONTIER,
        parent=SimpleNamespace(since=None),
        appends_to=lambda table: True,
        choose=lambda kind: SimpleNamespace(strategy=Strategy.BROADCAST),
        read_after=read,
        read_delta=lambda table: read(table).where("revision = 2"),
    )
    proof = SimpleNamespace(between=PART, part=RECOUNTED)
    tables = {table: read(table).toArrow() for table in stored}
    delta = {table: rows.filter(pc.equal(rows["revision"], 2)) for table, rows in tables.items()}
    for held in (None, HeldRows(tables, delta, Conditions(home))):
        looked: Any = run, 1, [1, FRONTIER]
        found = proof_verification._compare_landed(*looked, whole=False, part=proof, held=held)  # type: ignore[arg-type]
        assert [(row["epoch"], row["what"], row["a"]) for row in found] == wanted
