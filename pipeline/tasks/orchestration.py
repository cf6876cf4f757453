"""What the Airflow tasks decide and do, as plain functions of plain values; this file knows nothing of
Airflow.

A task of `dags/` calls one function here with the home's path and strings, numbers or small dicts, so that
everything travels by XCom and everything can be tested without a scheduler. At parse time only `calendar`
is called; Spark and the suites are imported inside the functions that need them.

Runs may be active together, as many as there are epochs to wait for: what computes has a pool of one slot,
and the further a run has come the sooner it gets it, so that runs compute one after the other. Where they
race nonetheless (somebody types `altneu run`, a retry comes between, the pool is larger), a run may build on
a revision that is no longer the newest. Then its stages do nothing (`stage` says so), and `publish` is the
one place that settles it: it runs the epochs again on the newest revision until they are published as
landed. The cost of a lost race is the stages done in vain, and one chain of stages inside the publish task;
the order of the epochs never matters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AltneuError, CheckFailed, Conflict, Disturbed, UsageError
from ..home.directory import Home
from ..home.schedule import Schedule, sample
from ..run.stages import STAGES
from ..state.facts import PublishFacts, ReportFacts, own, to_json, without_version

if TYPE_CHECKING:
    from ..state.ledger import Ledger

POOL = "altneu_stages"  # one slot: runs compute and publish one after the other
PUBLISH = "publish"  # the stage with a task function of its own
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
    if "pipeline.storage.session" in sys.modules:
        from ..storage.session import release

        release()


def home_path() -> str:
    """The home that the DAGs work on."""
    return os.environ.get("ALTNEU_HOME", ".altneu")


def calendar(path: str) -> Calendar:
    """The home's schedule; never raises. A home that is not there or broken counts as daily until it is
    mended."""
    try:
        every, problem = Home.open(path).config.epochs.every, None
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


def epoch_of(
    path: str,
    asked: str | int | None,
    logical: datetime | None,
    start: datetime | None,
    manual: bool,
    until: datetime | None = None,
) -> int:
    """The epoch of a DAG run. Of the schedule or a backfill: that of its data interval, and no other may be asked for.

    By hand: the one asked for; else, for an instant that starts an epoch, that epoch (as a scheduled run of that
    logical date does); for any other instant, such as now, the last whole interval before it, unless the schedule
    has ended by then (`until`). Raises `UsageError`.
    """
    schedule = Home.open(path).schedule
    if asked not in (None, ""):
        named = schedule.epoch(str(asked))
        if not manual and schedule.seconds is not None and start is not None and named != schedule.epoch_of(start):
            raise UsageError(
                f"this run is for the epoch of its date, {schedule.label(schedule.epoch_of(start))}, but the parameter "
                f"epoch asks for {schedule.label(named)}. A backfill takes its epochs from its dates.",
                "the same backfill again, with the parameter epoch left empty",
            )
        return named
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
    epoch = schedule.epoch_of(start)
    if manual and until is not None and schedule.start(epoch) > until:
        last = schedule.label(schedule.epoch_of(until))
        raise UsageError(
            f"this run names no epoch, so it would be for the last whole interval, {schedule.label(epoch)}; the "
            f"schedule has ended with {last} (ALTNEU_END).",
            f'trigger the DAG with the parameter epoch, e.g. {{"epoch": "{last}"}}; or altneu_backfill for many',
        )
    return epoch


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
    from .. import landing as landed

    home, ledger = _open(path, writes=False)
    schedule = home.schedule
    label = schedule.label(epoch)
    there = landed.listing(home)
    unready = there[epoch].incomplete if epoch in there else None
    if unready:
        return Landing(epoch, label, "waiting", f"waiting for epoch {label}: {unready}")
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
    newest = f"; the newest landed is {schedule.label(max(there))}" if there else ""
    return Landing(epoch, label, "waiting", f"waiting for epoch {label}: {folder} is not there yet{newest}")


# -- a run ---------------------------------------------------------------------------------------------------


def plan(path: str, epochs: Iterable[int], say: Say = quiet) -> Planned | None:
    """Begin a run over epochs that are missing or changed; None when all are published as landed."""
    from ..run import planning

    home, ledger = _open(path)
    wanted = _without_gone(home, ledger, epochs, say)
    found = planning.plan_epochs(home, ledger, wanted)
    return _begin(home, ledger, found, say)


def plan_range(
    path: str, first: str | int | None, last: str | int | None, force: bool = False, say: Say = quiet
) -> Planned | None:
    """Begin one run over every landed epoch of a range that is missing or changed (`force`: over all of them).

    Over more landed files than `[ingest] max_revision_mb` it takes the first part; `rest` then holds the parameters of
    the next run: first, last, again.
    """
    from dataclasses import replace

    from ..run import planning

    home, ledger = _open(path)
    inside = planning.within(home, *(None if text in (None, "") else str(text) for text in (first, last)))
    found = planning.plan(home, ledger, lambda e: e.state != "gone" and inside(e), force)
    if not found.epochs:
        raise UsageError(
            f"no epoch is landed between {first or 'the beginning'} and {last or 'the end'}.", "altneu status"
        )
    parts = planning.parts(home, found)
    planned = _begin(home, ledger, replace(found, run=parts[0]) if parts else found, say)
    if planned is not None and len(parts) > 1:
        label = home.schedule.label(parts[1][0])
        planned["rest"] = {"first": label, "last": last, "again": force}
        say(f"[ingest] max_revision_mb cuts the range into {len(parts)} runs; the next one from {label} on")
    return planned


def _begin(home: Home, ledger: Ledger, found: Any, say: Say) -> Planned | None:
    from ..run import runner

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
    from .. import landing as landed

    there, published, kept = landed.listing(home), ledger.batches(), []
    for epoch in epochs:
        if epoch not in there and epoch in published:
            label = home.schedule.label(epoch)
            say(f"epoch {label} stays published, its folder has gone; to take it back: altneu run {label} --remove")
        else:
            kept.append(epoch)
    return kept


def stage(path: str, planned: Planned, name: str, say: Say = quiet) -> dict[str, Any]:
    """One stage of a run; its facts. A run that has lost to another revision already does nothing here, and says why:
    `superseded`. An audit's critical failure names every failed critical check, its epoch and its first rows."""
    from ..run import runner

    home, ledger = _open(path)
    run_id = planned["run_id"]
    try:
        facts = runner.stage(home, ledger, run_id, name, lambda stage, text: say(text))
    except CheckFailed as error:
        failed = _failed(ledger, run_id, "critical")
        raise CheckFailed(f"{error.what}\n{failures(home, failed)}", error.next) from None
    except Conflict:
        newest = ledger.at().revision
        text = f"revision {newest} was published since this run was planned: publish runs its epochs again on it"
        say(text)
        return {"superseded": text}
    say(f"{name}: {runner.shown(home, facts)}")
    return without_version(to_json(facts))


def publish(path: str, planned: Planned, say: Say = quiet) -> dict[str, Any]:
    """See to it that the planned epochs are published as landed; which revision did it.

    The run's own publish when it still builds on the newest revision; else its epochs run again here on the
    newest. Returns run_id; revision (None: others had published the same meanwhile); epochs and labels, just those that
    it has published; reruns. Raises `Conflict` when others win `ATTEMPTS` times.
    """
    from ..run import planning, runner

    home, ledger = _open(path)
    run_id, epochs = planned["run_id"], planned["epochs"]

    def done(revision: int | None, reruns: int) -> dict[str, Any]:
        mine = [] if revision is None else list(ledger.run(run_id).epochs)
        labels = [home.schedule.label(epoch) for epoch in mine]
        return {"run_id": run_id, "revision": revision, "epochs": mine, "labels": labels, "reruns": reruns}

    for reruns in range(ATTEMPTS):
        published = _revision_of(ledger, run_id)
        try:
            if reruns:
                for name in (each.name for each in STAGES if each.before_publish):
                    facts = runner.stage(home, ledger, run_id, name, lambda stage, text: say(text))
                    say(f"{name}: {runner.shown(home, facts)}")
            if published is None:
                runner.stage(home, ledger, run_id, "publish", lambda stage, text: say(text))
                published = ledger.facts(run_id, PublishFacts).revision
                found = done(published, reruns)
                say(f"published revision {published}: {_some(found['labels'])}")
                return found
        except (Conflict, Disturbed) as lost:
            say(lost.what)
        plan = planning.plan_epochs(home, ledger, _without_gone(home, ledger, epochs, say))
        again = runner.begin(home, ledger, plan)
        if again is None:  # ours, or a wider pass of another run
            say(f"already published as landed, at revision {plan.parent.revision}")
            return done(published, reruns)
        run_id = again
        say(f"run {run_id}: the same epochs again, on revision {plan.parent.revision}")
    raise Conflict(
        f"{_some(planned['labels'])}: other writers published first, {ATTEMPTS} times in a row. Nothing "
        f"of it was published.",
        "stop the writer outside Airflow (altneu status shows its runs), then clear this task",
    )


def _revision_of(ledger: Ledger, run_id: str) -> int | None:
    """The revision that a run published, if it did."""
    return next((row.revision for row in ledger.revisions() if row.run_id == run_id), None)


def warnings(path: str, published: dict[str, Any], say: Say = quiet) -> None:
    """The checks that warned in what `publish` handed on. Raises `CheckFailed` when there are any: it is published,
    with its mark."""
    if published["revision"] is None:
        say("this run published nothing itself")
        return
    home, ledger = _open(path)
    warned = _failed(ledger, published["run_id"], "warning")
    if warned:
        raise CheckFailed(
            f"{len(warned)} check(s) warn; revision {published['revision']} is published, with its mark:\n"
            + failures(home, warned),
            f"altneu report {home.schedule.label(warned[0]['epoch'])}",
        )
    say("no check warns")


def report(path: str, planned: Planned, published: dict[str, Any] | None, say: Say = quiet) -> list[str]:
    """Write the report pages of a run's epochs, also of one that has failed (then nothing was handed on by `publish`);
    their paths. Needs no Spark."""
    import time

    from ..report import write
    from ..state.records import StageState

    home, ledger = _open(path)
    started = time.time()
    pages = [str(page) for page in write(home, ledger, planned["epochs"])]
    facts = ReportFacts(pages=len(pages), page=pages[-1] if pages else None)
    ledger.stage((published or planned)["run_id"], "report", StageState.DONE, started, facts)
    say(f"report: {pages[-1] if pages else 'nothing to write'}")
    return pages


# -- as submissions to a cluster ---------------------------------------------------------------------------------


def submission(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """What `spark-submit` needs besides a master, for a home: conf and environment."""
    from ..storage.session import submission as settings

    return settings(Home.open(path).config.spark.conf)


def submitted(path: str, name: str, planned: str, answer: str) -> int:
    """The work of one submission: a task of the run that `planned` (JSON) describes. What it hands on, or its error, is
    written to the file `answer`. Returns the exit code."""

    def say(text: str) -> None:
        print(text, flush=True)

    run: Planned = json.loads(planned)
    try:
        told = {"done": publish(path, run, say) if name == PUBLISH else stage(path, run, name, say)}
    except AltneuError as error:
        print(worded(error), file=sys.stderr, flush=True)
        told = {"error": {"says": worded(error), "retry": error.transient}}
    Path(answer).write_text(json.dumps(told, default=str))
    return int("error" in told)


def _failed(ledger: Ledger, run_id: str, severity: str) -> list[dict[str, Any]]:
    """The checks of a run that failed, of a severity."""
    rows = [asdict(row) for row in ledger.checks(run_id=run_id)]
    return [row for row in rows if not row["passed"] and row["severity"] == severity]


# -- audits --------------------------------------------------------------------------------------------------


def full_audit(path: str, how_many: int, seed: str, say: Say = quiet) -> dict[str, Any]:
    """Compare published epochs with a full recomputation, and record it. Raises `CheckFailed` with the
    differing rows."""
    from ..checking import audit
    from ..report import refresh
    from ..storage.session import session_for
    from ..storage.warehouse import Warehouse

    home, ledger = _open(path)
    revision = ledger.at()
    if revision.frontier is None:
        say("nothing is published yet")
        return {"epochs": 0, "checks": 0}
    epochs = sample(audit.auditable(ledger, revision), how_many, seed)
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


# -- maintenance ---------------------------------------------------------------------------------------------


def relanded(path: str, say: Say = quiet) -> dict[str, Any]:
    """Are the published epochs as they are landed? Raises `CheckFailed` that names those that have landed again and
    whose new batch nobody has published."""

    home, ledger = _open(path)
    from ..landing import survey

    _, rows = survey.grid(home, ledger)
    changed = [row["label"] for row in rows if row["revision"] and row["state"] in ("changed", "failed", "folded")]
    if changed:
        raise CheckFailed(
            f"{len(changed)} published epoch(s) have landed again, and the new batch is not published: "
            f"{', '.join(changed[:MANY_CHECKS])}{' …' if len(changed) > MANY_CHECKS else ''}.",
            f"trigger altneu_backfill (first {changed[0]}, last {changed[-1]}), or: "
            f"altneu backfill {changed[0]} {changed[-1]}",
        )
    say(f"{len(rows)} epochs: what is published is what is landed")
    return {"epochs": len(rows)}


def compaction(path: str, grace_hours: float, say: Say = quiet) -> dict[str, Any]:
    """`altneu compact`; nothing to do before anything is published. Returns its facts without the sizes."""
    from rich.filesize import decimal

    from ..run.compact import compact
    from ..storage.session import session_for

    home, ledger = _open(path)
    if ledger.at().frontier is None:
        say("nothing is published yet")
        return {"revisions": []}
    facts = compact(home, ledger, session_for(home, ledger), grace_hours * 3600, say)
    files, size = (
        tuple(sum(getattr(table, unit) for table in tables.values()) for tables in (facts.before, facts.tables))
        for unit in ("files", "bytes")
    )
    say(f"{files[0]:,} files became {files[1]:,}, {decimal(size[0])} {decimal(size[1])}")
    return {name: value for name, value in own(facts).items() if name not in ("before", "tables")}


# -- the page --------------------------------------------------------------------------------------------


def grid(path: str) -> dict[str, Any]:
    """Every landed or published epoch with its state, totals, audit and report, from SQL and the landing's
    listing."""
    from .. import report

    home, ledger = _open(path, writes=False)
    from ..landing import survey

    revision, rows = survey.grid(home, ledger)
    totals = report.totals(ledger, revision, min((row["epoch"] for row in rows), default=0))
    names = ledger.motifs(revision)
    for row in rows:
        point = totals(row["epoch"]) if row["revision"] else {}
        row |= {name: point.get(name) for name in ("edges", "triangles", "max_trussness")}
        row["motifs"] = {name: point["motifs"].get(place, 0) for place, name in enumerate(names)} if point else {}
        row["report"] = report.page_name(home, row["epoch"])
    says = "nothing is published yet"
    if revision.frontier is not None:
        frontier = home.schedule.label(revision.frontier)
        says = f"revision {revision.revision}, frontier {frontier}, {len(rows)} epochs"
        again = [row["label"] for row in rows if row["revision"] and row["state"] == "changed"]
        if again:
            says += f"; {len(again)} landed again and not published so: altneu_backfill from {again[0]} to {again[-1]}"
    return {"says": says, "epochs": rows}


def report_page(path: str, name: str) -> str | None:
    """A report's page on request by the name of its file: `index.html`, or that of an epoch. None: there is none."""
    from .. import report

    home, ledger = _open(path, writes=False)
    if name == "index.html":
        return report.index(home, ledger)
    label = name.removeprefix("epoch=").removesuffix(".html")
    try:
        epoch = home.schedule.epoch(label)
    except UsageError:
        return None
    return report.page(home, ledger, epoch) if name == report.page_name(home, epoch) else None


# -- helpers -------------------------------------------------------------------------------------------------


def worded(error: AltneuError) -> str:
    """An error as an operator on call reads it: what happened, and what to type."""
    return error.what + (f"\nnext: {error.next}" if error.next else "")


def _open(path: str, writes: bool = True) -> tuple[Home, Ledger]:
    from ..state.place import opened

    home = Home.open(path)
    return home, opened(home, writes)


def _some(labels: list[str]) -> str:
    if len(labels) == 1:
        return f"epoch {labels[0]}"
    return f"{len(labels)} epochs" + (f" ({labels[0]} … {labels[-1]})" if labels else "")
