"""The seeds of what tests draw: printed, so that a failure shows them, and replayed by `ALTNEU_SEED=… pytest …`.

The default tests draw the same in each run: a seed comes from the name of its test, so that a commit is judged by what
it changes. The wide sweeps set ALTNEU_FRESH_SEEDS to a text of their own, from which the seeds come too: each run draws
others and meets what no run met before, and the same text draws the same again.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

NAME = "ALTNEU_SEED"
FRESH = "ALTNEU_FRESH_SEEDS"
GROUP = re.compile(r"@[^\]]*$")  # what pytest-xdist adds to the name of a test that has a group
_drawn: dict[str, int] = {}  # how many seeds each test has taken


def given() -> int | None:
    """What the environment asks for."""
    text = os.environ.get(NAME)
    return int(text) if text else None


def is_fresh() -> bool:
    """Tell whether each run draws seeds of its own."""
    return bool(os.environ.get(FRESH))


def draw() -> int:
    """Draw the next seed of the running test: the same in each run, or in each with the same text of fresh seeds."""
    test = GROUP.sub("", os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
    _drawn[test] = _drawn.get(test, 0) + 1
    return zlib.crc32(f"{test} {_drawn[test]} {os.environ.get(FRESH, '')}".rstrip().encode()) % 10**6


def one(usual: int | None = None) -> int:
    """Return one seed: the one that the environment gives, else the usual one, else one that is drawn."""
    asked = given()
    chosen = asked if asked is not None else draw() if usual is None else usual
    print(f"{NAME}={chosen}")
    return chosen


def several(usual: Iterable[int]) -> list[int]:
    """Those of a parametrised test: the one asked for alone, else the usual ones."""
    asked = given()
    return list(usual) if asked is None else [asked]


def mark_wide(usual: Iterable[int], quick: int) -> list[Any]:
    """Those of a parametrised test: the first `quick` ones as they are, and the others for the wide sweeps."""
    chosen = several(usual)
    return chosen[:quick] + [pytest.param(seed, marks=pytest.mark.slow) for seed in chosen[quick:]]
