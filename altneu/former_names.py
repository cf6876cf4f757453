"""The import names of before `altneu`: those that Airflow has stored lead to what they named, the others are refused.

Airflow's database has the paths of triggers and callbacks (`pipeline.scheduling.landed.LandingTrigger`), and users' DAG
files import from `pipeline.scheduling.sites`. Only two packages named `pipeline` use this module: the folder of a
clone, and the one that `plugins/` has, which Airflow appends to its path. A package `pipeline` of somebody else is
found before that one and left alone.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

SERVED = "pipeline.scheduling"


class FormerNames:
    """A finder, and its own loader, of the modules below the former package `pipeline`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("pipeline.") or sys.modules["pipeline"].__path__:  # somebody else's is not empty
            return None
        if name == SERVED or name.startswith(f"{SERVED}."):
            return ModuleSpec(name, self)  # type: ignore[arg-type]  # a loader by what it can do
        refuse(name)

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation to Python: what it creates is replaced."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        warnings.warn(f"{name} is altneu.{name}; the former name ends with version 0.3", DeprecationWarning, 2)
        sys.modules[name] = importlib.import_module(f"altneu.{name}")


def refuse(name: str) -> NoReturn:
    """Raise `ImportError` with the name to import instead."""
    raise ImportError(f"{name} is imported as altneu.{name}; `from altneu import Graph` is the interface for programs")


def serve() -> None:
    """Serve the former names below a package `pipeline` that is being imported."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())  # before the finder that would load a module a second time
