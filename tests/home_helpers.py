"""Small homes for tests: write batches into the landing, run, and read back what is published."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altneu.pipeline.home.home import Config, Home
from altneu.pipeline.landing.local_landing import seal_folder
from altneu.pipeline.run import planning, runner, stages
from altneu.pipeline.run.choices.plan_choices import TrussChoice
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import Revision, RunRecord, StageState
from altneu.pipeline.state.stage_results import AuditFacts, TrussFacts, from_json
from tests.reference import Row

if TYPE_CHECKING:
    pass


def make(path: Path, toml: str = "") -> tuple[Home, Ledger]:
    path.mkdir(parents=True, exist_ok=True)
    (path / "altneu.toml").write_text(toml)
    home = Home.open(path)
    return home, Ledger(home)


def open_database(uri: str, *, writes: bool = False) -> Ledger:
    """Open the ledger of a home of which nothing exists but its database."""
    config = Config()
    storage = config.storage.model_copy(update={"database": uri})
    return Ledger(Home(Path(), config.model_copy(update={"storage": storage})), writes)


def put(home: Home, epoch: int, rows: Iterable[Row]) -> None:
    """Land a batch, replacing the epoch's folder."""
    folder = home.landing / f"epoch={home.schedule.format_label(epoch)}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    values = list(home.config.values)
    lines = [",".join(["src", "dst", *values, "op", "seq"])]
    for src, dst, value, op, seq in rows:
        cells = [src, dst, *(["" if value is None else value] if values else []), op, seq]
        lines.append(",".join(map(str, cells)))
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "_SUCCESS").touch()


def remove(home: Home, epoch: int) -> None:
    """Take the folder of an epoch out of the landing."""
    shutil.rmtree(home.landing / f"epoch={home.schedule.format_label(epoch)}")


def run(ledger: Ledger, epochs: Iterable[int], remove: bool = False) -> Revision | None:
    return run_as_planned(ledger, planning.plan_epochs(ledger, epochs, remove=remove))


def run_as_planned(ledger: Ledger, plan: planning.Plan) -> Revision | None:
    """Run a plan, and hold the run to what was shown of it: each decision went one of the ways that were open."""
    shown = forecast_run(ledger, plan).decisions
    revision = runner.execute_run(ledger, plan)
    assert not isinstance(revision, RunRecord)
    for decision in shown if revision else []:
        facts = ledger.stages.get_facts(revision.run_id, decision.FACTS)
        if not (isinstance(facts, AuditFacts) and not facts.checks):  # where a test takes the audit out
            assert decision.strategy_of(facts) in decision.possible_strategies, (decision, facts)
        if isinstance(decision, TrussChoice) and isinstance(facts, TrussFacts) and facts.first_epoch is not None:
            assert decision.first_epoch is not None and decision.first_epoch <= facts.first_epoch, (decision, facts)
    return revision


def branches(refs: Iterable[str]) -> set[str]:
    """Of the names in a table those that are no tags of revisions."""
    return {name for name in refs if not re.fullmatch(r"r\d+", name)}


def hold(ledger: Ledger, epochs: Iterable[int]) -> RunRecord:
    """Run some epochs without publishing them."""
    run = runner.execute_run(ledger, planning.plan_epochs(ledger, epochs), hold=True)
    assert isinstance(run, RunRecord)
    return run


def run_without(ledger: Ledger, epoch: int, skip: Iterable[str]) -> dict[str, float]:
    """Publish one epoch without some of its stages, for benchmarks of the others; seconds of each that ran."""
    run_id = runner.begin_run(ledger, planning.plan_epochs(ledger, [epoch]))
    assert run_id is not None
    seconds = {}
    for name in stages.NAMES:
        begin = time.time()
        if name in skip:
            ledger.stages.record(run_id, name, StageState.DONE, begin, from_json(name, {"failed": 0}))
        else:
            runner.execute_stage(ledger, run_id, name)
            seconds[name] = time.time() - begin
    return seconds


def old(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The stored home of before homes had a format, unpacked below `folder`: it, and what it answered then."""
    shutil.unpack_archive(Path(__file__).parent / "data" / "home-of-format-0.tar.gz", folder)
    for landed in (folder / "home" / "landing").glob("epoch=*"):
        seal_folder(
            landed, sum(file.read_text().count("\n") - 1 for file in landed.iterdir())
        )  # they are whole at once
    return folder / "home", json.loads((folder / "answers.json").read_text())
