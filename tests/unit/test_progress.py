"""What a long command says of itself: that it goes on, how long it will take; and times in the reader's zone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from altneu.pipeline.cli import printing


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the progress reads, in seconds; it passes when a test says so."""
    clock = [1000.0]
    monkeypatch.setattr(printing, "time", SimpleNamespace(time=lambda: clock[0]))
    return clock


@pytest.mark.parametrize(
    ("iso", "said"),
    [
        ("2026-11-24T01:34:37.989+00:00", "2026-11-24 02:34 CET (01:34 UTC)"),
        ("2026-07-24T01:34:37+00:00", "2026-07-24 03:34 CEST (01:34 UTC)"),
        ("2026-11-24T23:30:00.000+00:00", "2026-11-25 00:30 CET (2026-11-24 23:30 UTC)"),
        (None, "never"),
    ],
)
def test_a_time_is_said_in_the_readers_zone_and_in_utc(berlin: None, iso: str | None, said: str) -> None:
    assert printing.format_moment(iso) == said


def test_without_a_zone_of_ones_own_it_is_utc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert printing.format_moment("2026-11-24T01:34:37.989+00:00") == "2026-11-24 01:34 UTC"
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("expected", "learned", "passed", "says"),
    [
        ({}, 0, 3, "truss, 3 s"),
        ({"truss": 30.0, "audit": 12.0}, 3, 10, "truss, 10 s; about 32 s left, as the last 3 runs took"),
        ({"truss": 30.0, "audit": 12.0}, 1, 33, "truss, 33 s; about 12 s left, as the last run took"),
        (
            {"truss": 30.0, "audit": 12.0},
            3,
            40,
            "truss, 40 s; longer than the 30 s of the last 3 runs, and about 12 s for what follows",
        ),
        ({"truss": 3.0}, 3, 40, "truss, 40 s; longer than the 3 s of the last 3 runs"),
        ({"truss": 3.0}, 3, 1, "truss, 1 s"),  # as good as over
    ],
)
def test_the_time_left_is_that_of_past_runs(
    expected: dict[str, float], learned: int, passed: int, says: str, clock: list[float]
) -> None:
    with printing.Progress(expected, learned) as progress:
        progress("truss", "")
        clock[0] += passed
        assert progress._describe_current() == says


@pytest.mark.parametrize(
    ("stage", "text", "first", "then"),
    [
        ("truss", "", "", "    truss, 5 s\n"),
        # what a stage says first need not be its name alone: an audit names its epochs
        ("audit", "epoch 1 of 9", "    audit: epoch 1 of 9\n", "    audit: epoch 1 of 9, 5 s\n"),
    ],
)
def test_a_stage_that_is_silent_for_long_says_that_it_goes_on(
    stage: str, text: str, first: str, then: str, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    def hear_after(seconds: float) -> str:
        clock[0] += seconds
        progress.report_current()
        return capsys.readouterr().err

    assert printing.MAX_SILENT_SECONDS == 5.0
    with printing.Progress() as progress:
        progress(stage, text)
        assert hear_after(0) == first
        assert hear_after(4.9) == "" and hear_after(0.1) == then
        assert hear_after(4.9) == "" and hear_after(0.1) == then.replace("5 s", "10 s")
        progress.pause_display()  # somebody is asked
        assert hear_after(60) == ""
        progress(stage, "done")
        capsys.readouterr()
        assert hear_after(60) == ""


def test_a_thread_says_it_while_the_stage_works(monkeypatch: pytest.MonkeyPatch) -> None:
    was_said = threading.Event()
    monkeypatch.setattr(printing, "MAX_SILENT_SECONDS", 0.05)
    with printing.Progress() as progress:
        monkeypatch.setattr(printing.err, "print", lambda text, **_: was_said.set())
        progress("truss", "")
        assert was_said.wait(60)
