"""The real graphs that the tests know answers of: where they are, how they are landed, what must come out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
PLACES = [HERE.parents[1] / "data", Path(os.environ.get("ALTNEU_TEST_DATA", HERE.parents[3] / "shared" / "data"))]


@dataclass(frozen=True)
class Graph:
    """`land`: the arguments of `altneu land`; then edges, triangles and greatest trussness of the whole."""

    file: str
    land: tuple[str, ...]
    edges: int
    triangles: int
    trussness: int


WHOLE = ("--columns", "src,dst", "--epoch", "1")
GRAPHS = [
    Graph("CollegeMsg.txt.gz", ("--columns", "src,dst,ts", "--time", "ts", "--every", "7d"), 13_838, 14_319, 7),
    Graph(
        "email-Eu-core-temporal.txt.gz",
        ("--columns", "src,dst,ts", "--time", "ts", "--every", "30d"),
        16_064,
        105_461,
        23,
    ),
    Graph(
        "soc-sign-bitcoinotc.csv.gz",
        ("--columns", "src,dst,rating,ts", "--header", "--time", "ts", "--every", "30d"),
        21_492,
        33_493,
        12,
    ),
    Graph(
        "soc-sign-bitcoinalpha.csv.gz",
        ("--columns", "src,dst,rating,ts", "--header", "--time", "ts", "--every", "30d"),
        14_124,
        22_153,
        12,
    ),
    Graph("as-caida20071105.txt.gz", ("--columns", "src,dst,relation", "--epoch", "1"), 53_381, 36_365, 16),
    Graph("as-caida20070917.txt.gz", ("--columns", "src,dst,relation", "--epoch", "1"), 18_203, 21_278, 15),
    Graph("facebook_combined.txt.gz", WHOLE, 88_234, 1_612_010, 97),
    Graph("ca-GrQc_relabelled.txt.gz", WHOLE, 14_484, 48_260, 44),
    Graph("as20000102.txt.gz", WHOLE, 12_572, 6_584, 10),
]


def find(file: str) -> Path:
    """The file, or a skip that says what is missing."""
    for place in PLACES:
        if (place / file).exists():
            return place / file
    pytest.skip(f"{file} is not here: a clone has the small graphs only; ALTNEU_TEST_DATA names a folder with the rest")
