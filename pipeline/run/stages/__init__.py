"""The stages of a run, in their order, as one list for the runner, Airflow, the previews and the reports.

Each stage has a module of its name with the stage's `function`. The function takes a `RunContext`, reads the parent's
pinned tables and the run's own branches, writes its own tables and returns its result (`state/stage_results.py`). It
reads the results of other stages that it declares (`reads`), and no others. A stage can be retried, because it replaces
what an earlier attempt has written. Nothing is visible to a reader before the stage `publish`. Importing this package
does not load Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...state.stage_results import KINDS, AuditFacts, EdgesFacts, Facts, IngestFacts, QueriesFacts, TrussFacts

if TYPE_CHECKING:
    from ..run_context import RunContext


@dataclass(frozen=True)
class Stage:
    """One stage, with its function and its properties."""

    name: str
    function: str  # the name of a function in its module
    does: str
    reads: tuple[type[Facts], ...] = ()  # the results of other stages that it reads
    before_publish: bool = True
    maintains: bool = False  # a full recomputation would do the work of this stage
    reads_history: bool = False  # its queries in Spark read what has ended as well
    suites: bool = False  # runs the suites of `expectations`
    is_critical: bool = True  # the run fails when this stage does
    part: str | None = None  # only runs that have recorded something of this name with their settings have this stage

    def load_module(self) -> ModuleType:
        """Import the stage's module."""
        return import_module(f"{__name__}.{self.name}")

    def is_needed(self, config: Mapping[str, Any]) -> bool:
        """Tell whether a run with these recorded settings has this stage."""
        return self.part is None or bool(config.get(self.part))

    def run_stage(self, run: RunContext) -> Facts:
        run.reads = self.reads
        facts = getattr(self.load_module(), self.function)(run)
        assert isinstance(facts, KINDS[self.name])
        return facts


STAGES = (
    Stage(
        "ingest",
        "ingest",
        "Reads the landed files of the epochs; malformed rows go to `quarantine`, with file, line and reason.",
    ),
    Stage(
        "edges",
        "derive_edges",
        "Changed upserts → changed edges, degrees and their totals.",
        reads=(IngestFacts,),
        maintains=True,
    ),
    Stage(
        "triangles",
        "count_triangles_and_motifs",
        "Changed edges → changed counts of triangles and motifs.",
        reads=(EdgesFacts,),
        maintains=True,
    ),
    Stage(
        "truss",
        "maintain_truss",
        "Changed edges → changed trussness, replayed from the first changed epoch to the frontier.",
        reads=(EdgesFacts,),
        maintains=True,
    ),
    Stage(
        "queries",
        "maintain_queries",
        "Changed rows, arcs and edges → changed results of the declared queries.",
        reads=(IngestFacts, EdgesFacts, TrussFacts),
        part="queries",
    ),
    Stage(
        "audit",
        "audit_run",
        "The suites, and a proof or a full recomputation. A critical failure stops the run, naming check, epoch and "
        "rows; nothing is published then. The same data fails again.",
        reads=(IngestFacts, EdgesFacts, TrussFacts, QueriesFacts),
        reads_history=True,
        suites=True,
    ),
    Stage("publish", "publish", "Makes the revision visible.", reads=(AuditFacts,), before_publish=False),
    Stage("report", "write_report", "Writes the pages, from the database.", before_publish=False, is_critical=False),
)
NAMES = tuple(stage.name for stage in STAGES)


def get_stage(name: str) -> Stage:
    return STAGES[NAMES.index(name)]
