"""Epochs that have landed before the history that a compaction has kept: no run can take them up, so they are reported.

Each such epoch is a failed check, and so an incident, until its files are as they were, or until everything is read
again from the landing. It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from expectations.model import Check

from ..home.home import Home
from ..state.incidents import list_incidents
from ..state.ledger import Ledger
from .epoch_states import EpochState, compare_with_ledger

SUITE, NAME = "landing", "what has landed can be published"
REMEDY = "altneu rebuild --from-landing   (computes everything again), or put the former files back"
_MEANING = "What has landed for an epoch is published, unless a compaction has folded the history before it."


def record_folded(home: Home, ledger: Ledger) -> list[EpochState]:
    """Return the landed epochs that a compaction has folded.

    Each new one is recorded as a failed check, and each that is not folded any more as a passed one.
    """
    if ledger.revisions.get().since is None:
        return []
    parent, states = compare_with_ledger(home, ledger)
    folded = {entry.epoch: entry for entry in states.values() if entry.state == "folded"}
    failing = {
        failure.epoch
        for incident in list_incidents(ledger)
        for failure in incident.open_failures
        if (failure.suite, failure.name) == (SUITE, NAME) and failure.epoch is not None
    }
    new = [_build_check(epoch, str(entry.why), passed=False) for epoch, entry in folded.items() if epoch not in failing]
    over = [_build_check(epoch, "it is as it was published", passed=True) for epoch in sorted(failing - set(folded))]
    if new or over:
        ledger.checks.put(None, parent.revision, [*new, *over])
    return list(folded.values())


def describe_folded(epochs: Iterable[EpochState]) -> str:
    """Describe in one line which epochs a compaction has folded."""
    listed = list(epochs)
    shown = ", ".join(entry.label for entry in listed[:5]) + (" …" if len(listed) > 5 else "")
    return f"{len(listed):,} landed epoch(s) cannot be published ({shown}): {listed[0].why}"


def _build_check(epoch: int, observed: str, *, passed: bool) -> Check:
    return {
        "epoch": epoch,
        "suite": SUITE,
        "name": NAME,
        "severity": "warning",
        "passed": passed,
        "meaning": _MEANING,
        "remedy": REMEDY,
        "observed": observed,
        "rows": [],
    }
