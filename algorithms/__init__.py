"""An algebra of collections that change over time, and algorithms on graphs (README.md explains them)."""

from altneu import former_names

if __name__ != "altneu.algorithms":
    former_names.refuse(__name__)

from . import zipimport_patch  # noqa: F401  # Python workers import this package with their first function
