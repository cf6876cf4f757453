"""Reports: one HTML page per epoch and an index over all, made from the SQL database alone. No Spark, no network.

`document` gives the facts of one epoch as JSON, `write` the pages. Both are functions of the database (and, for the
links, of which pages were written before): the same state gives the same bytes. What a stage recorded beyond its
numbers (`quarantine_sample`, `top_vertices`, `top_edges`, `entered_core`, …) is shown where it is there.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from .config import Home
from .ledger import Ledger
from .templates import epoch_page, index_page
from .templates.words import STATES, listed, number, plural

WINDOW = 30  # epochs of history on an epoch's page
GRID = 3_000  # the newest epochs on the index; older ones by name
MEASURES = ("vertices", "edges", "triangles", "max_trussness")
FULL = "incremental_versus_full"
SEVERITIES = ("critical", "warning", "info")

Document = dict[str, Any]


class State:
    """Everything that the pages need, read once; answers by epoch."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger = home, ledger
        self.label = home.schedule.label
        self.revisions = {row.revision: row for row in ledger.revisions()}
        self.newest = max(self.revisions.values(), key=lambda row: row.revision, default=None)
        self.frontier = self.newest.frontier if self.newest else None
        self.batches = ledger.batches()
        self.runs = {row.run_id: row for row in ledger.runs()}
        self._stages: dict[str, list[dict[str, Any]]] = {}
        self._read_totals()
        self._read_checks()
        self.attempts: dict[int, list[Any]] = defaultdict(list)  # epoch -> its runs, oldest first
        for run in self.runs.values():
            if run.state != "unchanged":
                for epoch in run.epochs:
                    self.attempts[epoch].append(run)

    def _read_totals(self) -> None:
        """The running sums at every changed epoch, and per revision what it did to them."""
        visible = [diff for diff in self.ledger.total_diffs() if self.frontier is not None and diff[2] <= self.frontier]
        sums: dict[str, int] = {"vertices": 0, "edges": 0, "triangles": 0}
        sizes: dict[int, int] = {}
        motifs: dict[int, int] = {}
        by_revision: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.changed: list[int] = []
        self.points: list[dict[str, Any]] = []
        self.effects: dict[int, list[tuple[int, dict[str, int]]]] = defaultdict(list)
        for measure, k, epoch, revision, diff in sorted(visible, key=lambda diff: diff[2]):
            if not self.changed or self.changed[-1] != epoch:
                self.changed.append(epoch)
                self.points.append({})
            if measure == "truss":
                sizes[k] = sizes.get(k, 0) + diff
            elif measure == "motif":
                motifs[k] = motifs.get(k, 0) + diff
            elif measure in sums:
                sums[measure] += diff
                by_revision[revision][measure] += diff
            effects = self.effects[revision]
            if not effects or effects[-1][0] != epoch:
                effects.append((epoch, {}))
            effects[-1] = (epoch, dict(by_revision[revision]))
            kept = {k: n for k, n in sorted(sizes.items()) if n}
            core = max(kept, default=0)
            self.points[-1] = {**sums, "max_trussness": core, "trusses": kept, "motifs": dict(motifs)}
        marks = [(epoch, revision) for revision, found in self.effects.items() for epoch, _ in found]
        marks += [(batch.epoch, batch.revision) for batch in self.batches.values()]
        self._marks, newest = [], 0
        for epoch, revision in sorted(marks):
            newest = max(newest, revision)
            self._marks.append((epoch, newest))

    def _read_checks(self) -> None:
        """Per epoch and suite the newest results about the published state; per run those of runs that failed."""
        self.checks: dict[int, dict[str, list[Any]]] = defaultdict(dict)
        self.run_checks: dict[str, list[Any]] = defaultdict(list)
        for row in self.ledger.checks():
            if row.run_id is not None:
                self.run_checks[row.run_id].append(row)
                if row.run_id not in self.runs or self.runs[row.run_id].state != "published":
                    continue
            group = self.checks[row.epoch].get(row.suite)
            if group and group[0].at == row.at:
                group.append(row)
            else:
                self.checks[row.epoch][row.suite] = [row]

    @cached_property
    def axis(self) -> list[int]:
        """The epochs to show, in order: every one from the first to the last when that is feasible."""
        known = {*self.batches, *self.attempts} | ({self.frontier} if self.frontier is not None else set())
        if not known:
            return []
        first, last = min(known), max(known)
        if last - first < max(4 * len(known), 400):
            return list(range(first, last + 1))
        return sorted(known | {epoch for epoch in self.changed if epoch >= first})

    def told(self, epoch: int) -> str:
        """The epoch in a sentence."""
        return self.label(epoch) if self.home.schedule.seconds else f"epoch {epoch}"

    def at(self, epoch: int) -> dict[str, Any]:
        """The graph's totals at an epoch."""
        place = bisect_right(self.changed, epoch)
        return self.points[place - 1] if place else {**dict.fromkeys(MEASURES, 0), "trusses": {}, "motifs": {}}

    def revision_of(self, epoch: int) -> int:
        """The newest revision that contributes to the state at an epoch (0: none)."""
        place = bisect_right(self._marks, (epoch, 1 << 62))
        return self._marks[place - 1][1] if place else 0

    def stages(self, run_id: str) -> list[dict[str, Any]]:
        """The stages of a run, except the one that writes the report."""
        if run_id not in self._stages:
            rows = [row._asdict() for row in self.ledger.stages(run_id) if row.stage != "report"]
            self._stages[run_id] = sorted(rows, key=lambda row: row["started_at"])
        return self._stages[run_id]

    def fact(self, run_id: str, key: str) -> Any:
        """A fact that any stage of the run recorded, or None."""
        return next((row["facts"][key] for row in self.stages(run_id) if row["facts"].get(key)), None)

    def current(self, epoch: int) -> list[Any]:
        """The newest check results at an epoch that still speak of what is published."""
        since = self.revision_of(epoch)
        return [row for group in self.checks.get(epoch, {}).values() for row in group if row.revision >= since]

    def audit(self, epoch: int) -> tuple[list[Any], bool]:
        """The newest comparison with a full recomputation, and whether it speaks of what is published now."""
        rows = self.checks.get(epoch, {}).get(FULL, [])
        return rows, bool(rows) and rows[0].revision >= self.revision_of(epoch)

    def last_run(self, epoch: int) -> Any | None:
        return self.attempts[epoch][-1] if epoch in self.attempts else None

    def judge(self, epoch: int) -> str:
        """The state of an epoch, one of `STATES`."""
        run = self.last_run(epoch)
        if run is not None and run.state == "failed":
            return "failed"
        if epoch not in self.batches:
            return "running" if run is not None and run.state == "running" else "empty"
        failed = {row.severity for row in self.current(epoch) if not row.passed}
        rows, fresh = self.audit(epoch)
        if "critical" in failed or (fresh and not all(row.passed for row in rows)):
            return "wrong"
        if "warning" in failed:
            return "warning"
        return "good" if fresh else "unaudited"


def document(home: Home, ledger: Ledger, epoch: int) -> Document:
    """What is known of one epoch: the JSON behind its page."""
    return _document(State(home, ledger), epoch)


def write(home: Home, ledger: Ledger, epochs: list[int], data_docs: bool = False) -> list[Path]:
    """Write the pages of some epochs and the index; return their paths, the index first, the newest epoch last.

    `data_docs`: also Great Expectations' own pages of their checks; an epoch's page links those that are there.
    """
    state = State(home, ledger)
    home.reports.mkdir(parents=True, exist_ok=True)
    if data_docs:
        for epoch in epochs:
            _data_docs(state, epoch)
    names = {epoch: f"epoch={state.label(epoch)}.html" for epoch in sorted(set(epochs))}
    pages = {path.name for path in home.reports.glob("epoch=*.html")} | set(names.values())
    for epoch, name in names.items():
        docs = sorted((home.reports / _docs(state, epoch)).glob("*.html"))
        links = [path.relative_to(home.reports).as_posix() for path in docs]
        _put(home.reports / name, epoch_page(_document(state, epoch), pages, links))
    index = home.reports / "index.html"
    _put(index, index_page(_overview(state), pages))
    return [index, *(home.reports / name for name in names.values())]


def _docs(state: State, epoch: int) -> str:
    return f"data-docs/epoch={state.label(epoch)}"


def _data_docs(state: State, epoch: int) -> None:
    from expectations.data_docs import pages

    rows = [row for group in state.checks.get(epoch, {}).values() for row in group]
    if not rows:
        return
    folder = state.home.reports / _docs(state, epoch)
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(rows, key=lambda row: row.at)
    checks = [{name: getattr(row, name) for name in ("suite", "name", "passed", "observed", "rows")} for row in rows]
    for suite, text in pages(checks, state.label(epoch), newest.run_id or "an audit", newest.at).items():
        _put(folder / f"{suite}.html", text)


def _put(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _document(state: State, epoch: int) -> Document:
    batch, run = state.batches.get(epoch), state.last_run(epoch)
    published = state.revisions[batch.revision] if batch else None
    place = bisect_right(state.axis, epoch)
    before = state.axis[max(0, place - 1 - (epoch in state.axis)) : place - (epoch in state.axis)]
    after = state.axis[place : place + 1]
    rows, fresh = state.audit(epoch)
    shown = run if run is not None and (run.state == "failed" or published is None) else None
    run_id = shown.run_id if shown is not None else published.run_id if published else None
    found: Document = {
        "epoch": epoch,
        "label": state.label(epoch),
        "state": state.judge(epoch),
        "days": state.home.schedule.seconds == 86_400,
        "previous": state.label(before[0]) if before else None,
        "next": state.label(after[0]) if after else None,
        "before": state.told(before[0]) if before else None,
        "revision": batch.revision if batch else None,
        "published_at": published.published_at if published else None,
        "frontier": None if state.frontier is None else state.label(state.frontier),
        "final": state.frontier is not None and epoch <= state.frontier,
        "landed": _landed(state, epoch),
        "graph": _graph(state, epoch),
        "checks": [_check(state, row) for name, g in state.checks.get(epoch, {}).items() if name != FULL for row in g],
        "audit": {
            "fresh": fresh,
            "revision": rows[0].revision if rows else None,
            "at": rows[0].at if rows else None,
            "checks": [_check(state, row) for row in rows],
        },
        "failed_run": _failed_run(state, shown) if shown is not None and shown.state == "failed" else None,
        "run": _run(state, run_id) if run_id else None,
        "runs": [_attempt(state, one) for one in state.attempts.get(epoch, [])][-WINDOW:],
        "trend": _trend(state, _window(state, epoch)),
    }
    found["checks"].sort(key=lambda c: (c["passed"], SEVERITIES.index(c["severity"]), c["suite"], c["name"]))
    from .templates.verdict import verdict

    return {**found, "verdict": verdict(found)}


def _window(state: State, epoch: int) -> list[int]:
    place = bisect_right(state.axis, epoch)
    return state.axis[max(0, place - WINDOW) : place]


def _trend(state: State, epochs: list[int]) -> list[Document]:
    """Rows and totals over epochs; those after the frontier are left out."""
    found = []
    for epoch in epochs:
        if state.frontier is None or epoch > state.frontier:
            continue
        batch, point = state.batches.get(epoch), state.at(epoch)
        landed = {"rows": batch.rows if batch else 0, "bad_rows": batch.bad_rows if batch else 0}
        found.append({"epoch": epoch, "label": state.label(epoch), **landed, **point})
    return found


def _landed(state: State, epoch: int) -> Document | None:
    batch = state.batches.get(epoch)
    if batch is None:
        return None
    past = [state.batches[e] for e in sorted(state.batches) if e < epoch][-WINDOW:]
    rows = [b.rows for b in past]
    history = {
        "epochs": len(past),
        "median": median(rows) if rows else None,
        "low": min(rows, default=None),
        "high": max(rows, default=None),
        "quarantined": sum(b.bad_rows for b in past),
    }
    run_id = state.revisions[batch.revision].run_id
    kept = state.fact(run_id, "quarantine_sample") or []
    sample = [{k: v for k, v in row.items() if k != "epoch"} for row in kept if row.get("epoch", epoch) == epoch]
    return {
        "files": batch.files,
        "rows": batch.rows,
        "quarantined": batch.bad_rows,
        "share": batch.bad_rows / (batch.rows + batch.bad_rows) if batch.bad_rows else 0.0,
        "history": history,
        "quarantine_sample": sample,
    }


def _graph(state: State, epoch: int) -> Document | None:
    """The totals at the epoch, their change since the epoch before, and what each revision did to them."""
    if state.frontier is None or epoch > state.frontier:
        return None
    now, then = state.at(epoch), state.at(epoch - 1)
    ks = sorted({*now["trusses"], *then["trusses"]})

    def size(point: Document, k: int) -> int:
        return sum(n for at, n in point["trusses"].items() if at >= k)

    trusses = [
        {
            "k": k,
            "exactly": now["trusses"].get(k, 0),
            "size": size(now, k),
            "change": size(now, k) - size(then, k),
        }
        for k in ks
    ]
    names = state.ledger.motifs(state.newest) if state.newest else []
    motifs = [
        {"name": name, "value": now["motifs"].get(k, 0), "change": now["motifs"].get(k, 0) - then["motifs"].get(k, 0)}
        for k, name in enumerate(names)
    ]
    history = []
    for revision, effects in sorted(state.effects.items()):
        place = bisect_right(effects, epoch, key=lambda effect: effect[0])
        if place:
            sums = {measure: effects[place - 1][1].get(measure, 0) for measure in MEASURES[:3]}
            history.append({"revision": revision, "at": state.revisions[revision].published_at, **sums})
    measures = {m: {"value": now[m], "before": then[m], "change": now[m] - then[m]} for m in MEASURES}
    newest = state.revision_of(epoch)
    landed = state.batches[epoch].revision if epoch in state.batches else 0
    facts = {
        key: _by_epoch(state, (newest, landed), epoch, key) for key in ("top_vertices", "top_edges", "entered_core")
    }
    found = {"measures": measures, "trusses": trusses, "motifs": motifs}
    return {**found, "revisions": history[-WINDOW:], "revision": newest, **facts}


def _by_epoch(state: State, revisions: tuple[int, ...], epoch: int, key: str) -> list[Any]:
    """What the run of the first of some revisions recorded for one epoch under a key: `{epoch: [...]}`."""
    for revision in revisions:
        found = state.fact(state.revisions[revision].run_id, key) if revision else None
        if isinstance(found, dict) and found.get(str(epoch)):
            return list(found[str(epoch)])
    return []


def _check(state: State, row: Any) -> Document:
    names = ("suite", "name", "severity", "meaning", "observed", "remedy", "revision", "at")
    fresh = row.revision >= state.revision_of(row.epoch)
    found = {name: getattr(row, name) for name in names} | {"passed": bool(row.passed), "fresh": fresh}
    return {**found, "epoch": row.epoch, "label": state.label(row.epoch), "rows": list(row.rows or [])}


def _attempt(state: State, run: Any) -> Document:
    revision = next((row.revision for row in state.revisions.values() if row.run_id == run.run_id), None)
    names = ("run_id", "state", "error", "started_at", "finished_at")
    return {**{name: getattr(run, name) for name in names}, "epochs": len(run.epochs), "revision": revision}


def _failed_run(state: State, run: Any) -> Document:
    failed = [_check(state, row) for row in state.run_checks.get(run.run_id, []) if not row.passed]
    failed.sort(key=lambda check: (SEVERITIES.index(check["severity"]), check["epoch"]))
    return {**_attempt(state, run), "checks": failed}


def _run(state: State, run_id: str) -> Document:
    stages = state.stages(run_id)
    kept = [{**{k: row[k] for k in ("stage", "state", "seconds")}, "facts": dict(row["facts"])} for row in stages]
    elsewhere = sorted({row.epoch for row in state.run_checks.get(run_id, []) if row.suite != FULL})
    return {
        **_attempt(state, state.runs[run_id]),
        "seconds": sum(row["seconds"] or 0 for row in stages),
        "stages": kept,
        "checked_epochs": [state.label(epoch) for epoch in elsewhere[-3:]],
    }


def _overview(state: State) -> Document:
    """What the index shows: every epoch in a few fields, what needs attention, trends, the newest runs."""
    axis = state.axis[-GRID:]
    epochs: list[Document] = []
    for epoch in axis:
        batch = state.batches.get(epoch)
        point = state.at(epoch) if state.frontier is not None and epoch <= state.frontier else {}
        judged = state.judge(epoch)
        epochs.append(
            {
                "epoch": epoch,
                "label": state.label(epoch),
                "state": judged,
                "why": _reason(state, epoch) if STATES[judged].attention else None,
                "rows": batch.rows if batch else None,
                "bad_rows": batch.bad_rows if batch else None,
                **{measure: point.get(measure) for measure in MEASURES},
            }
        )
    counts = {name: sum(1 for e in epochs if e["state"] == name) for name in STATES}
    newest = state.newest
    return {
        "epochs": epochs,
        "older": len(state.axis) - len(axis),
        "counts": {name: n for name, n in counts.items() if n},
        "attention": [e for e in epochs if STATES[e["state"]].attention][::-1],
        "revision": newest.revision if newest else 0,
        "published_at": newest.published_at if newest else None,
        "frontier": None if state.frontier is None else state.label(state.frontier),
        "seconds": state.home.schedule.seconds,
        "starts": {e: state.home.schedule.start(e) for e in axis} if state.home.schedule.seconds else {},
        "headline": _headline(state, counts),
        "trend": _trend(state, axis),
        "runs": [_attempt(state, run) for run in list(state.runs.values())[-10:]][::-1],
    }


def _reason(state: State, epoch: int) -> str:
    """Why an epoch needs somebody, in a line: what stopped its run, or the worst of its failed checks."""
    run = state.last_run(epoch)
    if run is not None and run.state == "failed":
        return run.error or "it stopped without saying why"
    failed = [row for row in state.current(epoch) if not row.passed]
    worst = min(failed, key=lambda row: SEVERITIES.index(row.severity))
    return f"{worst.name}: {worst.observed}"


def _headline(state: State, counts: dict[str, int]) -> str:
    if not state.axis:
        return "Nothing has been run yet."
    if not state.batches:
        return "Nothing is published yet."
    parts = [f"{number(counts[name])} {STATES[name].short}" for name in ("failed", "wrong", "warning") if counts[name]]
    done = f"{plural(len(state.batches), 'epoch')} published"
    if parts:
        return f"{done}; {listed(parts)}."
    if counts["unaudited"]:
        return f"{done}; {number(counts['unaudited'])} not yet compared with a full recomputation."
    return f"{done}, each equal to a full recomputation."
