"""Which epochs `[checks] rows = "stop"` holds out, from numbers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.expectations.volumes import LEAST
from altneu.pipeline.run.stages import row_count_gate
from altneu.pipeline.state.records import Batch
from tests import home_helpers

STOP = '[checks]\nrows = "stop"\n'
CALM = {epoch: 100 for epoch in range(20)}  # young: a factor of 12 either way is usual
LONG = {epoch: 1000 for epoch in range(60)}  # a factor of 1.5


def batch(epoch: int, rows: int) -> Batch:
    return Batch(epoch, f"digest of {rows}", 1, rows, 0, 1)


@pytest.mark.parametrize(
    ("toml", "published", "landed", "out"),
    [
        ("", CALM, {20: 10**6}, []),
        ('[checks]\nrows = "warn"\n', CALM, {20: 10**6}, []),
        (STOP, CALM, {20: 100}, []),
        (STOP, CALM, {20: 10**6}, [20]),
        (STOP, CALM, {20: 0}, [20]),
        (STOP, {epoch: 100 for epoch in range(LEAST - 1)}, {20: 10**6}, []),  # too few to learn from
        (STOP, {}, {**CALM, 20: 10**6, 21: 100}, [20]),  # the epochs of a run are each other's history
        (STOP, CALM, {20: 10**6, 21: 10**6, 22: 100}, [20, 21]),  # one that is held out is nobody's
        (STOP, CALM, {20: 10**6, 10: 100}, [20]),
        (STOP, CALM, {10: 10**6}, [10]),  # a correction
        (STOP, CALM, {3: 10**6}, []),  # few epochs are before it
        (STOP, {**CALM, 20: 10**6}, {20: 10**6}, []),  # published as landed
        (STOP, {**CALM, 20: 10**6}, {20: 10**6 + 1}, [20]),
        (STOP, LONG, {60: 1499, 61: 667}, []),
        (STOP, LONG, {60: 1600}, [60]),
        (STOP + 'sensitivity = "low"\n', LONG, {60: 1600}, []),
    ],
)
def test_which_epochs_are_held_out(
    tmp_path: Path, toml: str, published: dict[int, int], landed: dict[int, int], out: list[int]
) -> None:
    home, _ = home_helpers.make(tmp_path / "home", toml)
    batches = {epoch: batch(epoch, rows) for epoch, rows in published.items()}
    digests = {epoch: f"digest of {rows}" for epoch, rows in landed.items()}
    assert list(row_count_gate.find_unusual_batches(home, batches, landed, digests)) == out


def test_what_it_says(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home", STOP + '[epochs]\nevery = "1d"\n')
    first = home.schedule.parse_epoch("2004-03-01")
    batches = {first + day: batch(first + day, 1000) for day in range(60)}
    (error,) = row_count_gate.find_unusual_batches(home, batches, {first + 60: 40_000}, {first + 60: "new"}).values()
    assert error.what.startswith("epoch 2004-04-30 has 40,000 rows; 667 to 1,500 are usual")
    assert error.next is not None and error.next.endswith("altneu run 2004-04-30 --accept-rows")
