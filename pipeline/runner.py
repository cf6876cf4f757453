"""Runs: what to run (`plan`), and running it stage by stage (`begin`, `stage`, `run`).

`plan` compares the landing with the ledger and has no side effect on the published state. `begin` records a run on the
newest revision; `stage` executes one stage of it in this process, so that each may be a task of its own. Every stage is
recorded with its seconds and facts; a failure is recorded with its error and loses nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import landing
from .config import Home
from .errors import AltneuError, RunFailed, UsageError
from .ledger import Ledger, Revision

STAGES = ("ingest", "edges", "triangles", "truss", "audit", "publish", "report")
Say = Callable[[str, str], None]  # stage, text


@dataclass(frozen=True)
class Epoch:
    """One epoch as the landing and the ledger have it. States: missing, changed, published, gone."""

    epoch: int
    label: str
    state: str
    digest: str | None = None
    files: int = 0
    revision: int | None = None
    rows: int = 0


@dataclass(frozen=True)
class Plan:
    """What a run would do: `run` are the epochs whose batch is missing or changed, among `epochs`."""

    parent: Revision
    epochs: tuple[Epoch, ...]
    run: tuple[int, ...] = field(default=())


def survey(home: Home, ledger: Ledger) -> tuple[Revision, dict[int, Epoch]]:
    """Every landed or published epoch with its state."""
    parent = ledger.at()
    landed = landing.listing(home)
    digests = landing.digest(ledger, landed.values())
    published = ledger.batches(parent.revision)
    found = {}
    for epoch in sorted(set(landed) | set(published)):
        batch = published.get(epoch)
        if epoch not in landed:
            state = "published" if batch and batch.digest == landing.EMPTY_DIGEST else "gone"
        elif batch is None:
            state = "missing"
        else:
            state = "published" if batch.digest == digests[epoch] else "changed"
        found[epoch] = Epoch(
            epoch,
            home.schedule.label(epoch),
            state,
            digests.get(epoch),
            len(landed[epoch].files) if epoch in landed else 0,
            batch.revision if batch else None,
            batch.rows if batch else 0,
        )
    return parent, found


def plan(home: Home, ledger: Ledger, wanted: Callable[[Epoch], bool], force: bool = False) -> Plan:
    """The plan over the epochs that `wanted` accepts. `force`: those whose batch is unchanged too."""
    parent, found = survey(home, ledger)
    epochs = tuple(epoch for epoch in found.values() if wanted(epoch))
    run = tuple(e.epoch for e in epochs if e.state in ("missing", "changed") or (force and e.state == "published"))
    return Plan(parent, epochs, run)


def plan_epochs(home: Home, ledger: Ledger, epochs: Iterable[int], remove: bool = False) -> Plan:
    """The plan over named epochs, which must be landed; with `remove`, those that are gone become empty batches."""
    parent, found = survey(home, ledger)
    chosen, run = [], []
    for epoch in epochs:
        entry = found.get(epoch)
        label = home.schedule.label(epoch)
        if entry is None or (entry.state == "gone" and not remove):
            near = sorted((e for e in found.values() if e.state != "gone"), key=lambda e: abs(e.epoch - epoch))[:3]
            hint = f" The nearest landed: {', '.join(e.label for e in near)}." if near else " Nothing is landed."
            then = f"altneu run {label} --remove" if entry else "altneu land FILE --columns src,dst --epoch " + label
            raise UsageError(f"epoch {label} is not landed (no {home.landing / f'epoch={label}'}).{hint}", then)
        chosen.append(entry)
        if entry.state != "published":
            run.append(epoch)
    return Plan(parent, tuple(chosen), tuple(run))


def begin(home: Home, ledger: Ledger, plan: Plan) -> str | None:
    """Record a run of the plan; return its id, or None when there is nothing to do."""
    if not plan.run:
        return None
    parent = plan.parent
    if parent.revision and parent.config_digest != home.config.digest():
        raise UsageError(
            f"{home.path / 'altneu.toml'} now gives another meaning to history than what revision {parent.revision} "
            "was published with ([epochs] every, [vertices] ids, [values], or [edges] live_for or where has changed).",
            "put the old settings back, or publish into a new home",
        )
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:8]}"
    ledger.begin(run_id, parent.revision, list(plan.run), home.config.semantic())
    return run_id


def stage(home: Home, ledger: Ledger, run_id: str, name: str, say: Say = lambda stage, text: None) -> dict[str, Any]:
    """Run one stage of a run in this process; return its facts. Raises what the stage raises, after recording it."""
    from .spark import session
    from .stages import STAGES as FUNCTIONS
    from .stages import Run

    row = ledger.run(run_id)
    if row.state == "published" and name != "report":
        return ledger.facts(run_id, name)
    started = time.time()
    ledger.stage(run_id, name, "running", started, {})
    try:
        spark = session(home.config.master, home.config.conf)
        parent = ledger.at(row.parent)
        run = Run(home, ledger, spark, run_id, parent, list(row.epochs), lambda text: say(name, text))
        facts = FUNCTIONS[name](run)
    except BaseException as error:
        what = error.what if isinstance(error, AltneuError) else f"{type(error).__name__}: {_first_line(error)}"
        ledger.stage(run_id, name, "failed", started, {"error": what})
        if name != "report":
            ledger.finish(run_id, "failed", f"{name}: {what}")
        if isinstance(error, (AltneuError, KeyboardInterrupt)):
            raise
        raise RunFailed(
            f"stage {name} of run {run_id} failed: {what}. What was published is untouched.",
            "run the same command again; if it fails again: altneu doctor",
        ) from error
    ledger.stage(run_id, name, "done", started, facts)
    return facts


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else ""


def run(home: Home, ledger: Ledger, plan: Plan, say: Say = lambda stage, text: None) -> Revision | None:
    """All stages of a plan; return the published revision, or None when there was nothing to do."""
    run_id = begin(home, ledger, plan)
    if run_id is None:
        return None
    for name in STAGES:
        say(name, "")
        facts = stage(home, ledger, run_id, name, say)
        say(name, "done " + _shown(facts))
    return ledger.at()


def _shown(facts: dict[str, Any]) -> str:
    kept = {k: v for k, v in facts.items() if isinstance(v, (int, str)) and not isinstance(v, bool)}
    return ", ".join(
        f"{key.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{value}" for key, value in kept.items()
    )
