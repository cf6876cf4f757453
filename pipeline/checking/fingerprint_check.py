"""The comparison of the tables with the fingerprints that each run has recorded.

Every table is read once. The comparison finds rows at any epoch that were changed after they were published.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CheckFailed
from ..state.fingerprint_sums import FingerprintDifference, Prints, fold_fingerprints, list_differences
from ..state.records import Revision, is_landed
from ..storage.table_fingerprints import published_fingerprints
from ..storage.warehouse import Warehouse


@dataclass(frozen=True)
class FingerprintComparison:
    """The compared tables of a revision, those without a recorded fingerprint (`unknown`), and the differences."""

    revision: int
    compared: list[str]
    unknown: list[str]
    differences: list[FingerprintDifference]

    def to_error(self) -> CheckFailed:
        landing = " --from-landing" if any(is_landed(each.table) for each in self.differences) else ""
        return CheckFailed(
            f"{len(self.differences)} of {len(self.compared)} tables do not hold what was published as revision "
            f"{self.revision}: {', '.join(each.table for each in self.differences)}.",
            f"restore the files from a back-up, or: altneu rebuild{landing}",
        )


def compare_fingerprints(warehouse: Warehouse, row: Revision, recorded: Prints) -> FingerprintComparison:
    """Read every table of a revision once, and compare it with the recorded fingerprints; EXECUTES."""
    with warehouse.size_plans(row):
        actual = published_fingerprints(warehouse, row)
    wrong = list_differences(fold_fingerprints(recorded, row.since), fold_fingerprints(actual, row.since))
    compared = [table for table in actual if table in recorded]
    return FingerprintComparison(row.revision, compared, [table for table in actual if table not in recorded], wrong)
