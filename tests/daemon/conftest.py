"""A home for the tests of its daemon."""

from tests.daemon_places import place, runtime_folder

__all__ = ["place", "runtime_folder"]
