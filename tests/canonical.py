"""Histories on real tables that many tests read: made once in a process, and a copy for each test.

A copy is relocated, which takes a fraction of a second and no Spark, and is the test's own: it may damage it or go on
from there. Tests whose subject is how a history comes about make their own.

numbers  cliques of integers that live for three epochs: epochs 1 and 2 are revision 1, epoch 3 is revision 2
held     a K4 at epoch 0, published; a correction of it (without 0-1) and a triangle on 0-1 at epoch 1 are held
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.home.directory import Home
from pipeline.run.stages import audit
from pipeline.state.ledger import Ledger
from pipeline.storage.relocate import relocate
from tests import homes, prints
from tests.builders import make_clique, upsert

NUMBERS = "[edges]\nlive_for = 3\n[retention]\nrevisions = 3\n"


def make_numbers(path: Path) -> None:
    home, ledger = homes.make(path, NUMBERS)
    homes.put(home, 1, make_clique(1, 2, 3, 4))
    homes.put(home, 2, make_clique(4, 5, 6))
    homes.put(home, 3, [upsert(1, 7)])
    homes.run(home, ledger, [1, 2])
    homes.run(home, ledger, [3])


def land_held(path: Path) -> tuple[Home, Ledger]:
    """Make the history `held` but for its last run."""
    home, ledger = homes.make(path)
    k4 = make_clique(0, 1, 2, 3)
    homes.put(home, 0, k4)
    homes.run(home, ledger, [0])
    homes.put(home, 0, k4[1:])
    homes.put(home, 1, [upsert(0, 9), upsert(1, 9)])
    return home, ledger


def make_held(path: Path) -> None:
    homes.hold(*land_held(path), [0, 1])


HISTORIES: dict[str, Callable[[Path], None]] = {"numbers": make_numbers, "held": make_held}


class Canonical:
    """The histories of a process, each made when it is first asked for. Needs Spark then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, name: str, to: Path) -> tuple[Home, Ledger]:
        """Copy a history to a folder that is not there yet."""
        original = self._folder / name
        if not original.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(audit, "work", prints.stage)
                HISTORIES[name](original)
        shutil.copytree(original, to)
        home = Home.open(to)
        relocate(home)
        return home, Ledger(home.database)


@pytest.fixture(scope="session")
def canonical(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canonical]:
    yield Canonical(tmp_path_factory.mktemp("canonical"))
