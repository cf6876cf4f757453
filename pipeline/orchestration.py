"""What the Airflow tasks decide and do, as plain functions of plain values; this file knows nothing of
Airflow.

A task of `dags/` calls one function here with the home's path and strings, numbers or small dicts, so that
everything travels by XCom and everything can be tested without a scheduler. At parse time only `calendar`
is called; Spark and the suites are imported inside the functions that need them.

Runs may race: a backfill with several active runs, somebody typing `altneu run`. Their stages may then
build on a revision that is no longer the newest. The rule: a stage whose run has lost already does nothing
(`stage` says so), and `publish` is the one place that settles it. It has a pool of one slot: there it runs
the epochs again on the newest revision, alone, until they are published as landed. The cost of a lost race
is the stages done in vain, and one chain of stages inside the publish task; the order of the epochs never
matters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .config import Home
from .errors import AltneuError, CheckFailed, Conflict, RunFailed, UsageError
from .schedule import Schedule, sample

if TYPE_CHECKING:
    from .ledger import Ledger

POOL = "altneu_publish"  # one slot
BEFORE_PUBLISH = ("ingest", "edges", "triangles", "truss", "audit")
ATTEMPTS = 5  # at a publish that others (not under our pool) win again and again
MANY_CHECKS = 20  # failed checks that an error lists

Say = Callable[[str], None]
Planned = dict[str, Any]  # run_id, epochs, labels, parent: what `plan` hands to the stages


def quiet(text: str) -> None:
    """Say nothing."""


# -- at parse time -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calendar:
    """When epoch runs are due. `problem`: why the home could not be read (then: daily)."""

    every: str | None
    seconds: int | None  # None: integer epochs, no schedule
    cron: str | None  # the same intervals as a cron expression in UTC, when there is one
    problem: str | None = None


def release() -> None:
    """What a task lets go of at its end: its session at a Spark Connect server."""
    if "pipeline.spark" in sys.modules:
        from .spark import release

        release()


def home_path() -> str:
    """The home that the DAGs work on."""
    return os.environ.get("ALTNEU_HOME", ".altneu")


def calendar(path: str) -> Calendar:
    """The home's schedule; never raises. A home that is not there or broken counts as daily until it is
    mended."""
    try:
        every, problem = Home.open(path).config.every, None
    except (AltneuError, OSError, ValueError) as error:
        every, problem = "1d", error.what if isinstance(error, AltneuError) else str(error)
    seconds = Schedule.parse(every).seconds
    return Calendar(every, seconds, None if seconds is None else cron(seconds), problem)


def cron(seconds: int) -> str | None:
    """Intervals of so many seconds since 1970-01-01 UTC as a cron expression, or None where cron has no
    such word.

    >>> [cron(s) for s in (900, 3_600, 43_200, 86_400, 604_800)]
    ['*/15 * * * *', '0 * * * *', '0 */12 * * *', '0 0 * * *', '0 0 * * 4']
    >>> [cron(s) for s in (7 * 60, 5 * 3_600, 2 * 86_400)]
    [None, None, None]
    """
    minutes, hours = seconds // 60, seconds // 3600
    match seconds:
        case 60:
            return "* * * * *"
        case 3_600:
            return "0 * * * *"
        case 86_400:
            return "0 0 * * *"
        case 604_800:
            return "0 0 * * 4"  # 1970-01-01 was a Thursday
    if seconds < 3_600 and 3_600 % seconds == 0:
        return f"*/{minutes} * * * *"
    if seconds % 3_600 == 0 and seconds < 86_400 and 24 % hours == 0:
        return f"0 */{hours} * * *"
    return None


def bounds(first: str | None, last: str | None) -> tuple[datetime | None, datetime | None]:
    """`ALTNEU_START` and `ALTNEU_END`, ISO dates, as UTC instants. Raises `UsageError`."""

    def instant(name: str, text: str | None) -> datetime | None:
        if not text:
            return None
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{name} = {text!r} is no date.", f"{name}=2004-04-15") from None
        return when.replace(tzinfo=when.tzinfo or UTC)

    return instant("ALTNEU_START", first), instant("ALTNEU_END", last)


# -- which epoch, and is it there ----------------------------------------------------------------------------


def epoch_of(path: str, asked: str | int | None, logical: datetime | None, start: datetime | None, manual: bool) -> int:
    """The epoch of a DAG run: the one asked for; else the one of its data interval.

    A run triggered by hand for an instant that starts an epoch means that epoch (as a scheduled run of that
    logical date does); for any other instant, such as now, the last whole interval before it. Raises
    `UsageError`.
    """
    schedule = Home.open(path).schedule
    if asked not in (None, ""):
        return schedule.epoch(str(asked))
    if schedule.seconds is None:
        raise UsageError(
            "this home has integer epochs (no [epochs] every), so a run must name its epoch.",
            'trigger the DAG with the parameter epoch, e.g. {"epoch": "1"}',
        )
    if manual and logical is not None and schedule.start(schedule.epoch_of(logical)) == logical:
        return schedule.epoch_of(logical)
    if start is None:
        raise UsageError(
            "this run has no logical date, so it must name its epoch.",
            f"trigger the DAG with the parameter epoch, e.g. "
            f'{{"epoch": "{schedule.label(schedule.epoch_of(_now()))}"}}',
        )
    return schedule.epoch_of(start)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Landing:
    """Whether a run may start: `state` is landed, waiting, or gap (nothing came, and later epochs are
    there)."""

    epoch: int
    label: str
    state: str
    says: str


def landing(path: str, epoch: int, *, patience: timedelta, manual: bool, now: datetime | None = None) -> Landing:
    """Is an epoch's batch there? An epoch that is published counts as landed, also when its folder has gone
    since.

    A gap is an epoch that ended longer than `patience` ago and is not there while a later one is: nothing
    happened in it, and waiting would hold up the history behind it. A run started by hand always waits.
    """
    from . import landing as landed

    home, ledger = _open(path)
    schedule = home.schedule
    label = schedule.label(epoch)
    there = landed.listing(home)
    if epoch in there:
        files = len(there[epoch].files)
        return Landing(epoch, label, "landed", f"epoch {label} is landed: {files} file(s)")
    if epoch in ledger.batches():
        return Landing(epoch, label, "landed", f"epoch {label} is published; its landing folder has gone since")
    folder = home.landing / f"epoch={label}"
    later = [e for e in there if e > epoch]
    ended = None if schedule.seconds is None else schedule.start(epoch + 1)
    if not manual and later and ended is not None and ended + patience < (now or _now()):
        return Landing(
            epoch,
            label,
            "gap",
            f"nothing has landed for epoch {label} ({folder}), but {len(later)} later epoch(s) have: "
            f"taken as a gap. "
            "If it lands late, clear this run or trigger altneu_backfill",
        )
    return Landing(epoch, label, "waiting", f"waiting for epoch {label}: {folder} is not there yet")


# -- a run ---------------------------------------------------------------------------------------------------


def plan(path: str, epochs: Iterable[int], say: Say = quiet) -> Planned | None:
    """Begin a run over epochs that are missing or changed; None when all are published as landed."""
    from . import runner

    home, ledger = _open(path)
    wanted = _without_gone(home, ledger, epochs, say)
    found = runner.plan_epochs(home, ledger, wanted)
    return _begin(home, ledger, found, say)


def plan_range(
    path: str, first: str | int | None, last: str | int | None, force: bool = False, say: Say = quiet
) -> Planned | None:
    """Begin one run over every landed epoch of a range that is missing or changed (`force`: over all of them).

    Over more landed files than `[ingest] max_revision_mb` it takes the first part; `rest` then holds the parameters of
    the next run: first, last, again.
    """
    from dataclasses import replace

    from . import runner

    home, ledger = _open(path)
    inside = runner.within(home, *(None if text in (None, "") else str(text) for text in (first, last)))
    found = runner.plan(home, ledger, lambda e: e.state != "gone" and inside(e), force)
    if not found.epochs:
        raise UsageError(
            f"no epoch is landed between {first or 'the beginning'} and {last or 'the end'}.", "altneu status"
        )
    parts = runner.parts(home, found)
    planned = _begin(home, ledger, replace(found, run=parts[0]) if parts else found, say)
    if planned is not None and len(parts) > 1:
        label = home.schedule.label(parts[1][0])
        planned["rest"] = {"first": label, "last": last, "again": force}
        say(f"[ingest] max_revision_mb cuts the range into {len(parts)} runs; the next one from {label} on")
    return planned


def _begin(home: Home, ledger: Ledger, found: Any, say: Say) -> Planned | None:
    from . import runner

    run_id = runner.begin(home, ledger, found)
    if run_id is None:
        whole = _some([epoch.label for epoch in found.epochs])
        say(f"nothing to do: {whole} published as landed (revision {found.parent.revision})")
        return None
    labels = [home.schedule.label(epoch) for epoch in found.run]
    say(f"run {run_id}: {_some(labels)} on revision {found.parent.revision}")
    return {"run_id": run_id, "epochs": list(found.run), "labels": labels, "parent": found.parent.revision}


def _without_gone(home: Home, ledger: Ledger, epochs: Iterable[int], say: Say) -> list[int]:
    """Published epochs whose folder has gone stay as they are; only `altneu run --remove` takes them back."""
    from . import landing as landed

    there, published, kept = landed.listing(home), ledger.batches(), []
    for epoch in epochs:
        if epoch not in there and epoch in published:
            label = home.schedule.label(epoch)
            say(f"epoch {label} stays published, its folder has gone; to take it back: altneu run {label} --remove")
        else:
            kept.append(epoch)
    return kept


def stage(path: str, planned: Planned, name: str, say: Say = quiet) -> dict[str, Any]:
    """One stage of a run; its facts. A run that has lost to another revision already does nothing here."""
    from . import runner

    home, ledger = _open(path)
    run_id = planned["run_id"]
    winner = _winner(ledger, run_id)
    if winner is not None:
        text = f"revision {winner} was published since this run was planned: publish runs its epochs again on it"
        say(text)
        if ledger.run(run_id).state != "failed":
            ledger.finish(run_id, "failed", f"superseded by revision {winner}")
        return {"superseded_by": winner}
    facts = runner.stage(home, ledger, run_id, name, lambda stage, text: say(text))
    say(f"{name}: {_shown(facts)}")
    return facts


def publish(path: str, planned: Planned, say: Say = quiet) -> dict[str, Any]:
    """See to it that the planned epochs are published as landed; which revision did it.

    The run's own publish when it still builds on the newest revision; else its epochs run again here on the
    newest. Returns run_id, revision (None: others had published the same meanwhile), epochs, reruns. Raises
    `Conflict` when writers outside the pool win `ATTEMPTS` times.
    """
    from . import runner

    home, ledger = _open(path)
    run_id, epochs = planned["run_id"], planned["epochs"]
    for reruns in range(ATTEMPTS):
        published = _revision_of(ledger, run_id)
        if published is None and _winner(ledger, run_id) is None:
            try:
                published = runner.stage(home, ledger, run_id, "publish", lambda stage, text: say(text))["revision"]
                say(f"published revision {published}: {_some([home.schedule.label(e) for e in epochs])}")
                return {"run_id": run_id, "revision": published, "epochs": epochs, "reruns": reruns}
            except Conflict as conflict:
                say(conflict.what)
        found = runner.plan_epochs(home, ledger, _without_gone(home, ledger, epochs, say))
        again = runner.begin(home, ledger, found)
        if again is None:  # ours, or a wider pass of another run
            say(f"already published as landed, at revision {found.parent.revision}")
            return {"run_id": run_id, "revision": published, "epochs": epochs, "reruns": reruns}
        run_id = again
        say(f"run {run_id}: the same epochs again, on revision {found.parent.revision}")
        for name in BEFORE_PUBLISH:
            facts = runner.stage(home, ledger, run_id, name, lambda stage, text: say(text))
            say(f"{name}: {_shown(facts)}")
    raise Conflict(
        f"{_some(planned['labels'])}: other writers published first, {ATTEMPTS} times in a row. Nothing "
        f"of it was published.",
        "stop the writer outside Airflow (altneu status shows its runs), then clear this task",
    )


def _revision_of(ledger: Ledger, run_id: str) -> int | None:
    """The revision that a run published, if it did."""
    return next((row.revision for row in ledger.revisions() if row.run_id == run_id), None)


def _winner(ledger: Ledger, run_id: str) -> int | None:
    """The newest revision when the run does not build on it (and is not itself published)."""
    run = ledger.run(run_id)
    newest = ledger.at().revision
    return newest if run.state != "published" and newest != run.parent else None


def report(path: str, published: dict[str, Any], say: Say = quiet) -> list[str]:
    """Write the report pages of what `publish` handed on; their paths. Needs no Spark."""
    import time

    from .report import write

    home, ledger = _open(path)
    started = time.time()
    pages = [str(page) for page in write(home, ledger, published["epochs"])]
    facts = {"pages": len(pages), "page": pages[-1] if pages else None}
    ledger.stage(published["run_id"], "report", "done", started, facts)
    say(f"report: {pages[-1] if pages else 'nothing to write'}")
    return pages


# -- as submissions to a cluster ---------------------------------------------------------------------------------


def submission(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """What `spark-submit` needs besides a master, for a home: conf and environment."""
    from .spark import submission as settings

    return settings(Home.open(path).config.conf)


def submitted(path: str, name: str, planned: str) -> int:
    """The work of one submission: a stage of the run that `planned` (JSON) describes. Returns the exit code."""

    def say(text: str) -> None:
        print(text, flush=True)

    run: Planned = json.loads(planned)
    try:
        if name == "publish":
            publish(path, run, say)
        else:
            stage(path, run, name, say)
    except AltneuError as error:
        print(worded(error), file=sys.stderr, flush=True)
        return 1
    return 0


def outcome(path: str, planned: str) -> dict[str, Any]:
    """What a submission has done, as `publish` tells it: run_id, revision (None: not published by it), epochs."""
    run = json.loads(planned)
    _, ledger = _open(path)
    revision = _revision_of(ledger, run["run_id"])
    return {"run_id": run["run_id"], "revision": revision, "epochs": run["epochs"], "labels": run["labels"]}


def why(path: str, planned: str) -> AltneuError | None:
    """The error with which a submission failed, from the database; None when it left no word (killed, no cluster)."""
    run_id = json.loads(planned)["run_id"]
    home, ledger = _open(path)
    row = ledger.run(run_id)
    if row.state != "failed":
        return None
    failed = _critical(ledger, run_id)
    if failed:
        label = home.schedule.label(failed[0]["epoch"])
        return CheckFailed(f"{row.error}\n{failures(home, failed)}", f"altneu report {label}")
    return RunFailed(row.error or f"run {run_id} failed.", "see the log above, then clear this task")


def _critical(ledger: Ledger, run_id: str) -> list[dict[str, Any]]:
    rows = [dict(row._mapping) for row in ledger.checks(run_id=run_id)]
    return [row for row in rows if not row["passed"] and row["severity"] == "critical"]


# -- audits --------------------------------------------------------------------------------------------------


def full_audit(path: str, how_many: int, seed: str, say: Say = quiet) -> dict[str, Any]:
    """Compare published epochs with a full recomputation, and record it. Raises `CheckFailed` with the
    differing rows."""
    from . import audit
    from .report import refresh
    from .spark import session_for
    from .warehouse import Warehouse

    home, ledger = _open(path)
    revision = ledger.at()
    if revision.frontier is None:
        say("nothing is published yet")
        return {"epochs": 0, "checks": 0}
    known = [epoch for epoch in ledger.batches(revision.revision) if revision.answers(epoch)]
    epochs = sample(known, how_many, seed)
    say(f"auditing {len(epochs)} epoch(s) at revision {revision.revision} (seed {seed!r})")
    warehouse = Warehouse(session_for(home, ledger), home)
    results = audit.audit_published(warehouse, revision, epochs, say)
    ledger.put_checks(None, revision.revision, results)
    failed = [result for result in results if not result["passed"]]
    refresh(home, ledger, {result["epoch"] for result in failed})
    if failed:
        raise CheckFailed(
            f"{len({result['epoch'] for result in failed})} of {len(epochs)} audited epochs differ from "
            f"the full "
            f"recomputation at revision {revision.revision}:\n" + failures(home, failed),
            f"altneu report {home.schedule.label(min(result['epoch'] for result in failed))}",
        )
    say(f"{len(epochs)} epoch(s), {len(results)} checks: all equal to a full recomputation")
    return {"epochs": len(epochs), "checks": len(results), "revision": revision.revision}


def failures(home: Home, failed: list[dict[str, Any]]) -> str:
    """Failed checks as lines: epoch, check, what was observed, and the first rows."""
    lines = []
    for result in failed[:MANY_CHECKS]:
        lines.append(f"  {home.schedule.label(result['epoch'])}: {result['name']}: {result['observed']}")
        for row in result["rows"][:5]:
            lines.append("      " + str({name: value for name, value in row.items() if name != "why"}))
            lines += [f"        {line}" for line in row.get("why", ())]
    if len(failed) > MANY_CHECKS:
        lines.append(f"  … and {len(failed) - MANY_CHECKS} more checks")
    return "\n".join(lines)


def validate(path: str, planned: Planned, say: Say = quiet) -> dict[str, Any]:
    """The audit stage. A critical failure names every failed critical check, its epoch and its first rows."""
    try:
        return stage(path, planned, "audit", say)
    except CheckFailed as error:
        home, ledger = _open(path)
        failed = _critical(ledger, planned["run_id"])
        raise CheckFailed(f"{error.what}\n{failures(home, failed)}", error.next) from None


# -- maintenance ---------------------------------------------------------------------------------------------


def compaction(path: str, grace_hours: float, say: Say = quiet) -> dict[str, Any]:
    """`altneu compact`; nothing to do before anything is published. Returns its facts without the sizes."""
    from rich.filesize import decimal

    from .compact import compact
    from .spark import session_for

    home, ledger = _open(path)
    if not ledger.at().revision:
        say("nothing is published yet")
        return {"revisions": []}
    facts = compact(home, ledger, session_for(home, ledger), grace_hours * 3600, say)
    files, size = (
        tuple(sum(table[unit] for table in facts[when].values()) for when in ("before", "tables"))
        for unit in ("files", "bytes")
    )
    say(f"{files[0]:,} files became {files[1]:,}, {decimal(size[0])} {decimal(size[1])}")
    return {name: value for name, value in facts.items() if name not in ("before", "tables")}


# -- the page --------------------------------------------------------------------------------------------


def grid(path: str) -> dict[str, Any]:
    """Every landed or published epoch with its state, totals, audit and report, from SQL and the landing's
    listing."""
    from . import runner, views

    home, ledger = _open(path)
    revision, rows = runner.grid(home, ledger)
    points = {row["epoch"]: row for row in views.totals(home, ledger, all_epochs=True)}
    for row in rows:
        point = points.get(row["epoch"], {}) if row["revision"] else {}
        page = home.reports / f"epoch={row['label']}.html"
        row |= {name: point.get(name) for name in ("edges", "triangles", "max_trussness")}
        row["motifs"] = point.get("motifs", {})
        row["report"] = page.name if page.is_file() else None
    says = "nothing is published yet"
    if revision.frontier is not None:
        frontier = home.schedule.label(revision.frontier)
        says = f"revision {revision.revision}, frontier {frontier}, {len(rows)} epochs"
    return {"says": says, "epochs": rows}


# -- helpers -------------------------------------------------------------------------------------------------


def retry_helps(error: BaseException) -> bool:
    """May the same task succeed when it is tried again with nothing changed? Not for wrong use or a failed
    check."""
    return not isinstance(error, (UsageError, CheckFailed)) or isinstance(error, RunFailed)


def worded(error: AltneuError) -> str:
    """An error as an operator on call reads it: what happened, and what to type."""
    return error.what + (f"\nnext: {error.next}" if error.next else "")


def _open(path: str) -> tuple[Home, Ledger]:
    from .place import opened

    home = Home.open(path)
    return home, opened(home)


def _some(labels: list[str]) -> str:
    if len(labels) == 1:
        return f"epoch {labels[0]}"
    return f"{len(labels)} epochs" + (f" ({labels[0]} … {labels[-1]})" if labels else "")


def _shown(facts: dict[str, Any]) -> str:
    kept = {k: v for k, v in facts.items() if isinstance(v, (int, str)) and not isinstance(v, bool)}
    return ", ".join(f"{k.replace('_', ' ')} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in kept.items())
