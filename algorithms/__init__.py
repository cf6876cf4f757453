"""Collections that change, on Spark (README.md)."""

from algorithms import zipimport_patch  # noqa: F401  # for Python workers, which import this with their first function
