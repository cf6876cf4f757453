"""The seeds of what tests draw: printed, so that a failure shows them, and replayed by `ALTNEU_SEED=… pytest …`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest

NAME = "ALTNEU_SEED"


def given() -> int | None:
    """What the environment asks for."""
    text = os.environ.get(NAME)
    return int(text) if text else None


def one(usual: int | None = None) -> int:
    """One seed: the one asked for, else the usual one, else another each time."""
    asked = given()
    chosen = asked if asked is not None else random.randrange(10**6) if usual is None else usual
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
