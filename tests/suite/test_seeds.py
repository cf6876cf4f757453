"""What tests draw is the same in each run of the default tests, and another in each run of the sweeps."""

from __future__ import annotations

import pytest

from tests import seeds


@pytest.fixture(autouse=True)
def _without_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.NAME, raising=False)
    monkeypatch.delenv(seeds.FRESH, raising=False)
    monkeypatch.setattr(seeds, "_drawn", {})


def draw_three(monkeypatch: pytest.MonkeyPatch, test: str) -> list[int]:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
    return [seeds.one() for _ in range(3)]


def test_a_test_draws_the_same_seeds_in_each_run_and_with_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    first = draw_three(monkeypatch, "tests/a.py::test_a[x@y]")
    assert len(set(first)) == 3
    monkeypatch.setattr(seeds, "_drawn", {})
    assert draw_three(monkeypatch, "tests/a.py::test_a[x@y]@homes") == first
    assert draw_three(monkeypatch, "tests/a.py::test_b") != first


def test_each_text_of_fresh_seeds_draws_others_and_a_given_seed_goes_before_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []
    for text in ("", "1", "2", "1"):
        monkeypatch.setenv(seeds.FRESH, text)
        monkeypatch.setattr(seeds, "_drawn", {})
        drawn.append(draw_three(monkeypatch, "tests/a.py::test_a"))
    assert drawn[1] == drawn[3] and len(set(map(tuple, drawn))) == 3
    monkeypatch.setenv(seeds.NAME, "7")
    assert draw_three(monkeypatch, "tests/a.py::test_a") == [7, 7, 7]
