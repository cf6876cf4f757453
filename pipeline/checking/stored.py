"""Do the tables hold what was published? By the fingerprints that each run has recorded: one look at every table finds
rows that were changed after they were published, at any epoch, whatever recomputes them."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import AltneuError, CheckFailed
from ..home.directory import Home
from ..state.ledger import Ledger
from ..state.prints import Difference, differences, folded
from ..state.records import Revision
from ..storage.prints import of_published
from ..storage.warehouse import Warehouse

LANDED = {"upserts", "quarantine", "names"}  # which a rebuild reads from the landing, and only where it is told to


@dataclass(frozen=True)
class Stored:
    """compared: tables; unknown: those of which no fingerprint was recorded; wrong: those that differ."""

    revision: int
    compared: list[str]
    unknown: list[str]
    wrong: list[Difference]

    def failure(self) -> CheckFailed:
        landing = " --from-landing" if {each.table for each in self.wrong} & LANDED else ""
        return CheckFailed(
            f"{len(self.wrong)} of {len(self.compared)} tables do not hold what was published as revision "
            f"{self.revision}: {', '.join(each.table for each in self.wrong)}.",
            f"restore the files from a back-up, or: altneu rebuild{landing}",
        )


def compare(home: Home, ledger: Ledger, row: Revision, warehouse: Warehouse) -> Stored:
    """Read every table once; EXECUTES. `AltneuError` where nothing can be said."""
    recorded = ledger.fingerprints(row.revision)
    if not recorded:
        raise AltneuError(
            f"revision {row.revision} is of before fingerprints were recorded: there is nothing to compare with.",
            "altneu rebuild   (records them, as the next run does)",
        )
    found = of_published(warehouse, row)
    wrong = differences(folded(recorded, row.since), folded(found, row.since))
    compared = [table for table in found if table in recorded]
    return Stored(row.revision, compared, [table for table in found if table not in recorded], wrong)
