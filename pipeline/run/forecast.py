"""What a run would do and cost, before it does: from the landing's listing and the SQL database alone, without Spark.

Rows are counted in small landings, malformed ones among them; of large ones they come from the size of the files, by
the bytes per row of what was published before. Seconds come from a straight line through the rows and seconds of the
newest published runs, stage by stage. Both are estimates and say so.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from algorithms import patterns
from algorithms.plans import BROADCAST_ROWS, Choice, MotifChoice

from .. import landing
from ..home.directory import Home
from ..state.facts import EdgesFacts, IngestFacts, TrianglesFacts
from ..state.ledger import Ledger
from ..state.records import RunKind
from .planning import Plan

COUNTED = 2**23  # bytes of landed files whose rows are counted; of more they are estimated
RUNS = 50  # the newest published runs, from which the seconds are learned


def forecast(home: Home, ledger: Ledger, plan: Plan, revisions: int = 1) -> dict[str, Any]:
    """A JSON-ready document: which epochs, why, what is restated, which plans, rows and seconds.

    `restated`: published epochs that are not run again but whose results may change, because a batch before them (and
    within the window, if there is one) does. `seconds` and `stages` are null before the first published run.
    """
    label = home.schedule.label
    run, frontier = set(plan.run), plan.parent.frontier
    chosen = [epoch for epoch in plan.epochs if epoch.epoch in run]
    late = [epoch.epoch for epoch in chosen if frontier is not None and epoch.epoch <= frontier]
    published = ledger.batches(plan.parent.revision)
    restated = _restated(home, sorted(run), [epoch for epoch in published if epoch not in run])
    if plan.kind is not RunKind.RUN:
        restated = [epoch for epoch in published if epoch not in run]
    known = [(e.bytes, e.rows) for e in plan.epochs if e.state == "published" and e.rows]
    per_row = sum(b for b, _ in known) / sum(n for _, n in known) if known else landing.BYTES_PER_ROW
    size = sum(epoch.bytes for epoch in chosen)
    rows = _counted(home, run) if size <= COUNTED else round(size / per_row)
    if plan.kind is RunKind.REBUILD:
        rows = sum(batch.rows for batch in published.values())
    seconds = stage_seconds(ledger, rows)
    new_frontier = max([*run, *([] if frontier is None else [frontier])], default=None)
    starts = [*run, *([frontier + 1] if frontier is not None and run and max(run) > frontier else [])]
    if plan.kind is not RunKind.RUN:
        starts = list(published)
    counts: dict[str, int] = {}
    for entry in plan.epochs:
        counts[entry.state] = counts.get(entry.state, 0) + 1
    return {
        "kind": plan.kind,
        "parent": plan.parent.revision,
        "revision": plan.parent.revision + 1 if run or plan.kind is not RunKind.RUN else None,
        "revisions": revisions,
        "frontier": new_frontier,
        "counts": counts,
        "epochs": [
            {"epoch": e.epoch, "label": e.label, "state": e.state, "files": e.files, "bytes": e.bytes, "rows": e.rows}
            for e in chosen
        ],
        "incomplete": [{"label": e.label, "why": e.why} for e in plan.epochs if e.state == "incomplete"],
        "late": late,
        "restated": restated,
        "rows": rows,
        "plans": {}
        if not chosen and plan.kind is RunKind.RUN
        else {
            "edges": "broadcast the touched pairs" if rows <= BROADCAST_ROWS else "shuffle by pair",
            "triangles": _triangles(home, ledger, plan, rows),
            **_motifs(home, ledger, plan, rows),
            "truss": f"replay {label(min(starts))} … {label(new_frontier)} in one task (in rounds beyond "
            f"{home.config.truss.limit_edges:,} edges)"
            if starts and new_frontier is not None
            else "nothing to replay",
        },
        "seconds": None if seconds is None else round(sum(seconds.values()), 1),
        "stages": seconds,
    }


def _counted(home: Home, epochs: set[int]) -> int:
    landed = landing.listing(home)
    return sum(landing.rows(landed[epoch]) for epoch in epochs if epoch in landed)


def _triangles(home: Home, ledger: Ledger, plan: Plan, rows: int) -> str:
    """The plan that counts triangles, if every landed row changes an edge and proposes as many as it did before."""
    index = _rows(ledger, "edges") if plan.kind is RunKind.RUN else 0
    changed: dict[str, int] = {}
    proposed: dict[str, int] = {}
    for row in ledger.history(RUNS):
        if isinstance(row.facts, EdgesFacts) and row.facts.rows:
            changed[row.run_id] = row.facts.rows
        if isinstance(row.facts, TrianglesFacts) and row.facts.proposals:
            proposed[row.run_id] = row.facts.proposals
    known = [(proposed[run], changed[run]) for run in proposed if run in changed]
    proposals = round(rows * sum(p for p, _ in known) / sum(n for _, n in known)) if known else None
    return Choice(home.config.triangles.plan, index, rows, proposals).words()


def _rows(ledger: Ledger, table: str) -> int:
    """How many rows a table has that is published; 0 before the first time."""
    sizes = ledger.sizes()
    return sizes[table].rows if table in sizes else 0


def _motifs(home: Home, ledger: Ledger, plan: Plan, rows: int) -> dict[str, str]:
    """The plan that counts motifs, if there are some and every landed row changes each of their relations."""
    wanted = home.config.patterns()
    if not wanted:
        return {}
    made_of = {"edges": patterns.PLAIN in patterns.relations(wanted), "motif_edges": bool(patterns.kept(wanted))}
    tables = [table for table, some in made_of.items() if some and plan.kind is RunKind.RUN]
    stored = sum(_rows(ledger, table) for table in tables)
    changed = rows * len(patterns.relations(wanted))
    config = home.config
    choice = MotifChoice(config.triangles.plan, stored, changed, patterns.rules(wanted), config.triangles.limit_edges)
    return {"motifs": choice.words()}


def _restated(home: Home, run: list[int], others: list[int]) -> list[int]:
    """Of other epochs those at which an edge of a batch in `run` may live."""
    live_for = home.config.edges.live_for
    out = []
    for epoch in others:
        place = int(np.searchsorted(run, epoch, side="right"))
        if place and (live_for is None or epoch < run[place - 1] + live_for):
            out.append(epoch)
    return out


def stage_seconds(ledger: Ledger, rows: int) -> dict[str, float] | None:
    """Stage → expected seconds for so many landed rows; None when nothing was published yet."""
    found = ledger.history(RUNS)
    landed = {row.run_id: row.facts.rows for row in found if isinstance(row.facts, IngestFacts)}
    points: dict[str, list[tuple[int, float]]] = {}
    for row in found:
        if row.run_id in landed and row.seconds is not None:
            points.setdefault(row.stage, []).append((landed[row.run_id], row.seconds))
    if not points:
        return None
    return {stage: round(_line(pairs, rows), 2) for stage, pairs in points.items()}


def _line(points: list[tuple[int, float]], rows: int) -> float:
    x, y = np.array(points, float).T
    slope = max(float(np.polyfit(x, y, 1)[0]), 0.0) if np.ptp(x) > 0 else 0.0
    return max(float(median(y - slope * x)), 0.0) + slope * rows
