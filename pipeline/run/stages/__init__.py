"""The stages of a run, in their order: the one list that the runner, Airflow, the previews and the reports walk.

`work` of the module of the same name takes a `Run`: it reads the parent's pinned tables and the run's own branches,
writes its own tables and returns its facts (`state/facts.py`). Safe to retry: a stage replaces what an earlier try of
it wrote. Nothing is visible to a reader before publish. Nothing here loads Spark before a stage works.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ...state.facts import KINDS, Facts

if TYPE_CHECKING:
    from ..context import RunContext


@dataclass(frozen=True)
class Stage:
    """One stage, and what sets it apart."""

    name: str
    does: str
    before_publish: bool = True
    maintains: bool = False  # a full recomputation takes its place
    suites: bool = False  # runs the suites of `expectations`
    decides: bool = True  # the run fails when it does

    def load_module(self) -> ModuleType:
        """Its module, imported by now."""
        return import_module(f"{__name__}.{self.name}")

    def run_stage(self, run: RunContext) -> Facts:
        facts = self.load_module().work(run)
        assert isinstance(facts, KINDS[self.name])
        return facts


STAGES = (
    Stage(
        "ingest",
        "Reads the landed files of the epochs; malformed rows go to `quarantine`, with file, line and reason.",
    ),
    Stage("edges", "Changed upserts → changed edges, degrees and their totals.", maintains=True),
    Stage(
        "triangles",
        "Changed edges → changed counts of triangles and motifs, by delta queries.",
        maintains=True,
    ),
    Stage(
        "truss",
        "Changed edges → changed trussness, replayed from the first changed epoch to the frontier.",
        maintains=True,
    ),
    Stage(
        "audit",
        "The suites and a full recomputation. A critical failure stops the run, naming check, epoch and rows; nothing "
        "is published then. The same data fails again.",
        suites=True,
    ),
    Stage("publish", "Makes the revision visible.", before_publish=False),
    Stage("report", "Writes the pages, from the database.", before_publish=False, decides=False),
)
NAMES = tuple(stage.name for stage in STAGES)


def get_stage(name: str) -> Stage:
    return STAGES[NAMES.index(name)]
