"""The audit of a graph that no task holds, against that in one task: clean, and with each fault planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from altneu.algorithms.graph.kernels.triangles import count_triangles
from altneu.algorithms.graph.kernels.truss import peel
from altneu.algorithms.graph.motif_patterns import OWN_EDGES
from altneu.pipeline.checking import distributed_recount, epoch_recount
from altneu.pipeline.checking.epoch_recount import PER_ROW, RECOUNT, TOTAL
from altneu.pipeline.errors import UsageError
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.builders import make_upserts
from tests.kernels.references import arrays, clique
from tests.truss.test_parts_in_spark import packed

pytestmark = pytest.mark.usefixtures("tiny")

Stored = list[tuple[int, str, int, int | None, int | None, int]]  # epoch, what, a, b, k, n
EDGE, TRUSSNESS, DEGREE, TRIANGLES = PER_ROW[:4]


def maintained(history: dict[int, set[tuple[int, int]]]) -> Stored:
    rows: Stored = []
    for epoch, edges in history.items():
        a, b = arrays(sorted(edges))
        for x, y, k in zip(a.tolist(), b.tolist(), peel(a, b).tolist(), strict=True):
            rows += [(epoch, EDGE, x, y, None, 1), (epoch, TRUSSNESS, x, y, k, 1)]
        rows += [(epoch, DEGREE, v, None, None, n) for v, n in Counter([*a.tolist(), *b.tolist()]).items()]
        found = count_triangles(a, b)
        pairs = zip(found.vertices.tolist(), found.per_vertex.tolist(), strict=True)
        rows += [(epoch, TRIANGLES, v, None, None, n) for v, n in pairs if n]
    return rows


def both_ways(spark: SparkSession, history: dict[int, set[tuple[int, int]]], stored: Stored, size: int) -> list[Any]:
    """The rows of the audit in cells, and of that in one task; the kind of each comes last."""
    rows = [(epoch, PER_ROW.index(what), *rest) for epoch, what, *rest in stored]
    kept = spark.createDataFrame(rows, "epoch long, what byte, a long, b long, k long, n long")
    pairs = [(epoch, a, b, OWN_EDGES) for epoch, edges in history.items() for a, b in edges]
    graph = spark.createDataFrame(pairs, "epoch long, a long, b long, relation string")
    one = kept.groupBy("epoch").cogroup(graph.groupBy("epoch"))
    with distributed_recount.compare_distributed(kept, graph, sorted(history), size, lambda text: None) as cells:
        found = cells.collect()
    task = one.applyInArrow(partial(epoch_recount.compare_epoch, {}), RECOUNT).collect()
    return [[(*row[1:], row.kind) for row in rows] for rows in (found, task)]


@pytest.fixture(scope="module")
def history() -> dict[int, set[tuple[int, int]]]:
    found = packed(range(2), 2)
    return {epoch: found[epoch] | clique(6) for epoch in (0, 1)}


@pytest.mark.slow  # of the faults that are planted below, epoch 0 has none
@pytest.mark.parametrize("size", [60, 5, 10**6])
def test_a_clean_state_is_proved_and_counted(
    spark: SparkSession, history: dict[int, set[tuple[int, int]]], size: int
) -> None:
    cells, task = both_ways(spark, history, maintained(history), size)
    assert all(row[-1] == TOTAL for row in cells)
    assert sorted(cells, key=str) == sorted(task, key=str)


def changed(what: str, a: int, b: int | None, by: Callable[[Any], Any]) -> Callable[[Stored], Stored]:
    """One stored row of epoch 1 is something else, or (None) nothing, or (a list) several."""

    def change(stored: Stored) -> Stored:
        out: Stored = []
        for row in stored:
            if (row[0], row[1], row[2], row[3]) != (1, what, a, b):
                out.append(row)
                continue
            new = by(row)
            out += new if isinstance(new, list) else [] if new is None else [new]
        assert out != stored
        return out

    return change


def level(by: int) -> Callable[[Any], Any]:
    return lambda row: (*row[:4], row[4] + by, row[5])


def number(by: int) -> Callable[[Any], Any]:
    return lambda row: (*row[:5], row[5] + by)


def foreign(what: str, k: int | None) -> Callable[[Stored], Stored]:
    return lambda stored: [*stored, (1, what, 900, 901 if what in (EDGE, TRUSSNESS) else None, k, 1)]


def lower(stored: Stored) -> Stored:
    """The whole clique, one too low: each edge by itself is backed."""
    whole = clique(6)
    return [level(-1)(row) if row[:2] == (1, TRUSSNESS) and (row[2], row[3]) in whole else row for row in stored]


WRONG = "trussness_too_low", "trussness_too_high"
FAULTS: dict[str, tuple[Callable[[Stored], Stored], set[str]]] = {  # what each must show at epoch 1
    "an edge is lost": (changed(EDGE, 0, 1, lambda row: None), {EDGE, "edges"}),
    "an edge is stored twice": (changed(EDGE, 0, 1, number(1)), {EDGE, "edges"}),
    "an edge too many": (foreign(EDGE, None), {EDGE, "edges"}),
    "a degree is wrong": (changed(DEGREE, 0, None, number(1)), {DEGREE}),
    "a vertex too many": (foreign(DEGREE, None), {DEGREE, "vertices"}),
    "a count is wrong": (changed(TRIANGLES, 0, None, number(3)), {TRIANGLES, "triangles"}),
    "a count is lost": (changed(TRIANGLES, 0, None, lambda row: None), {TRIANGLES, "triangles"}),
    "one trussness is too high": (changed(TRUSSNESS, 0, 1, level(1)), {WRONG[1]}),
    "one trussness is too low": (changed(TRUSSNESS, 0, 1, level(-1)), {WRONG[0]}),
    "a clique is too low": (lower, {WRONG[0]}),
    "a trussness is lost": (changed(TRUSSNESS, 0, 1, lambda row: None), {TRUSSNESS}),
    "a trussness is stored twice": (changed(TRUSSNESS, 0, 1, number(1)), {TRUSSNESS}),
    "an edge has two": (changed(TRUSSNESS, 0, 1, lambda row: [row, level(1)(row)]), {TRUSSNESS}),
    "a trussness of no edge": (foreign(TRUSSNESS, 2), {TRUSSNESS}),
    "a trussness of one": (changed(TRUSSNESS, 0, 1, lambda row: (*row[:4], 1, 1)), {TRUSSNESS}),
}
FIRST = ["a clique is too low"]


def of_clean_epoch(rows: list[Any]) -> list[Any]:
    """What is said of epoch 0: the totals alone, where all is well."""
    found = sorted((row for row in rows if row[0] == 0), key=str)
    assert found and all(row[-1] == TOTAL for row in found)
    return found


@pytest.mark.parametrize(
    "fault", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_a_planted_fault_is_found_as_in_one_task(
    spark: SparkSession, history: dict[int, set[tuple[int, int]]], fault: str
) -> None:
    plant, expected = FAULTS[fault]
    cells, task = both_ways(spark, history, plant(maintained(history)), 60)
    assert of_clean_epoch(cells) == of_clean_epoch(task)
    cells, task = ([row for row in rows if row[-1] != TOTAL] for rows in (cells, task))
    kinds = [{row[1] for row in rows} for rows in (cells, task)]
    assert kinds[0] >= expected
    # which trussness would be right the proof does not know, so that edges of one are not among what it counts
    assert kinds[1] - kinds[0] <= {TRUSSNESS, "max_trussness", *WRONG}
    assert {row[0] for row in cells} == {1}
    shared = {(row[1], row[2], row[3]) for row in task} & {(row[1], row[2], row[3]) for row in cells}
    assert any(what in expected for what, *_ in shared) or expected <= {*WRONG, TRUSSNESS}


@pytest.mark.slow
def test_rows_are_few_and_counted(spark: SparkSession, history: dict[int, set[tuple[int, int]]]) -> None:
    """Where all are wrong the first are listed, with their number."""
    from altneu.expectations.gx_runner import ROWS

    stored = [number(1)(row) if row[:2] == (1, EDGE) else row for row in maintained(history)]
    cells, task = both_ways(spark, history, stored, 50)
    wrong = [[row for row in rows if row[1] == EDGE] for rows in (cells, task)]
    assert len(wrong[0]) == ROWS and {row[6] for row in wrong[0]} == {len(history[1])}
    assert sorted(wrong[0]) == sorted(wrong[1])
    assert np.all([row[4] == 2 and row[5] == 1 for row in wrong[0]])


@pytest.mark.slow
def test_motifs_beyond_a_task_are_an_error_that_names_the_setting(tiny: SparkSession, tmp_path: Path) -> None:
    """Nothing of the run is published; without motifs the same graph is audited in cells, and published."""
    motifs = '[motifs]\nwedge = "a-b, b-c"\n'
    home, ledger = home_helpers.make(tmp_path / "home", motifs)
    home_helpers.put(home, 0, make_upserts(*clique(4)))
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [0]))
    assert run_id is not None
    for stage in ("ingest", "edges", "triangles", "truss"):
        runner.execute_stage(ledger, run_id, stage)
    (home.path / "altneu.toml").write_text(motifs + "[truss]\nlimit_edges = 2\n")
    with pytest.raises(UsageError, match=r"6 edge intervals are more than the 2 .*\[truss\] limit_edges") as error:
        runner.execute_stage(Ledger(type(home).open(home.path)), run_id, "audit")
    assert error.value.next is not None and "[motifs]" in error.value.next
    assert ledger.revisions.get().frontier is None
