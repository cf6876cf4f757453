"""What the tasks share: the home, the format of their errors, and what they pass to each other by XCom."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from ..errors import AltneuError

if TYPE_CHECKING:
    from expectations.model import Check

    from ..home.home import Home
    from ..state.ledger import Ledger

PREFIX = "altneu"  # of the DAGs of the home that the environment names
POOL = "altneu_stages"  # one slot: runs compute and publish one after the other
PUBLISH = "publish"  # the stage with a task function of its own
MANY_CHECKS = 20  # failed checks that an error lists
MANY_EPOCHS = 200  # whose totals an asset event holds

Say = Callable[[str], None]


class RemainingRange(TypedDict):
    """The parameters of the next run of a range that is too large for one."""

    first: str
    last: str | int | None
    again: bool
    accept: bool


class PlannedRun(TypedDict):
    """What `plan` hands to the stages: the run, whose epochs are in the ledger, as many as they may be."""

    run_id: str
    label: str  # of the epoch whose page says most of it: the DAG run's own, or its last
    parent: int
    rest: NotRequired[RemainingRange]
    own: NotRequired[int]  # the epoch of the DAG run, where the run takes along those of other DAG runs
    accept: NotRequired[bool]  # any number of rows, see `run.gate`


def skippable_epochs(ledger: Ledger, planned: PlannedRun) -> list[int]:
    """The epochs that a run goes on without where their own batches are wrong: those of other DAG runs."""
    epochs = ledger.get_run(planned["run_id"]).epochs
    return [epoch for epoch in epochs if epoch != planned["own"]] if "own" in planned else []


def batch_policy(ledger: Ledger, planned: PlannedRun) -> tuple[list[int], bool]:
    """How `runner.execute_stage` treats batches that are wrong: `skippable_epochs` and `accept`."""
    return skippable_epochs(ledger, planned), planned.get("accept", False)


def last_label(handed: Mapping[str, Any]) -> str | None:
    """The label of the last epoch of what tasks hand over, `PlannedRun` or `PublishedRun`; a run that has waited for
    its approval since the version before was planned with all its labels."""
    label = handed.get("label") or next(reversed(handed.get("labels", ())), None)
    return None if label is None else str(label)


class ApprovalRequest(TypedDict):
    """What a person is asked about a held run; `page`: the file of the page with the difference, if there is one."""

    subject: str
    body: str
    page: str | None


class PublishedRun(TypedDict):
    """What `publish` returns: the run that published; `revision` None: others had published the same meanwhile."""

    run_id: str
    revision: int | None
    epochs: list[int]
    labels: list[str]
    reruns: int


class ChangedEpochs(TypedDict):
    """What those learn who follow epochs: by label its kind, and its totals before and after (None: not published).
    After the revision `since`, up to `revision`; that is None when there is nothing to tell."""

    since: int
    revision: int | None
    epochs: dict[str, dict[str, str | dict[str, int] | None]]


def ignore_message(text: str) -> None:
    """Say nothing."""


def release_session() -> None:
    """What a task releases at its end: its session at a Spark Connect server."""
    if "pipeline.storage.session" in sys.modules:
        from ..storage.session import release_session

        release_session()


def home_path() -> str:
    """The home that the DAGs work on."""
    return os.environ.get("ALTNEU_HOME", ".altneu")


def format_error(error: AltneuError) -> str:
    """An error as an operator on call reads it: what happened, and what to type."""
    return error.what + (f"\nnext: {error.next}" if error.next else "")


def open_home(path: str, *, writes: bool = True) -> tuple[Home, Ledger]:
    """A home and its ledger; `writes`: the task may write to it."""
    from ..home.home import Home
    from ..state import home_identity

    home = Home.open(path)
    return home, home_identity.open_ledger(home, writes=writes)


def abbreviate_labels(labels: list[str]) -> str:
    """So many epochs, in few words."""
    if len(labels) == 1:
        return f"epoch {labels[0]}"
    return f"{len(labels)} epochs" + (f" ({labels[0]} … {labels[-1]})" if labels else "")


def format_failures(home: Home, failed: list[Check]) -> str:
    """Failed checks as lines: epoch, check, what was observed, and the first rows."""
    lines = []
    for result in failed[:MANY_CHECKS]:
        lines.append(f"  {home.schedule.format_label(result['epoch'])}: {result['name']}: {result['observed']}")
        for row in result["rows"][:5]:
            lines.append("      " + str({name: value for name, value in row.items() if name != "why"}))
            lines += [f"        {line}" for line in row.get("why", ())]
    if len(failed) > MANY_CHECKS:
        lines.append(f"  … and {len(failed) - MANY_CHECKS} more checks")
    return "\n".join(lines)
