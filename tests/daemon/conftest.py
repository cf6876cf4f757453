"""A home for the tests of its daemon."""

from tests.daemon_places import place

__all__ = ["place"]
