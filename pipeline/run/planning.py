"""The plan of a run: which epochs it takes, and as how many revisions.

The functions compare the landing with the ledger, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..errors import UsageError
from ..home.home import Home
from ..home.queries import RELATION_PREFIX
from ..landing.epoch_states import REMEDY, EpochComparison, compare_with_ledger
from ..state.ledger import Ledger
from ..state.records import Revision, RunKind
from .choices.plan_choice import Scope
from .query_changes import QueryChanges, compare_queries


@dataclass(frozen=True)
class Plan:
    """What a run would do. `run` are those of the `epochs` whose batch is missing or changed."""

    parent: Revision
    epochs: tuple[EpochComparison, ...]
    run: tuple[int, ...] = field(default=())
    kind: RunKind = RunKind.RUN
    queries: QueryChanges = field(default_factory=QueryChanges)

    @property
    def is_idle(self) -> bool:
        """Tell whether there is nothing to do."""
        return not self.run and self.kind is RunKind.RUN and not self.queries.needs_run

    @property
    def scope(self) -> Scope:
        return Scope(self.parent, self.run, self.kind, self.queries.rewritten_tables)

    def in_state(self, state: str) -> list[EpochComparison]:
        """Return the epochs of the plan that are in a given state."""
        return [entry for entry in self.epochs if entry.state == state]


def plan_run(ledger: Ledger, wanted: Callable[[EpochComparison], bool], *, force: bool = False) -> Plan:
    """Plan a run of the epochs that `wanted` accepts; with `force`, also of those whose batch is unchanged."""
    parent, states = compare_with_ledger(ledger)
    epochs = tuple(epoch for epoch in states.values() if wanted(epoch))
    queries = compare_queries(ledger, parent)
    own = {e.epoch for e in epochs if e.state in ("missing", "changed") or (force and e.state == "published")}
    run = own | _epochs_of_new_relations(states.values(), queries)
    return Plan(parent, epochs, tuple(epoch for epoch in states if epoch in run), queries=queries)


def epochs_within(home: Home, first: str | None, last: str | None) -> Callable[[EpochComparison], bool]:
    """Return a predicate that tells whether an epoch is in a range of labels, including both ends.

    A bound that is None does not limit the range. Raise `UsageError` where the range is empty.
    """
    low = home.schedule.parse_epoch(first) if first else None
    high = home.schedule.parse_epoch(last) if last else None
    if low is not None and high is not None and low > high:
        raise UsageError(f"the range {first} … {last} is empty: the first epoch is after the last.")
    return lambda e: (low is None or e.epoch >= low) and (high is None or e.epoch <= high)


def plan_epochs(ledger: Ledger, epochs: Iterable[int], *, remove: bool = False) -> Plan:
    """Plan a run of named epochs.

    Args:
        ledger: The ledger of the home.
        epochs: The epochs, which must be landed.
        remove: Whether published epochs that are no longer in the landing become empty batches.

    Raises:
        UsageError: An epoch is not landed, is landed incompletely, or was folded by a compaction.
    """
    home = ledger.home
    parent, states = compare_with_ledger(ledger)
    chosen, run = [], []
    for epoch in epochs:
        entry = states.get(epoch)
        label = home.schedule.format_label(epoch)
        if entry is not None and entry.state == "incomplete" and (entry.files or not remove):
            raise UsageError(
                f"epoch {label} is not landed completely: {entry.why}.", "altneu status, then repeat the command"
            )
        if entry is None or (entry.state == "gone" and not remove):
            near = sorted((e for e in states.values() if e.state != "gone"), key=lambda e: abs(e.epoch - epoch))[:3]
            hint = (
                f" The nearest landed epochs are {', '.join(e.label for e in near)}." if near else " Nothing is landed."
            )
            then = f"altneu run {label} --remove" if entry else "altneu land FILE --columns src,dst --epoch " + label
            raise UsageError(f"epoch {label} is not landed (no {home.landed_at}/epoch={label}).{hint}", then)
        if entry.state == "folded" or (entry.state == "gone" and parent.since is not None and epoch < parent.since):
            assert parent.since is not None
            raise UsageError(
                f"epoch {label} cannot be replaced: a compaction has folded the history before epoch "
                f"{home.schedule.format_label(parent.since)} ([retention] epochs).",
                REMEDY,
            )
        chosen.append(entry)
        if entry.state != "published":
            run.append(epoch)
    queries = compare_queries(ledger, parent) if run else QueryChanges()
    run += sorted(_epochs_of_new_relations(states.values(), queries) - {*run}) if run else []
    return Plan(parent, tuple(chosen), tuple(run), queries=queries)


def _epochs_of_new_relations(states: Iterable[EpochComparison], queries: QueryChanges) -> set[int]:
    """Return the published epochs with files of a relation that has to be read again, because it is new or changed."""
    relations = {name for name in queries.relations if RELATION_PREFIX + name in queries.rewritten_tables}
    return {each.epoch for each in states if each.state == "published" and each.relations & relations}


def plan_rebuild(ledger: Ledger, *, from_landing: bool) -> Plan:
    """Plan a run that computes everything again: from the stored rows, or with `from_landing` from the files.

    Raise `UsageError` where nothing is published, or where the landing does not have every published epoch.
    """
    parent, states = compare_with_ledger(ledger)
    if parent.frontier is None:
        raise UsageError("nothing is published, so there is nothing to rebuild.", "altneu backfill --all")
    if not from_landing:
        return Plan(parent, tuple(e for e in states.values() if e.revision), (), RunKind.REBUILD)
    unready = next((entry for entry in states.values() if entry.state == "incomplete"), None)
    if unready:
        raise UsageError(
            f"epoch {unready.label} is not landed completely: {unready.why}.", "altneu status, then repeat the command"
        )
    gone = [entry.label for entry in states.values() if entry.state == "gone"]
    if gone:
        raise UsageError(
            f"{len(gone)} published epoch(s) are not in the landing any more (the first: {gone[0]}); a rebuild from "
            "the landing would lose them.",
            f"altneu run {gone[0]} --remove   (removes it on purpose), or: altneu rebuild",
        )
    return Plan(parent, tuple(states.values()), tuple(states), RunKind.RELOAD)


def split_by_size(home: Home, plan: Plan) -> list[tuple[int, ...]]:
    """Split the epochs of a plan into revisions, each with at most `[ingest] max_revision_mb` of landed files.

    An epoch that is larger than this is a revision of its own.
    """
    limit, size = home.config.ingest.max_revision_mb * 2**20, {e.epoch: e.bytes for e in plan.epochs}
    pieces: list[tuple[int, ...]] = []
    room = 0.0
    for epoch in plan.run:
        if not pieces or size.get(epoch, 0) > room:
            pieces.append(())
            room = limit
        pieces[-1] += (epoch,)
        room -= size.get(epoch, 0)
    return pieces
