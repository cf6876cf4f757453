"""The suites of the package `expectations`, run over the tables that a run has written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from altneu.expectations import relations
from altneu.expectations.gx_runner import SMALL
from altneu.expectations.model import Check
from altneu.expectations.volumes import WIDTH, WINDOW, season_length

from ... import landing
from ...state.records import Batch, RunKind
from ...state.totals import Measure, sum_totals, totals_at
from ..run_context import RunContext
from .held_rows import HeldRows

LEARNED = WINDOW + 1  # epochs before one that bounds are learned from: steps need the epoch before the first
TOTALS: tuple[Measure, ...] = ("edges", "vertices", "triangles", "max_trussness")


def run_suites(run: RunContext, held: HeldRows | None = None, *, whole: bool = True) -> list[Check]:
    """Run the Great Expectations suites over what the run has written.

    Args:
        run: The run.
        held: Its rows, where they are in memory.
        whole: Whether the state at the frontier is checked as well, at a cost that follows the size of the graph.

    Returns:
        The results of the checks.
    """
    from altneu.expectations.suite import check_tables

    epoch = run.frontier
    read_after: Callable[[str], Any] = run.read_after if held is None else held.rows.__getitem__
    read_delta: Callable[[str], Any] = run.read_delta if held is None else held.delta.__getitem__
    recomputed = run.kind is not RunKind.RUN  # all edges are new then, and they follow from all landed rows
    delta = read_after("upserts") if recomputed else read_delta("upserts")
    quote = relations.quote_identifier(delta)
    data = ", ".join(["src", "dst", *map(quote, run.home.config.values), "op", "seq", "file", "line", "epoch"])
    touched = "true" if recomputed or not run.epochs else f"epoch IN ({', '.join(map(str, run.epochs))})"

    def rows_as_of(table: str, name: str, columns: str, condition: str = "true") -> Any:
        """Sum the diffs of equal rows, partitioned by the first two columns so that a later join needs no exchange."""
        keys = ", ".join(columns.split(", ")[:2])
        return relations.select_rows(
            f"""
            SELECT {columns}, CAST(sum(diff) AS bigint) AS {name}
            FROM (
                SELECT /*+ REPARTITION({keys}) */ {columns}, diff FROM {{rows}} WHERE epoch <= {epoch} AND {condition}
            )
            GROUP BY {columns} HAVING sum(diff) <> 0""",
            rows=read_after(table),
        )

    def added_rows(rows: Any) -> Any:
        return relations.select_rows("SELECT * FROM {rows} WHERE diff > 0", rows=rows)

    run_epochs = set(run.epochs)
    published = {e: b for e, b in run.published_batches.items() if e not in run_epochs}
    before = {} if recomputed else _select_history(published, [*run.epochs, epoch])
    points = totals_at(sum_totals(run.total_diffs(min([*before, epoch])), epoch), [*before, epoch])
    now = points[epoch]
    batches = [*run.ledger.outputs.staged_batches(run.run_id), *(published.values() if recomputed else ())]
    batches_of_run = relations.select_rows(f"SELECT * FROM {{rows}} WHERE {touched}", rows=read_after("upserts"))
    alone = held is None and sum(batch.rows for batch in batches) > SMALL and _are_unique(batches_of_run)
    copies = relations.select_rows(
        f"SELECT {data}, diff AS copies FROM {{rows}}"
        if alone
        else f"SELECT {data}, CAST(sum(diff) AS bigint) AS copies FROM {{rows}} GROUP BY {data}",
        rows=batches_of_run,
    )
    timed = not recomputed and run.home.schedule.seconds is not None
    landed = landing.list_batches(run.home, {batch.epoch for batch in batches}) if timed else {}
    times = {
        b.epoch: {"landed_at": landed[b.epoch].newest_change(), "over_at": run.home.schedule.end_of(b.epoch)}
        for b in batches
        if b.epoch in landed and landed[b.epoch].files
    }
    frames: dict[str, Any] = {
        "upserts": added_rows(delta),
        "quarantine": added_rows(read_delta("quarantine")),
        "upserts_net": copies,
        "edge_delta": read_delta("edges"),
        **_motif_totals(run, read_after, epoch, now["motifs"]),
        "totals": [{"epoch": epoch, **{m: now[m] for m in TOTALS}, "wedges": now["wedges"]}],
        "volumes": [
            {"epoch": b.epoch, "rows": b.rows, "bad_rows": b.bad_rows} | times.get(b.epoch, {}) for b in batches
        ],
    }
    if whole:
        frames["edges_at"] = rows_as_of("edges", "copies", "a, b", f"until > {epoch}")
        frames["degrees_at"] = rows_as_of("degrees", "degree", "vertex")
        frames["triangle_counts_at"] = rows_as_of("triangle_counts", "triangles", "vertex")
        frames["trussness_at"] = rows_as_of("trussness", "copies", "a, b, k")
    history = [
        {"epoch": e, "rows": b.rows, "bad_rows": b.bad_rows, **{m: points[e][m] for m in ("edges", "triangles")}}
        for e, b in before.items()
    ]
    context = {
        "epoch": epoch,
        "label": run.home.schedule.format_label(epoch),
        "value_types": run.home.config.values,
        "labels": {batch.epoch: run.home.schedule.format_label(batch.epoch) for batch in batches},
        "history": history,
        "seasons": season_length(run.home.schedule.seconds),
        "alone": alone,
        "width": WIDTH[run.home.config.checks.sensitivity],
        # an upper bound: the rows of every frame are these rows, or sums of them
        "rows": 2 * run.count_read_rows() + sum(b.bad_rows for b in batches),
    }
    run.say("running the suites")
    return check_tables(frames, context)


def _select_history(published: Mapping[int, Batch], epochs: Iterable[int]) -> dict[int, Batch]:
    """Select the published batches from which the suites learn what is usual at some epochs: the last before each."""
    known = sorted(published)
    ends = {bisect_left(known, epoch) for epoch in epochs}
    return {epoch: published[epoch] for end in ends for epoch in known[max(0, end - LEARNED) : end]}


def _are_unique(upserts: DataFrame) -> bool:
    """Tell whether no two upserts have the same epoch, key and seq; EXECUTES one aggregation.

    This is the case where rows are numbered and nothing was replaced. Such upserts have neither copies nor rivals, and
    these need not be searched for by sorting whole rows.
    """
    rows = upserts.groupBy("epoch", "src", "dst", "seq").agg(F.count("*").alias("rows"))
    return rows.where("rows > 1").isEmpty()


def _motif_totals(
    run: RunContext, read_after: Callable[[str], Any], epoch: int, totals: Mapping[int, int]
) -> dict[str, list[dict[str, Any]]]:
    """Return one row per motif, with its total and the sum of the vertices' counts."""
    motifs = run.home.config.motif_patterns()
    if not motifs:
        return {}
    query = f"SELECT motif, CAST(sum(diff) AS bigint) AS n FROM {{rows}} WHERE epoch <= {epoch} GROUP BY motif"
    sums = dict(relations.fetch_tuples(relations.select_rows(query, rows=read_after("motif_counts"))))
    return {
        "motifs": [
            {
                "epoch": epoch,
                "motif": name,
                "occurrences": totals.get(place, 0),
                "vertices_in_one": len(patterns[0].vertices),
                "times_vertices": totals.get(place, 0) * len(patterns[0].vertices),
                "counted": sums.get(name, 0),
            }
            for place, (name, patterns) in enumerate(motifs.items())
        ]
    }
