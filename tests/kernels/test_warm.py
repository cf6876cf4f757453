"""A graph that is kept between runs: every change equal to a full recomputation at EVERY epoch, through files, late
epochs and corrections; a file that is not right counts as absent."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from altneu.algorithms.graph.kernels import array_store
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch
from altneu.algorithms.graph.kernels.replay import replay_window, resume_replay
from altneu.algorithms.graph.proof_records import ProofScope
from tests import seeds
from tests.kernels.references import Edge, random_graph, slow_trussness
from tests.kernels.test_replay import (
    check_certificate,
    check_structure,
    columns,
    follow,
    intervals,
    known,
    random_history,
)

History = dict[int, set[Edge]]


def at(history: History, epoch: int) -> set[Edge]:
    return history[max((e for e in history if e <= epoch), default=-1)] if any(e <= epoch for e in history) else set()


def revised(rng: np.random.Generator, history: History) -> tuple[History, int, int]:
    """The history with another future and, sometimes, another past: (it, the first epoch that differs, its last)."""
    pool = sorted({edge for edges in history.values() for edge in edges} | random_graph(rng, 26))
    frontier = max(history)
    late = sorted(e for e in history if rng.random() < 0.3) if rng.random() < 0.5 else []
    new = {frontier + 10 * i for i in range(1, int(rng.integers(0 if late else 2, 5)))}
    epochs = sorted({*history, *late, *new, *([late[0] + 1] if late else [])})
    first = min([*late, *new])
    out: History = {}
    for epoch in epochs:
        alive = set(at(out if epoch > frontier else history, epoch))
        if epoch >= first:
            alive ^= {edge for edge in pool if rng.random() < rng.choice([0.02, 0.1, 0.5])}
        out[epoch] = alive
    return out, first, max(epochs)


def signed(before: History, after: History) -> Counter[tuple[int, int, int, int]]:
    """What turns the intervals of one history into those of the other."""
    rows = Counter(intervals(after, max(after)))
    rows.subtract(intervals(before, max(before)))
    return rows


def check_resumed(
    graph: PersistentGraph, before: History, after: History, first: int, last: int, rng: np.random.Generator
):
    frontier = max(before)
    old, new = Counter(intervals(before, frontier)), signed(before, after)
    rows = [(*row, n, True) for row, n in old.items()] + [(*row, n, False) for row, n in new.items() if n]
    inside = [row for row in rows if any(first <= time <= max(last, frontier) for time in row[2:4])]
    rng.shuffle(inside)
    table = [np.array([row[i] for row in inside], np.int64) for i in range(5)]
    flags = np.array([row[5] for row in inside], bool)
    changes, _, graph, _ = resume_replay(graph, frontier, tuple(table), flags, first, last)
    follow(changes, slow_trussness(at(after, first - 1)), after, first, last)
    return graph


def made(history: History, ask: ProofScope | None = None) -> PersistentGraph:
    rows = intervals(history, max(history))
    return replay_window(*columns(rows), *known(set(), {}), min(history), max(history), kept=True, ask=ask).graph


@pytest.mark.parametrize("seed", seeds.mark_wide(range(60), 24))
def test_revision_after_revision_from_files(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    history = random_history(rng, 6)
    graph = made(history)
    for revision in range(6):
        if rng.random() < 0.7:
            graph.save_graph(tmp_path, f"r{revision}", at=max(history))
            opened = PersistentGraph.open_graph(tmp_path, f"r{revision}")
            assert opened is not None
            graph = opened
        after, first, last = revised(rng, history)
        graph = check_resumed(graph, history, after, first, last, rng)
        history = after
        check_structure(graph.levels)
        assert not graph.levels.state.any()
        if graph.kept.certified:
            check_certificate(graph.levels)


def test_it_grows_from_nothing(tmp_path: Path) -> None:
    """Far beyond what it was made with: vertices, edges, lists and the pool."""
    rng = np.random.default_rng(5)
    graph = made({0: {(0, 1)}})
    history: History = {0: {(0, 1)}}
    for epoch in range(1, 5):
        ends = np.sort(rng.integers(0, 60 * epoch, (1200 * epoch, 2)), axis=1)
        alive = {(int(u), int(v)) for u, v in ends if u < v}
        after = {**history, epoch: alive}
        graph = check_resumed(graph, history, after, epoch, epoch, rng)
        history = after
    check_structure(graph.levels)
    graph.save_graph(tmp_path, "big")
    opened = PersistentGraph.open_graph(tmp_path, "big")
    assert opened is not None
    check_structure(opened.levels)


def test_a_removed_half_is_won_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    edges = {(u, v) for u in range(60) for v in range(u + 1, 60)}
    few = {edge for edge in edges if rng.random() < 0.3}
    graph = made({0: edges, 1: few})
    graph.save_graph(tmp_path, "few")
    opened = PersistentGraph.open_graph(tmp_path, "few")
    assert opened is not None
    assert opened.used.edges == len(few) < graph.used.edges
    check_structure(opened.levels)
    check_certificate(opened.levels)
    check_resumed(opened, {0: edges, 1: few}, {0: edges, 1: few, 2: edges}, 2, 2, rng)


def damage(folder: Path, how: str) -> None:
    if how == "no manifest":
        (folder / "manifest.json").unlink()
    elif how == "half a manifest":
        (folder / "manifest.json").write_text((folder / "manifest.json").read_text()[:20])
    elif how == "of a later format":
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(
            text.replace(f'"format": {array_store.FORMAT}', f'"format": {array_store.FORMAT + 1}')
        )
    elif how == "of another key":
        shutil.move(folder, folder.with_name("other"))
        folder.with_name("other").rename(folder.with_name("key"))
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text.replace('"key": "key"', '"key": "stranger"'))
    elif how == "an array is missing":
        (folder / "label.npy").unlink()
    elif how == "changes are missing":
        (folder / "level.new.npy").unlink()
    elif how == "a truncated array":
        with open(folder / "edge.npy", "r+b") as file:
            file.truncate(file.seek(0, 2) - 8)
    elif how == "an empty array":
        (folder / "edge.npy").write_bytes(b"")
    else:
        name = how.split()[-1]
        raw = bytearray((folder / f"{name}.npy").read_bytes())
        raw[len(raw) // 2] ^= 4
        (folder / f"{name}.npy").write_bytes(raw)


DAMAGES = ["no manifest", "half a manifest", "of a later format", "of another key", "an array is missing"]
DAMAGES += ["a truncated array", "an empty array"]
DAMAGES += [f"one bit of {name}" for name in ("level", "label", "own", "neighbour", "edge", "ids", "clock", "slots")]
DAMAGES += ["one bit of counted_own", "one bit of counted_backing"]
OF_CHANGES = [
    "no level.at",
    "one bit of level.at",
    "one bit of level.new",
    "one bit of place.at",
    "one bit of place.new",
]


@pytest.mark.parametrize(
    ("how", "shared"), [*((how, False) for how in DAMAGES), *((how, True) for how in (*DAMAGES, *OF_CHANGES))]
)
def test_what_is_not_right_counts_as_absent(tmp_path: Path, how: str, shared: bool) -> None:
    """shared: of a state that has its files in common with the one before it."""
    graph = made({0: random_graph(np.random.default_rng(7), 25) | {(0, 1)}}, ProofScope())
    graph.save_graph(tmp_path, "older" if shared else "key")
    if shared:
        graph = changed(tmp_path, "older", "key")
    assert (tmp_path / "key" / "level.at.npy").exists() == shared
    assert PersistentGraph.open_graph(tmp_path, "key") is not None
    damage(tmp_path / "key", how)
    assert PersistentGraph.open_graph(tmp_path, "key") is None
    in_common = how.startswith(("one bit", "a truncated", "an empty")) and how not in OF_CHANGES
    assert not shared or (PersistentGraph.open_graph(tmp_path, "older") is None) == in_common


def changed(folder: Path, old: str, new: str) -> PersistentGraph:
    """Take an edge out of the state `old`, and keep what is left as `new`."""
    graph = PersistentGraph.open_graph(folder, old)
    assert graph is not None
    prover = IncrementalProver(graph, ProofScope())
    gone = np.flatnonzero(graph.levels.level > 1)[:1].astype(np.int32)
    prover.before_batch(gone, gone[:0])
    graph.apply_batch(gone, gone[:0])
    prover.after_batch(1)
    graph.save_graph(folder, new)
    return graph


def test_a_state_shares_the_files_of_the_one_before_it_and_outlives_it(tmp_path: Path) -> None:
    made({0: random_graph(np.random.default_rng(7), 25) | {(0, 1)}}, ProofScope()).save_graph(tmp_path, "0")
    for i in range(1, 4):
        graph = changed(tmp_path, str(i - 1), str(i))
        opened = PersistentGraph.open_graph(tmp_path, str(i))
        assert opened is not None
        for name, x in opened.levels._asdict().items():
            assert name in ("mark", "need", "clock") or (x == getattr(graph.levels, name)).all(), name
        assert graph.counted is not None and opened.counted is not None
        assert opened.counted[:2] == graph.counted[:2]
        check_structure(opened.levels)
        check_certificate(opened.levels)
        assert (tmp_path / str(i) / "edge.npy").samefile(tmp_path / str(i - 1) / "edge.npy")
        array_store.sweep_folder(tmp_path, [str(i)])
    assert opened.apply_batch(np.flatnonzero(opened.levels.level >= 0)[:2].astype(np.int32), np.empty(0, np.int32))


def no_links(*_: object) -> None:
    raise OSError("this file system has no links")


@pytest.mark.parametrize(
    "why", ["no links", "the older has gone", "the older is damaged", "much has changed", "it grew"]
)
def test_a_state_that_shares_no_files_is_written_as_a_whole(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made({0: random_graph(np.random.default_rng(7), 25) | {(0, 1)}}, ProofScope()).save_graph(tmp_path, "old")
    graph = PersistentGraph.open_graph(tmp_path, "old")
    assert graph is not None
    if why == "no links":
        monkeypatch.setattr("os.link", no_links)
    elif why == "the older has gone":
        array_store.sweep_folder(tmp_path, [])
    elif why == "the older is wrong":
        (tmp_path / "old" / "manifest.json").write_text("{")
    elif why == "much has changed":
        graph.levels.label[:] += 1
        graph.levels.own[:] += 1
        graph.levels.backing[:] += 1
    else:
        graph._grow_arrays(2000)
    graph.save_graph(tmp_path, "new")
    assert not [*(tmp_path / "new").glob("*.at.npy")]
    opened = PersistentGraph.open_graph(tmp_path, "new")
    assert opened is not None
    for name, x in opened.levels._asdict().items():
        assert name == "mark" or (x == getattr(graph.levels, name)).all(), name


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 5000])
def test_what_differs(size: int) -> None:
    rng = np.random.default_rng(seeds.one(12))
    for share in (0, 0.001, 0.5, 1):
        x = rng.integers(0, 99, size, dtype=np.int32)
        y = x + (rng.random(size) < share).astype(np.int32)
        assert array_store.differing_positions(x, y).tolist() == np.flatnonzero(x != y).tolist()


def test_a_state_is_bounded_and_replaced(tmp_path: Path) -> None:
    graph = made({0: {(0, 1), (1, 2), (0, 2)}})
    for key in ("a", "b", "b", "c"):
        graph.save_graph(tmp_path, key)
    (tmp_path / ".c.123").mkdir()  # of a killed writer
    array_store.sweep_folder(tmp_path, ["b", "c"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c"]
    array_store.sweep_folder(tmp_path / "nowhere", [])


def test_a_state_of_other_edges_is_refused() -> None:
    graph = made({0: {(0, 1), (1, 2)}})
    rows = [np.array([x], np.int64) for x in (0, 1, 0, 5, 1)]
    with pytest.raises(StateMismatch):  # (0, 1) is said to have begun before, and there is no room for it to end twice
        resume_replay(graph, 0, tuple(np.repeat(row, 2) for row in rows), np.array([True, True]), 0, 6)
    graph = made({0: {(0, 1), (1, 2)}})
    gone = [np.array([x], np.int64) for x in (5, 6, 0, 3, 1)]
    with pytest.raises(StateMismatch):
        resume_replay(graph, 0, tuple(gone), np.array([True]), 1, 4)


def test_a_state_is_compacted_when_more_than_a_quarter_is_absent(tmp_path: Path) -> None:
    edges = sorted({(u, v) for u in range(9) for v in range(u + 1, 9)})
    assert len(edges) == 36
    for gone, kept in ((0, 36), (9, 36), (10, 26), (36, 0)):
        graph = made({0: set(edges), 1: set(edges[gone:])})
        graph.save_graph(tmp_path, f"without {gone}", epoch=7)
        opened = PersistentGraph.open_graph(tmp_path, f"without {gone}")
        facts = array_store.read_manifest(tmp_path, f"without {gone}")
        assert opened is not None and facts is not None
        assert (opened.used.edges, facts["edges"], facts["epoch"]) == (kept, 36 - gone, 7)
        assert opened.kept.certified == graph.kept.certified
        assert (opened.kept.spread, opened.kept.rent) == (graph.kept.spread, graph.kept.rent)
        check_structure(opened.levels)
    assert array_store.read_manifest(tmp_path, "none") is None


def test_what_a_graph_has_learned_goes_into_its_files(tmp_path: Path) -> None:
    graph = made({0: {(0, 1), (1, 2), (0, 2), (2, 3)}})
    graph.kept.spread, graph.kept.rent, graph.kept.certified = (
        {"descend": 1.5, "lift": 2.5, "unlabelled lift": 3.5},
        9,
        False,
    )
    for state in (graph, graph.to_compact()):
        state.save_graph(tmp_path, "key")
        opened = PersistentGraph.open_graph(tmp_path, "key")
        assert opened is not None
        assert (opened.kept.spread, opened.kept.rent, opened.kept.certified) == (graph.kept.spread, 9, False)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 33, 64])
def test_the_checksum_is_of_every_byte_its_place_and_how_many_there_are(size: int) -> None:
    rng = np.random.default_rng(seeds.one(11))
    whole = rng.integers(1, 255, size, dtype=np.uint8)
    others = [np.append(whole, np.uint8(0)), np.append(whole, np.uint8(1))]
    for i in range(size):
        one = whole.copy()
        one[i] ^= 1
        others += [one, np.delete(whole, i)]
    if size >= 16:
        words = whole[: size // 8 * 8].reshape(-1, 8)
        others.append(np.concatenate([words[[1, 0, *range(2, len(words))]].reshape(-1), whole[words.size :]]))
    sums = {other.tobytes(): array_store.checksum(other) for other in others if other.tobytes() != whole.tobytes()}
    assert (
        array_store.checksum(whole) == array_store.checksum(whole.copy()) and 0 <= array_store.checksum(whole) < 2**64
    )
    assert array_store.checksum(whole) not in sums.values() and len({*sums.values()}) == len(sums)


def test_changes_that_do_not_fit_are_refused_before_anything_changes() -> None:
    graph = made({0: {(0, 1), (1, 2), (0, 2)}, 1: {(0, 1), (1, 2)}})
    numbers = graph.number_edges(*(np.array(ends, np.int64) for ends in ((0, 0, 1), (1, 2, 2))))
    before = graph.levels.level.copy()
    there, absent, none = numbers[[0, 2]], numbers[[1]], np.empty(0, np.int32)
    for removed, inserted in ((absent, none), (none, there), (there, there), (absent, absent)):
        with pytest.raises(StateMismatch, match="an edge is removed that is absent, or inserted that is present"):
            graph.apply_batch(removed, inserted)
        assert (graph.levels.level == before).all()
    graph.apply_batch(there[:1], absent)
    assert (graph.levels.level[numbers] >= 0).tolist() == [False, True, True]


def test_ends_come_with_the_lesser_first_and_numbers_are_kept() -> None:
    graph = made({0: {(5, 9), (-3, 5)}})
    a, b = np.array([5, -3, -7, 5], np.int64), np.array([9, 5, 2**62, 6], np.int64)
    numbers = graph.number_edges(a, b)
    assert [column.tolist() for column in graph.edge_ends(numbers)] == [a.tolist(), b.tolist()]
    assert (graph.levels.level[numbers] >= 0).tolist() == [True, True, False, False]
    again = graph.number_edges(b[::-1].copy(), a[::-1].copy())  # in either direction
    assert again.tolist() == numbers[::-1].tolist()
    assert (graph.used.vertices, graph.used.edges) == (6, 4)
