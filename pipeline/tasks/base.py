"""What the tasks share: the home, the format of their errors, and what they pass to each other by XCom."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from ..errors import AltneuError

if TYPE_CHECKING:
    from altneu.expectations.model import Check

    from ..home.home import Home
    from ..state.ledger import Ledger

PREFIX = "altneu"  # the prefix of the DAGs of the home that the environment names
POOL = "altneu_stages"  # it has one slot, so that runs compute and publish one after the other
PUBLISH = "publish"  # the stage with a task function of its own
MANY_CHECKS = 20  # the number of failed checks that an error lists
MANY_EPOCHS = 200  # the number of epochs whose totals an asset event holds

Say = Callable[[str], None]


class RemainingRange(TypedDict):
    """The parameters of the next run of a range that is too large for one run."""

    first: str
    last: str | int | None
    again: bool
    accept: bool


class PlannedRun(TypedDict):
    """The result of `plan` for the stages: the id of a run, whose epochs are in the ledger, and how to treat them."""

    run_id: str
    label: str  # the label of the DAG run's own epoch, or of the last epoch
    parent: int
    rest: NotRequired[RemainingRange]
    own: NotRequired[int]  # the epoch of the DAG run, if the run takes along those of other DAG runs
    accept: NotRequired[bool]  # accept any number of rows, see `run.row_count_gate`


def skippable_epochs(ledger: Ledger, planned: PlannedRun) -> list[int]:
    """Return the epochs that a run may leave out if their batches are wrong: those of other DAG runs."""
    epochs = ledger.runs.get(planned["run_id"]).epochs
    return [epoch for epoch in epochs if epoch != planned["own"]] if "own" in planned else []


def last_label(handed: Mapping[str, Any]) -> str | None:
    """Return the label of the last epoch of a `PlannedRun` or `PublishedRun`.

    A run that was planned by an earlier version, and has waited for its approval since, has all labels.
    """
    label = handed.get("label") or next(reversed(handed.get("labels", ())), None)
    return None if label is None else str(label)


class ApprovalRequest(TypedDict):
    """The question to a person about a held run. `page` is the file of the page with the difference, if there is
    one."""

    subject: str
    body: str
    page: str | None


class PublishedRun(TypedDict):
    """The result of `publish`: the run that published. `revision` is None if other runs had published the same
    meanwhile."""

    run_id: str
    revision: int | None
    epochs: list[int]
    labels: list[str]
    reruns: int


class ChangedPartitions(TypedDict):
    """The partitions of an asset that have changed after the revision `since`, up to `revision`, for those who follow.

    `partitions` has for each label of an epoch the kind of the change, and the totals before and after (None: not
    published); for each key of a period the kind of the change, and the kinds of its changed epochs by label.
    `revision` is None if nothing has changed. `frontier` is the label of the frontier.
    """

    since: int
    revision: int | None
    frontier: str | None
    partitions: dict[str, dict[str, Any]]


def ignore_message(text: str) -> None:
    """Ignore a message."""


def release_session() -> None:
    """Release the session of a task at a Spark Connect server, at the end of the task."""
    if "altneu.pipeline.storage.session" in sys.modules:
        from ..storage.session import release_session

        release_session()


def home_path() -> str:
    """Return the path of the home that the DAGs work on."""
    return os.environ.get("ALTNEU_HOME", ".altneu")


def format_error(error: AltneuError) -> str:
    """Format an error for an operator on call: what happened, and what to type."""
    return error.what + (f"\nnext: {error.next}" if error.next else "")


def open_ledger(path: str, *, writes: bool = True) -> Ledger:
    """Open the ledger of the home at a path; `writes` says that the task may write to it."""
    from ..home.home import Home
    from ..state import home_identity

    return home_identity.open_ledger(Home.open(path), writes=writes)


def format_failures(home: Home, failed: list[Check]) -> str:
    """Format failed checks as lines: epoch, check, what was observed, and the first rows."""
    lines = []
    for result in failed[:MANY_CHECKS]:
        lines.append(f"  {home.schedule.format_label(result['epoch'])}: {result['name']}: {result['observed']}")
        for row in result["rows"][:5]:
            lines.append("      " + str({name: value for name, value in row.items() if name != "why"}))
            lines += [f"        {line}" for line in row.get("why", ())]
    if len(failed) > MANY_CHECKS:
        lines.append(f"  … and {len(failed) - MANY_CHECKS} more checks")
    return "\n".join(lines)
