"""Operators on collections that change over time, as Spark DataFrames (README.md explains them)."""

from altneu import former_names

if __name__ != "altneu.algorithms":
    former_names.refuse(__name__)

from . import zipimport_patch  # noqa: F401  # Python workers import this package with their first function
