"""Operators on collections that change over time, as Spark DataFrames (README.md explains them)."""

from algorithms import zipimport_patch  # noqa: F401  # Python workers import this package with their first function
