"""Histories on real tables that many tests read: each is made once in a process, and every test gets a copy. A plugin.

A copy is relocated, which takes a fraction of a second and no Spark, and is the test's own: it may damage it or go on
from there. Tests whose subject is how a history comes about make their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import home_helpers
from tests.builders import make_clique, upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from altneu.pipeline.home.home import Home
    from altneu.pipeline.state.ledger import Ledger

NUMBERS = "[edges]\nlive_for = 3\n[retention]\nrevisions = 3\n"


class History:
    """A history that was made in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, to: Path) -> tuple[Home, Ledger]:
        """Copy it to a folder that is not there yet."""
        from altneu.pipeline.home.home import Home
        from altneu.pipeline.state.ledger import Ledger
        from altneu.pipeline.storage.relocate import relocate_home

        shutil.copytree(self._folder, to)
        home = Home.open(to)
        relocate_home(home)
        return home, Ledger(home)


def make_history(spark: SparkSession, folder: Path, make: Callable[[Path], object]) -> History:
    """Make a history with plans for tiny data, and without the audits of its runs but for the fingerprints."""
    from altneu.pipeline.run.stages import audit
    from altneu.pipeline.storage.session import SIMPLE
    from tests.fingerprint_helpers import stage

    before = {name: spark.conf.get(name) for name in SIMPLE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "audit_run", stage)
        for name, value in SIMPLE.items():
            spark.conf.set(name, value)
        make(folder)
    for name, value in before.items():
        spark.conf.set(name, value)
    return History(folder)


def publish_numbers(path: Path) -> None:
    home, ledger = home_helpers.make(path, NUMBERS)
    home_helpers.put(home, 1, make_clique(1, 2, 3, 4))
    home_helpers.put(home, 2, make_clique(4, 5, 6))
    home_helpers.put(home, 3, [upsert(1, 7)])
    home_helpers.run(ledger, [1, 2])
    home_helpers.run(ledger, [3])


def land_correction(path: Path) -> tuple[Home, Ledger]:
    """Publish a K4 at epoch 0; land it again without 0-1, and a triangle on 0-1 at epoch 1."""
    home, ledger = home_helpers.make(path)
    k4 = make_clique(0, 1, 2, 3)
    home_helpers.put(home, 0, k4)
    home_helpers.run(ledger, [0])
    home_helpers.put(home, 0, k4[1:])
    home_helpers.put(home, 1, [upsert(0, 9), upsert(1, 9)])
    return home, ledger


@pytest.fixture(scope="session")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Cliques of integers that live for three epochs: epochs 1 and 2 are revision 1, epoch 3 is revision 2."""
    return make_history(spark, tmp_path_factory.mktemp("numbers") / "home", publish_numbers)


@pytest.fixture(scope="session")
def held_correction(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """What `land_correction` lands, computed and held."""
    folder = tmp_path_factory.mktemp("held") / "home"
    return make_history(spark, folder, lambda path: home_helpers.hold(land_correction(path)[1], [0, 1]))
