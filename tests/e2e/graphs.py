"""The real graphs that the tests know answers of: where they are, how they are landed, what must come out.

Those of `CARRIED` come with a clone: in `tests/data`, and the messages of CollegeMsg in the package that the demo takes
them from, to the minute. Tests of the others need the folder `graphs` of `tests/tools.py`, and are marked `slow`.
"""

from __future__ import annotations

import atexit
import csv
import functools
import gzip
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.local.demo import messages_file
from tests import tools

DATA = Path(__file__).resolve().parents[1] / "data"
COLLEGE = "CollegeMsg.txt.gz"
CARRIED = {COLLEGE, *(path.name for form in ("*.txt.gz", "*.csv.gz") for path in DATA.glob(form))}

LACKING = [pytest.mark.slow, pytest.mark.needs("graphs")]


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


def find_graph(file: str) -> Path:
    """Return the file of a graph; skip the test where it is not here."""
    if file == COLLEGE:
        return write_messages()
    return DATA / file if file in CARRIED else Path(tools.require("graphs")) / file


@functools.cache
def write_messages() -> Path:
    """Write the demo's messages as SNAP has them: source, target, seconds."""
    folder = Path(tempfile.mkdtemp(prefix="altneu-graphs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with gzip.open(messages_file(), "rt") as source, gzip.open(folder / COLLEGE, "wt", compresslevel=1) as target:
        for row in csv.DictReader(source):
            at = datetime.strptime(row["Timestamp"], "%m/%d/%y %I:%M %p").replace(tzinfo=UTC)
            target.write(f"{row['Source']} {row['Target']} {int(at.timestamp())}\n")
    return folder / COLLEGE


def parametrize_graphs(files: Iterable[str]) -> list[Any]:
    """Return the parameters of a test of these files: those that a clone lacks have the markers for that."""
    return [file if file in CARRIED else pytest.param(file, marks=LACKING) for file in sorted(files)]
