"""The lists of a part on an executor's disk: made once, the same when they are read, and never in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from algorithms import lists, scratch
from algorithms.kernels import parts
from tests.truss.test_parts import owners, random_graph


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local directory of an executor."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'second'}")
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The parts whose triangles were looked for."""
    numbers = list[int]()
    kernel = parts.part

    def counted(number: int, *columns: np.ndarray) -> parts.Part:
        numbers.append(number)
        return kernel(number, *columns)

    monkeypatch.setattr(parts, "part", counted)
    return numbers


def triangle(number: int = 0, name: str = "graph") -> parts.Part:
    a, b = np.array([1, 1, 2]), np.array([2, 3, 3])
    return lists.part(name, number, a, b, np.array([0, 1, 1], np.int32))


def told(part: parts.Part) -> tuple[list[int], ...]:
    return tuple(np.asarray(column).tolist() for column in part[1:])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_is_what_was_made(seed: int, local: Path, made: list[int]) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    owner = owners(rng, a.size)
    for number in np.unique(owner).tolist():
        first, again = (lists.part("graph", number, a, b, owner) for _ in range(2))
        assert told(first) == told(again) == told(parts.part(number, a, b, owner))
        assert again.left.flags.writeable and type(again.left) is np.ndarray, "a kernel is compiled for each type"
    known = made.copy()
    scratch.forget(lists.KIND, "graph")
    assert not any((local / "triangles").rglob("*.npy"))
    lists.part("graph", int(owner[0]), a, b, owner)
    assert len(made) == len(known) + 1


def test_lists_are_made_once(local: Path, made: list[int]) -> None:
    for number in (0, 1, 0, 1):
        triangle(number)
    triangle(0, "another graph")
    assert made == [0, 1, 0]


def no_directory(local: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("SPARK_LOCAL_DIRS")


def full(local: Path, patch: pytest.MonkeyPatch) -> None:
    def save(file: Path, column: np.ndarray) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    patch.setattr(np, "save", save)


def no_folder(local: Path, patch: pytest.MonkeyPatch) -> None:
    (local / "triangles").write_text("not a directory")


def another_attempt(local: Path, patch: pytest.MonkeyPatch) -> None:
    (local / "triangles" / "graph" / "0").mkdir(parents=True)
    (local / "triangles" / "graph" / "0" / "unknown").touch()


def damaged(local: Path, patch: pytest.MonkeyPatch) -> None:
    folder = local / "triangles" / "graph" / "0"
    folder.mkdir(parents=True)
    for name in ("ptr", "left", "right"):
        (folder / f"{name}.npy").write_bytes(b"half a file")


@pytest.mark.parametrize("fault", [no_directory, full, no_folder, another_attempt, damaged])
def test_a_fault_costs_time_alone(
    fault: Callable[[Path, pytest.MonkeyPatch], None], local: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = told(parts.part(0, np.array([1, 1, 2]), np.array([2, 3, 3]), np.array([0, 1, 1], np.int32)))
    fault(local, monkeypatch)
    assert told(triangle()) == told(triangle()) == expected
    assert made == [0, 0, 0]
    lists.leave("graph", 0, "epoch1", 0, np.arange(3))
    found = lists.left("graph", 0, "epoch1", 1)
    assert found is None or found[1].tolist() == [0, 1, 2]
    scratch.forget(lists.KIND, "graph")
    assert not any(local.rglob("*.npy")), "nothing half written is left"


def test_what_a_killed_driver_has_left_goes_after_a_day(local: Path) -> None:
    for name, age in (("old", 2 * scratch.DAY), ("of another run", 60)):
        triangle(0, name)
        os.utime(local / "triangles" / name, (time.time() - age,) * 2)
    triangle(0, "graph")
    assert {path.name for path in (local / "triangles").iterdir()} == {"of another run", "graph"}


def test_what_is_known_after_a_round_serves_later_rounds(local: Path) -> None:
    """And the same again, if it has to be done again."""
    assert lists.left("graph", 0, "epoch1", 9) is None
    for round_ in (0, 1, 4):
        lists.leave("graph", 0, "epoch1", round_, np.full(3, round_))
    lists.leave("graph", 10, "epoch1", 2, np.full(3, 8))
    for before, expected in ((9, 4), (5, 4), (4, 1), (2, 1), (1, None)):
        found = lists.left("graph", 0, "epoch1", before)
        assert (found and (found[0], found[1].tolist())) == (expected and (expected, [expected] * 3)), before
    (path,) = (local / "triangles").rglob("0.epoch1.4.npy")
    path.write_bytes(b"half a file")
    assert lists.left("graph", 0, "epoch1", 9) is None, "all is heard again"
    lists.leave("graph", 0, "epoch2", 0, np.full(3, 7))
    assert lists.left("graph", 0, "epoch2", 9) and [path.name for path in local.rglob("0.*")] == ["0.epoch2.0.npy"]
    assert lists.left("graph", 10, "epoch1", 9)
    scratch.forget(lists.KIND, "graph")
    assert lists.left("graph", 0, "epoch2", 9) is None
