"""Runs: what to run (`plan`), and running it stage by stage (`begin`, `stage`, `run`); taking one back (`rollback`).

`plan` compares the landing with the ledger and has no side effect on the published state. `begin` records a run on the
newest revision; `stage` executes one stage of it in this process, so that each may be a task of its own. Every stage is
recorded with its seconds and facts, and gives signs of life while it works; a failure is recorded with its error and
loses nothing. Kinds of runs: `run` adds batches; `rebuild` computes everything again from the landed rows as they are
stored, `reload` from the landing itself; `rollback` publishes an old revision again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from .. import landing
from ..errors import (
    AltneuError,
    Conflict,
    LeaseLost,
    RunFailed,
    Unavailable,
    UsageError,
    explained,
    transient,
)
from ..home.directory import Home
from ..interrupt import Interrupted, asked
from ..state.lease import held
from ..state.ledger import WRITTEN, Ledger, Revision, new_run_id, texts
from ..state.standing import standings
from . import telemetry

STAGES = ("ingest", "edges", "triangles", "truss", "audit", "publish", "report")
COMPUTED = ("edges", "triangles", "truss", "audit")  # from what is stored by then
Say = Callable[[str, str], None]  # stage, text


@dataclass(frozen=True)
class Epoch:
    """One epoch as the landing and the ledger have it.

    States: missing, changed, published; gone (published, and its folder is not there any more); folded (its landing has
    changed, but a compaction has folded the history before `since`, so that it cannot be replaced); incomplete (its
    folder is no batch yet: `why` says so).
    """

    epoch: int
    label: str
    state: str
    digest: str | None = None
    files: int = 0
    revision: int | None = None
    rows: int = 0
    bytes: int = 0
    why: str | None = None


@dataclass(frozen=True)
class Plan:
    """What a run would do: `run` are the epochs whose batch is missing or changed, among `epochs`."""

    parent: Revision
    epochs: tuple[Epoch, ...]
    run: tuple[int, ...] = field(default=())
    kind: str = "run"


def survey(home: Home, ledger: Ledger) -> tuple[Revision, dict[int, Epoch]]:
    """Every landed or published epoch with its state."""
    parent = ledger.at()
    landed = landing.listing(home)
    digests = landing.digest(ledger, [there for there in landed.values() if there.incomplete is None])
    published = ledger.batches(parent.revision)
    found = {}
    for epoch in sorted(set(landed) | set(published)):
        batch, there = published.get(epoch), landed.get(epoch)
        if there is None:
            state = "published" if batch and batch.digest == landing.EMPTY_DIGEST else "gone"
        elif there.incomplete is not None:
            emptied = not there.files and batch is not None and batch.digest == landing.EMPTY_DIGEST
            state = "published" if emptied else "incomplete"
        elif batch is not None and batch.digest == digests[epoch]:
            state = "published"
        elif parent.since is not None and epoch < parent.since:
            state = "folded"
        else:
            state = "changed" if batch else "missing"
        found[epoch] = Epoch(
            epoch,
            home.schedule.label(epoch),
            state,
            digests.get(epoch),
            len(there.files) if there else 0,
            batch.revision if batch else None,
            batch.rows if batch else 0,
            there.bytes if there else 0,
            there.incomplete if there else None,
        )
    return parent, found


def grid(home: Home, ledger: Ledger) -> tuple[Revision, list[dict[str, Any]]]:
    """Every epoch for `status` and the page in Airflow: that of `survey`, and beside these states running, failed and
    interrupted. A run that another one overtook is none of them: its epoch is as the other left it."""
    parent, found = survey(home, ledger)
    stand = standings(ledger, parent)
    rows = []
    for entry in found.values():
        open_ = entry.state in ("missing", "changed")
        said = stand.pending(entry.epoch) if open_ else None
        unready = entry.why if entry.state == "incomplete" else None
        audit = stand.at(entry.epoch).audit
        rows.append(
            {
                "epoch": entry.epoch,
                "label": entry.label,
                "state": said.state if said else entry.state,
                "files": entry.files,
                "rows": entry.rows,
                "revision": entry.revision,
                "audited": {"equal": True, "differs": False, "stale": None}[audit.says] if audit else None,
                "audit": audit.told() if audit else None,
                "error": said.error if said else unready,
            }
        )
    return parent, rows


def plan(home: Home, ledger: Ledger, wanted: Callable[[Epoch], bool], force: bool = False) -> Plan:
    """The plan over the epochs that `wanted` accepts. `force`: those whose batch is unchanged too."""
    parent, found = survey(home, ledger)
    epochs = tuple(epoch for epoch in found.values() if wanted(epoch))
    run = tuple(e.epoch for e in epochs if e.state in ("missing", "changed") or (force and e.state == "published"))
    return Plan(parent, epochs, run)


def within(home: Home, first: str | None, last: str | None) -> Callable[[Epoch], bool]:
    """Whether an epoch is in a range of labels, both ends included; None: no bound there."""
    low = home.schedule.epoch(first) if first else None
    high = home.schedule.epoch(last) if last else None
    if low is not None and high is not None and low > high:
        raise UsageError(f"the range {first} … {last} is empty: the first epoch is after the last.")
    return lambda e: (low is None or e.epoch >= low) and (high is None or e.epoch <= high)


def plan_epochs(home: Home, ledger: Ledger, epochs: Iterable[int], remove: bool = False) -> Plan:
    """The plan over named epochs, which must be landed; with `remove`, those that are gone become empty batches."""
    parent, found = survey(home, ledger)
    chosen, run = [], []
    for epoch in epochs:
        entry = found.get(epoch)
        label = home.schedule.label(epoch)
        if entry is not None and entry.state == "incomplete" and (entry.files or not remove):
            raise UsageError(
                f"epoch {label} is not landed completely: {entry.why}.", "altneu status, then the same command again"
            )
        if entry is None or (entry.state == "gone" and not remove):
            near = sorted((e for e in found.values() if e.state != "gone"), key=lambda e: abs(e.epoch - epoch))[:3]
            hint = f" The nearest landed: {', '.join(e.label for e in near)}." if near else " Nothing is landed."
            then = f"altneu run {label} --remove" if entry else "altneu land FILE --columns src,dst --epoch " + label
            raise UsageError(f"epoch {label} is not landed (no {home.landing / f'epoch={label}'}).{hint}", then)
        if entry.state == "folded" or (entry.state == "gone" and parent.since is not None and epoch < parent.since):
            assert parent.since is not None
            raise UsageError(
                f"epoch {label} cannot be replaced: a compaction has folded the history before epoch "
                f"{home.schedule.label(parent.since)} ([retention] epochs).",
                "altneu rebuild --from-landing   (everything again, from what is landed)",
            )
        chosen.append(entry)
        if entry.state != "published":
            run.append(epoch)
    return Plan(parent, tuple(chosen), tuple(run))


def plan_rebuild(home: Home, ledger: Ledger, from_landing: bool) -> Plan:
    """The plan that computes everything again: from the stored rows, or with `from_landing` from the files."""
    parent, found = survey(home, ledger)
    if parent.frontier is None:
        raise UsageError("nothing is published, so there is nothing to rebuild.", "altneu backfill --all")
    if not from_landing:
        return Plan(parent, tuple(e for e in found.values() if e.revision), (), "rebuild")
    unready = next((entry for entry in found.values() if entry.state == "incomplete"), None)
    if unready:
        raise UsageError(
            f"epoch {unready.label} is not landed completely: {unready.why}.", "altneu status, then the same again"
        )
    gone = [entry.label for entry in found.values() if entry.state == "gone"]
    if gone:
        raise UsageError(
            f"{len(gone)} published epoch(s) are not in the landing any more (the first: {gone[0]}): a rebuild from "
            "the landing would lose them.",
            f"altneu run {gone[0]} --remove   (takes it back on purpose), or: altneu rebuild",
        )
    return Plan(parent, tuple(found.values()), tuple(found), "reload")


def parts(home: Home, plan: Plan) -> list[tuple[int, ...]]:
    """The epochs of a plan cut into revisions, each with at most `[ingest] max_revision_mb` of landed files."""
    limit, size = home.config.max_revision_mb * 2**20, {e.epoch: e.bytes for e in plan.epochs}
    out: list[tuple[int, ...]] = []
    room = 0.0
    for epoch in plan.run:
        if not out or size.get(epoch, 0) > room:
            out.append(())
            room = limit
        out[-1] += (epoch,)
        room -= size.get(epoch, 0)
    return out


def changed_meaning(home: Home, ledger: Ledger) -> tuple[list[str], str]:
    """The settings that give history another meaning than what is published, in words; the kind of run they need.

    Kinds: `run` (nothing has changed, or only value columns were added, which no earlier file can have held),
    `rebuild`, `reload`, or `new` (another home).
    """
    parent = ledger.at()
    if parent.frontier is None or parent.config_digest == home.config.digest():
        return [], "run"
    old, new = dict(ledger.run(parent.run_id).config), home.config.semantic()
    words, needs = [], {"run"}
    # a compaction has dropped what had expired, and the totals of folded epochs cannot be counted again without it
    again = "rebuild" if parent.since is None else "reload"
    kinds = {"every": "new", "ids": "new", "live_for": again, "where": again}
    sections = {"every": "epochs", "ids": "vertices", "live_for": "edges", "where": "edges"}
    for name, kind in kinds.items():
        if old.get(name) != new[name]:
            words.append(f"[{sections[name]}] {name}: {_setting(old.get(name))} → {_setting(new[name])}")
            needs.add(kind)
    were, are = old.get("motifs") or {}, home.config.motifs
    if list(were.items()) != list(are.items()):
        changed = [name for name in dict.fromkeys([*were, *are]) if were.get(name) != are.get(name)]
        words += [f"[motifs] {name}: {_setting(were.get(name))} → {_setting(are.get(name))}" for name in changed]
        words += [] if changed else ["[motifs]: in another order"]
        needs.add(again)
    before = old.get("values") or {}
    for name in before:
        if new["values"].get(name) != before[name]:
            words.append(f"[values] {name}: {before[name]} → {_setting(new['values'].get(name))}")
            needs.add("reload")
    return words, next(kind for kind in ("new", "reload", "rebuild", "run") if kind in needs)


def _setting(value: Any) -> str:
    return "none" if value is None else str(value)


def begin(home: Home, ledger: Ledger, plan: Plan) -> str | None:
    """Record a run of the plan; return its id, or None when there is nothing to do.

    Raises `UsageError` when the settings have given history another meaning and the plan does not restate it.
    """
    if not plan.run and plan.kind == "run":
        return None
    words, needs = changed_meaning(home, ledger)
    enough = {"run": ("run",), "rebuild": ("run", "rebuild"), "reload": ("run", "rebuild", "reload")}[plan.kind]
    if needs not in enough:
        command = {
            "rebuild": "altneu rebuild   (every published epoch again, as one revision)",
            "reload": "altneu rebuild --from-landing   (every epoch again from the landed files, as one revision)",
            "new": "altneu --home ANOTHER land …   (the epochs or the ids themselves are other ones)",
        }[needs]
        raise UsageError(
            f"{home.path / 'altneu.toml'} gives another meaning to history than what revision {plan.parent.revision} "
            f"was published with: {'; '.join(words)}. Put it back, or publish history anew.",
            command,
        )
    run_id = new_run_id()
    ledger.begin(run_id, plan.parent.revision, list(plan.run), home.config.semantic(), plan.kind)
    telemetry.event("run started", **telemetry.named(home, ledger.run(run_id)))
    return run_id


def stage(home: Home, ledger: Ledger, run_id: str, name: str, say: Say = lambda stage, text: None) -> dict[str, Any]:
    """Run one stage of a run in this process; return its facts. Raises what the stage raises, after recording it."""
    from expectations.engine import prepare

    from ..storage.session import plans_for, session_for
    from .stages import STAGES as FUNCTIONS
    from .stages import Run

    row = ledger.run(run_id)
    if row.state == "published" and name not in ("publish", "report"):
        return ledger.facts(run_id, name)
    conflict = ledger.overtaken(run_id)
    if conflict is not None:
        raise conflict
    if name == "audit":
        prepare()
    with held(ledger, run_id):
        watch = telemetry.Stage(home, ledger, row, name)
        ledger.stage(run_id, name, "running", watch.started, {})
        try:
            spark = session_for(home, ledger, lambda: _landed_rows(home, row.epochs))
            run = Run(
                home,
                ledger,
                spark,
                run_id,
                ledger.parent(row),
                list(row.epochs),
                lambda text: say(name, text),
                row.kind or "run",
            )
            if name == STAGES[0]:
                run.warehouse.ensure(retype=not run.keeps("upserts") or run.parent.frontier is None)
            with plans_for(spark, run.stored() if name in COMPUTED else None):
                facts = watch.work(FUNCTIONS[name], run)
            if run.wrote:
                facts = {**facts, WRITTEN: texts(run.wrote)}
            ledger.stage(run_id, name, "done", watch.started, facts)
        except BaseException as error:
            said = _recorded(home, ledger, row, name, watch, error)
            if said is error:
                raise
            raise said from (error if isinstance(said, RunFailed) else None)
        watch.done(facts)
    return facts


def _recorded(
    home: Home, ledger: Ledger, run: sa.Row[Any], name: str, watch: telemetry.Stage, error: BaseException
) -> BaseException:
    """Record how a stage ended that did not finish; return what to raise. What is no `Exception` (a signal, a
    scheduler's termination or timeout) goes on unchanged, also where cleaning up has failed after it."""
    stop = asked(error)
    what, then = explained(error)
    state, said = "failed", f"{name}: {what}"
    if stop is not None:
        reason = f" ({type(stop).__name__}: {stop})"
        if isinstance(stop, (Interrupted, KeyboardInterrupt)):
            reason = ""
        if isinstance(stop, Interrupted):
            stop.during = name
        state, said = "interrupted", f"interrupted during {name}{reason}"
        what = said
    elif isinstance(error, Conflict):
        state = "superseded"
    with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):  # the database itself may be what failed
        ledger.stage(run.run_id, name, state, watch.started, {"error": what, "cost": watch.cost})
        if name != "report":
            ledger.finish(run.run_id, state, said)
    if stop is None and name != "report":
        from ..report import refresh

        refresh(home, ledger, run.epochs)
    watch.failed(what)
    if stop is not None:
        return stop
    if isinstance(error, AltneuError):
        return error
    failed = Unavailable if transient(error) else RunFailed
    return failed(f"stage {name} of run {run.run_id} failed: {what}. What was published is untouched.", then)


def _landed_rows(home: Home, epochs: Sequence[int]) -> float:
    """How many rows are in the landing of some epochs, about."""
    landed = landing.listing(home)
    return sum(landed[epoch].bytes for epoch in epochs if epoch in landed) / landing.BYTES_PER_ROW


def run(home: Home, ledger: Ledger, plan: Plan, say: Say = lambda stage, text: None) -> Revision | None:
    """All stages of a plan; return the published revision, or None when there was nothing to do."""
    from expectations.engine import prepare

    run_id = begin(home, ledger, plan)
    if run_id is None:
        return None
    try:
        prepare()
        for name in STAGES:
            say(name, "")
            facts = stage(home, ledger, run_id, name, say)
            say(name, "done " + shown(home, facts))
    except Interrupted as stop:
        with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
            if stop.during is None:  # between two stages
                done = {row.stage for row in ledger.stages(run_id) if row.state == "done"}
                stop.during = next((name for name in STAGES if name not in done), STAGES[-1])
            # again, in case the stage could not: its own write may be what was interrupted
            ledger.finish(run_id, "interrupted", f"interrupted during {stop.during}")
            ledger.give_back(run_id)
        raise
    return ledger.at()


def rollback(home: Home, ledger: Ledger, revision: int) -> tuple[Revision, list[int]]:
    """Publish the state of an old revision as a new one; return it, and the epochs whose batches it takes back.
    Revision 0 is the empty state.

    The new ledger row pins the old one's tables, so nothing is computed and nothing is written but SQL. The landing is
    as it was: what it holds beyond that state shows as missing or changed again.
    """
    if revision < 0:
        raise UsageError(f"there is no revision {revision} to go back to.", "altneu status")
    from ..report import refresh

    parent, target = ledger.at(), ledger.at(revision)
    if revision == parent.revision or (parent.frontier is None and target.frontier is None):
        state = f"revision {revision}" if revision == parent.revision else f"empty, as of revision {revision}"
        raise UsageError(f"what is published is {state} already. Nothing was changed.", "altneu status")
    if not target.snapshots and target.frontier is not None:
        raise UsageError(
            f"revision {revision} cannot be read any more: a compaction kept only the newest ones.", "altneu status"
        )
    before, after = ledger.batches(parent.revision), ledger.batches(target.revision)
    epochs = [e for e in sorted({*before, *after}) if before.get(e) != after.get(e)]
    run_id = new_run_id()
    config = dict(ledger.run(target.run_id).config) if target.revision else home.config.semantic()
    ledger.begin(run_id, parent.revision, epochs, config, "rollback")
    with held(ledger, run_id):
        try:
            published = _publish_again(home, ledger, run_id, parent, target, epochs)
        except BaseException as error:
            state, why = (
                ("interrupted", "interrupted during rollback") if asked(error) else ("failed", explained(error)[0])
            )
            with contextlib.suppress(sa.exc.SQLAlchemyError, LeaseLost):
                ledger.finish(run_id, state, why)
            raise
    refresh(home, ledger, [epoch for epoch in epochs if epoch in after])
    return published, epochs


def _publish_again(
    home: Home, ledger: Ledger, run_id: str, parent: Revision, target: Revision, epochs: list[int]
) -> Revision:
    after = ledger.batches(target.revision)
    nothing = {"digest": "", "files": 0, "rows": 0, "bad_rows": 0}
    taken = {e: after[e] for e in epochs if e in after}
    ledger.put_batches(
        run_id,
        [{"epoch": e, **({k: getattr(taken[e], k) for k in nothing} if e in taken else nothing)} for e in epochs],
    )
    sums: dict[tuple[str, int, int], int] = {}
    for measure, k, epoch, at, diff in ledger.total_diffs(parent.revision):
        if at > target.revision:
            sums[measure, k, epoch] = sums.get((measure, k, epoch), 0) - diff
    measures = {measure for measure, _, _ in sums}
    ledger.put_totals(run_id, measures, [(*key, diff) for key, diff in sums.items()])
    return ledger.publish(
        run_id,
        parent.revision,
        target.frontier,
        target.snapshots,
        target.config_digest or home.config.digest(),
        target.mark,
        target.since,
        again=target,
    )


_CALLED = {"rows_before": "before", "first_epoch": "from epoch"}
_UNTOLD = {"changed_rows"}  # stored diffs: a row that went moves the line numbers of those after it


def shown(home: Home, facts: dict[str, Any]) -> str:
    """What came of a stage, in a line; epochs by their labels."""
    told = []
    for key, value in facts.items():
        if key in _UNTOLD:
            continue
        name = _CALLED.get(key, key.replace("_", " "))
        if isinstance(value, str):
            told.append(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            told.append(f"{name} {home.schedule.label(value) if key.endswith('_epoch') else f'{value:,}'}")
    return ", ".join(told)
