"""The lists of a part on an executor's disk: made once, the same when they are read, and never in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from altneu.algorithms.graph import executor_local_store, partition_cache
from altneu.algorithms.graph.kernels import partition_kernels
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
    kernel = partition_kernels.build_partition

    def counted(number: int, *columns: np.ndarray) -> partition_kernels.Partition:
        numbers.append(number)
        return kernel(number, *columns)

    monkeypatch.setattr(partition_kernels, "build_partition", counted)
    return numbers


def triangle(number: int = 0, name: str = "graph") -> partition_kernels.Partition:
    a, b, level = np.array([1, 1, 2]), np.array([2, 3, 3]), np.zeros(3, np.int32)
    return partition_cache.cache_partition(name, number, a, b, level, np.array([0, 1, 1], np.int32)).part


def told(part: partition_kernels.Partition) -> tuple[list[int], ...]:
    return tuple(np.asarray(column).tolist() for column in part[1:])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_is_what_was_made(seed: int, local: Path, made: list[int]) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_graph(rng)
    owner, level = owners(rng, a.size), rng.integers(-1, 5, a.size).astype(np.int32)
    for number in np.unique(owner).tolist():
        assert partition_cache.load_partition("graph", number) is None
        partition_cache.cache_partition("graph", number, a, b, level, owner)
        again, later = (
            partition_cache.cache_partition("graph", number, a, b, level, owner),
            partition_cache.load_partition("graph", number),
        )
        assert later is not None
        for left in (again, later):
            assert told(left.part) == told(partition_kernels.build_partition(number, a, b, owner))
            columns = (*left[:3], *left.part[1:])
            assert all(np.array_equal(*pair) for pair in zip(left[:3], (a, b, level), strict=True))
            assert all(each.flags.writeable and type(each) is np.ndarray for each in columns), "one kernel for a type"
            assert [each.dtype for each in left[:3]] == [np.int64, np.int64, np.int32]
    known = len(made)
    executor_local_store.delete_graph(partition_cache.KIND, "graph")
    assert not any((local / partition_cache.KIND).rglob("*.npy"))
    partition_cache.cache_partition("graph", int(owner[0]), a, b, level, owner)
    assert len(made) == known + 1


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
    (local / partition_cache.KIND).write_text("not a directory")


def another_attempt(local: Path, patch: pytest.MonkeyPatch) -> None:
    (local / partition_cache.KIND / "graph" / "0").mkdir(parents=True)
    (local / partition_cache.KIND / "graph" / "0" / "unknown").touch()


def damaged(local: Path, patch: pytest.MonkeyPatch) -> None:
    folder = local / partition_cache.KIND / "graph" / "0"
    folder.mkdir(parents=True)
    for name in ("a", "b", "level", "owner", "ptr", "left", "right"):
        (folder / f"{name}.npy").write_bytes(b"half a file")


@pytest.mark.parametrize("fault", [no_directory, full, no_folder, another_attempt, damaged])
def test_a_fault_costs_time_alone(
    fault: Callable[[Path, pytest.MonkeyPatch], None], local: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = told(
        partition_kernels.build_partition(0, np.array([1, 1, 2]), np.array([2, 3, 3]), np.array([0, 1, 1], np.int32))
    )
    fault(local, monkeypatch)
    assert told(triangle()) == told(triangle()) == expected
    assert made == [0, 0, 0]
    partition_cache.save_values("graph", 0, "epoch1", 0, np.arange(3))
    found = partition_cache.load_values("graph", 0, "epoch1", 0)
    assert found is None or found.tolist() == [0, 1, 2]
    executor_local_store.delete_graph(partition_cache.KIND, "graph")
    assert not any(local.rglob("*.npy")), "nothing half written is left"


def test_what_a_killed_driver_has_left_goes_after_a_day(local: Path) -> None:
    for name, age in (("old", 2 * executor_local_store.DAY), ("of another run", 60)):
        triangle(0, name)
        os.utime(local / partition_cache.KIND / name, (time.time() - age,) * 2)
    triangle(0, "graph")
    assert {path.name for path in (local / partition_cache.KIND).iterdir()} == {"of another run", "graph"}


def test_what_is_known_after_a_round_serves_later_rounds(local: Path) -> None:
    """And the same again, if it has to be done again; none but the round that is asked for."""
    assert partition_cache.load_values("graph", 0, "epoch1", 0) is None
    for round_ in (0, 1, 4):
        partition_cache.save_values("graph", 0, "epoch1", round_, np.full(3, round_))
    partition_cache.save_values("graph", 10, "epoch1", 2, np.full(3, 8))
    for round_, there in ((0, False), (1, True), (2, False), (4, True), (5, False)):
        found = partition_cache.load_values("graph", 0, "epoch1", round_)
        assert (None if found is None else found.tolist()) == ([round_] * 3 if there else None), round_
    (path,) = (local / partition_cache.KIND).rglob("0.epoch1.4.npy")
    for damaged in (b"half a file", b"", path.read_bytes()[:-8]):
        path.write_bytes(damaged)
        assert partition_cache.load_values("graph", 0, "epoch1", 4) is None, "all is heard again"
    partition_cache.save_values("graph", 0, "epoch2", 0, np.full(3, 7))
    assert [path.name for path in local.rglob("0.*")] == ["0.epoch2.0.npy"]
    assert (
        partition_cache.load_values("graph", 0, "epoch2", 0) is not None
        and partition_cache.load_values("graph", 10, "epoch1", 2) is not None
    )
    executor_local_store.delete_graph(partition_cache.KIND, "graph")
    assert partition_cache.load_values("graph", 0, "epoch2", 0) is None
