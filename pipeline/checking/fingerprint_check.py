"""Do the tables hold what was published? By the fingerprints that each run has recorded: one look at every table finds
rows that were changed after they were published, at any epoch, whatever recomputes them."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CheckFailed
from ..state.fingerprint_sums import FingerprintDifference, Prints, fold_fingerprints, list_differences
from ..state.records import LANDED, Revision
from ..storage.table_fingerprints import published_fingerprints
from ..storage.warehouse import Warehouse


@dataclass(frozen=True)
class FingerprintComparison:
    """compared: tables; unknown: those of which no fingerprint was recorded; wrong: those that differ."""

    revision: int
    compared: list[str]
    unknown: list[str]
    wrong: list[FingerprintDifference]

    def to_error(self) -> CheckFailed:
        landing = " --from-landing" if {each.table for each in self.wrong} & {*LANDED} else ""
        return CheckFailed(
            f"{len(self.wrong)} of {len(self.compared)} tables do not hold what was published as revision "
            f"{self.revision}: {', '.join(each.table for each in self.wrong)}.",
            f"restore the files from a back-up, or: altneu rebuild{landing}",
        )


def compare_fingerprints(warehouse: Warehouse, row: Revision, recorded: Prints) -> FingerprintComparison:
    """Read every table once, and hold it against what the ledger has of the revision; EXECUTES."""
    with warehouse.size_plans(row):
        found = published_fingerprints(warehouse, row)
    wrong = list_differences(fold_fingerprints(recorded, row.since), fold_fingerprints(found, row.since))
    compared = [table for table in found if table in recorded]
    return FingerprintComparison(row.revision, compared, [table for table in found if table not in recorded], wrong)
