"""The interface for programs: `from pipeline.api import Graph`, and `AltneuError`, the class of the errors it
raises."""

from .errors import AltneuError
from .reading.graph import Graph

__all__ = ["AltneuError", "Graph"]
