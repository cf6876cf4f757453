"""Incremental graph analytics: `from altneu import Graph` reads what a home has published.

In a clone the packages are links to the folders at the top of the repository.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline.errors import AltneuError
    from .pipeline.reading.graph import Graph

__all__ = ["AltneuError", "Graph"]
_MODULES = {"AltneuError": ".pipeline.errors", "Graph": ".pipeline.reading.graph"}


def __getattr__(name: str) -> Any:
    """Import the interface for programs when it is used: commands and Spark's Python workers need none of it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
