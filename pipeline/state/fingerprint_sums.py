"""The fingerprints of tables by epoch (`altneu.algorithms.fingerprint`), as the ledger stores them: sums, folds,
comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from altneu.algorithms.fingerprint import Fingerprint

ByEpoch = Mapping[int, Fingerprint]
Prints = dict[str, dict[int, Fingerprint]]  # table → epoch → fingerprint of what changes there
UNKNOWN = ""  # in place of a fingerprint: from this run on the table's is not known, until a run computes it again
TIMELESS = ("names", "quarantine")  # tables that a compaction does not fold to an epoch


@dataclass(frozen=True)
class FingerprintDifference:
    """A table whose fingerprints are not as expected: the first such epoch, and the number of such epochs."""

    table: str
    epoch: int
    expected: Fingerprint
    actual: Fingerprint
    epochs: int

    def describe(self, label: str) -> str:
        more = f", and of {self.epochs - 1:,} more epoch(s)" if self.epochs > 1 else ""
        return f"table {self.table}, epoch {label}: fingerprint {self.actual} instead of {self.expected}{more}"


def sum_by_revision(
    diffs: Iterable[tuple[int, str, int, str]], revisions: Iterable[int], published: Iterable[int] = ()
) -> dict[int, Prints]:
    """Add up rows `(revision, table, epoch, fingerprint)` to the fingerprints at some revisions.

    Epochs whose sum is zero are left out. So are tables whose fingerprints are not known: where a published revision
    has no row of a table, an earlier version has made that revision, and may have changed the table.

    Args:
        diffs: The rows.
        revisions: The revisions at which to add up.
        published: All published revisions.

    Returns:
        Revision → table → epoch → fingerprint.
    """
    by_revision: dict[int, list[tuple[str, int, str]]] = {revision: [] for revision in published}
    for revision, table, epoch, text in diffs:
        by_revision.setdefault(revision, []).append((table, epoch, text))
    sums: dict[str, dict[int, tuple[int, int]]] = {}  # of both halves of the digits, as whole numbers
    at_revision: dict[int, Prints] = {}
    wanted = {*revisions}
    for revision in sorted(wanted | {*by_revision}):
        if revision in by_revision:
            known = {table for table, _, text in by_revision[revision] if text != UNKNOWN}
            sums = {table: by_epoch for table, by_epoch in sums.items() if table in known}
        for table, epoch, text in by_revision.get(revision, ()):
            if text != UNKNOWN:
                by_epoch = sums.setdefault(table, {})
                first, second = by_epoch.get(epoch, (0, 0))
                by_epoch[epoch] = first + int(text[:16], 16), second + int(text[16:], 16)
        if revision in wanted:
            prints = {
                table: {epoch: Fingerprint.from_sums(*each) for epoch, each in sorted(by.items())}
                for table, by in sums.items()
            }
            at_revision[revision] = {
                table: {epoch: each for epoch, each in by.items() if each} for table, by in prints.items()
            }
    return at_revision


def sum_before(prints: Prints, first: int) -> Prints:
    """Return the fingerprints with the sum of those before epoch `first` at `first` - 1."""
    folded: Prints = {}
    for table, by_epoch in prints.items():
        before = Fingerprint.sum_all(each for epoch, each in by_epoch.items() if epoch < first)
        since = {epoch: each for epoch, each in by_epoch.items() if epoch >= first}
        folded[table] = {**({first - 1: before} if before else {}), **since}
    return folded


def sum_texts(joined: str) -> Fingerprint:
    """Add up fingerprints, whose texts of 32 digits are joined into one."""
    import numpy as np

    halves = np.frombuffer(bytes.fromhex(joined), ">u8").reshape(-1, 2).sum(axis=0, dtype=np.uint64)
    return Fingerprint(int(halves[0]), int(halves[1]))


class RunningFingerprint:
    """The sum of fingerprints up to an epoch, for epochs in ascending order."""

    def __init__(self, by_epoch: ByEpoch) -> None:
        self.rest = sorted(by_epoch.items(), reverse=True)
        self.sum = Fingerprint()

    def advance_to(self, epoch: int) -> Fingerprint:
        while self.rest and self.rest[-1][0] <= epoch:
            self.sum += self.rest.pop()[1]
        return self.sum


def staged_difference(before: Prints, after: Prints) -> dict[str, dict[int, Fingerprint] | None]:
    """Compute the fingerprints that a run has to stage so that `before` becomes `after`.

    None: the fingerprints of the table are not known any more.
    """
    staged: dict[str, dict[int, Fingerprint] | None] = {table: None for table in before if table not in after}
    for table, wanted in after.items():
        staged[table] = subtract_fingerprints(wanted, before.get(table, {}))
    return staged


def add_fingerprints(first: ByEpoch, second: ByEpoch) -> dict[int, Fingerprint]:
    """Add two sets of fingerprints epoch by epoch, in order. Epochs whose sum is zero are left out."""
    return subtract_fingerprints(first, {epoch: -each for epoch, each in second.items()})


def subtract_fingerprints(first: ByEpoch, second: ByEpoch) -> dict[int, Fingerprint]:
    """Subtract one set of fingerprints from another, epoch by epoch. Epochs whose difference is zero are left out."""
    nothing = Fingerprint()
    both = {epoch: first.get(epoch, nothing) - second.get(epoch, nothing) for epoch in sorted({*first, *second})}
    return {epoch: each for epoch, each in both.items() if each}


def fold_fingerprints(prints: Prints, since: int | None) -> Prints:
    """Return the fingerprints after a compaction: epochs before `since` are added to those of `since`.

    Upserts before `since` are left out, because a compaction keeps only those that are in force.
    """
    if since is None:
        return prints
    return {
        table: by_epoch if table in TIMELESS else _fold_table(table, by_epoch, since)
        for table, by_epoch in prints.items()
    }


def _fold_table(table: str, by_epoch: dict[int, Fingerprint], since: int) -> dict[int, Fingerprint]:
    kept = {epoch: each for epoch, each in by_epoch.items() if epoch >= since}
    if table == "upserts":
        return kept
    first = Fingerprint.sum_all(each for epoch, each in by_epoch.items() if epoch <= since)
    return {**({since: first} if first else {}), **{epoch: each for epoch, each in kept.items() if epoch > since}}


def list_differences(expected: Prints, actual: Prints) -> list[FingerprintDifference]:
    """List the tables whose fingerprints differ, among those that both sides know."""
    differences = (_compare_table(table, expected[table], actual[table]) for table in expected if table in actual)
    return [difference for difference in differences if difference is not None]


def _compare_table(
    table: str, expected: dict[int, Fingerprint], actual: dict[int, Fingerprint]
) -> FingerprintDifference | None:
    nothing = Fingerprint()
    epochs = [epoch for epoch in {*expected, *actual} if expected.get(epoch) != actual.get(epoch)]
    if not epochs:
        return None
    first = min(epochs)
    return FingerprintDifference(table, first, expected.get(first, nothing), actual.get(first, nothing), len(epochs))


def cumulative_at(prints: Prints, epoch: int | None) -> dict[str, str]:
    """Return the fingerprint of the contents of each table at an epoch, as text."""
    if epoch is None:
        return {}
    return {
        table: str(Fingerprint.sum_all(each for at, each in by_epoch.items() if at <= epoch))
        for table, by_epoch in prints.items()
    }
