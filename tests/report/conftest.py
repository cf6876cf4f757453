"""A clock that ticks by itself, so that the order of runs and audits does not hang on the machine's speed. It is ahead
of the machine's, so that a run that is under way counts as alive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from tests.report.seed import Seed, every_state


@contextlib.contextmanager
def ticking() -> Iterator[None]:
    ticks, start = count(), datetime.now(UTC) + timedelta(hours=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "altneu.pipeline.state.clock.timestamp",
            lambda: (start + timedelta(seconds=next(ticks))).isoformat(timespec="milliseconds"),
        )
        yield


@pytest.fixture(autouse=True, scope="package")
def clock() -> Iterator[None]:
    with ticking():
        yield


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home")


@pytest.fixture(scope="package")
def states(tmp_path_factory: pytest.TempPathFactory, clock: None) -> Seed:
    """A home with an epoch in every state; its pages are written. Tests only read it."""
    from altneu.pipeline.report import write_pages

    seed = every_state(tmp_path_factory.mktemp("states"))
    write_pages(seed.ledger, [epoch for epoch in range(12_600, 12_646)])
    return seed
