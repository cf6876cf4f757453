"""Collections that change, on Spark (README.md)."""

from algorithms import zips as zips  # for Python workers, which import this with the first function that they are sent
