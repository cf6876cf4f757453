"""Compile the numba kernels before the first run needs them: their first use would take a minute or two, without a
message.

`compile_all` runs the task functions of the stages on a small graph, in a few processes at once. numba keeps
the compiled code in files next to the kernels (or in the user's cache where that folder cannot be written), by source,
version and CPU. The task functions get Arrow tables as Spark hands them over, because a kernel is compiled again for
each combination of argument types.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from altneu.algorithms.algebra.time_lattice import FOREVER


def compile_all(say: Callable[[str], None] = lambda text: None) -> None:
    """Compile all groups, as many at once as there are cores. Raise `CalledProcessError` if one fails."""
    waiting, running = list(GROUPS), dict[str, tuple[subprocess.Popen[str], float]]()
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            name = waiting.pop(0)
            command = [sys.executable, "-m", __name__, name]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            running[name] = process, time.monotonic()
        for name, (process, started) in list(running.items()):
            try:
                output, _ = process.communicate(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args, output)
            del running[name]
            say(f"{name} ({time.monotonic() - started:.0f} s)")


def _sample_edges(begin: int = 1, end: int = 2) -> pa.Table:
    """Return signed intervals of a small graph with cores of several sizes.

    Some edges begin at epoch `begin`, and others end at `end`; with 0 none does.
    """
    random = np.random.default_rng(7)
    ends = np.sort(random.integers(0, 40, (400, 2)), axis=1)
    pairs = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    epoch, until = np.zeros(len(pairs), np.int64), np.full(len(pairs), FOREVER)
    if begin:
        epoch[::9] = begin
    if end:
        until[4::9] = end
    columns = [pairs[:, 0].copy(), pairs[:, 1].copy(), epoch, until, np.ones(len(pairs), np.int64)]
    return pa.table(columns, ["a", "b", "epoch", "until", "diff"])


def _sample_trussness() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from altneu.algorithms.graph.kernels.truss import peel

    edges = _sample_edges()
    a, b = np.array(edges["a"]), np.array(edges["b"])
    return a, b, peel(a, b)


def _sample_intervals() -> pa.Table:
    """Return edges as the input of the truss stage's task."""
    from altneu.algorithms.graph.tagged_rows import RowKind, input_table

    return input_table(5, RowKind.INTERVAL, *(column.to_numpy() for column in _sample_edges().columns))


def _as_received(table: pa.Table) -> list[pa.RecordBatch]:
    """Return a table in read-only buffers, as a Spark task receives it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return list(pa.ipc.open_stream(sink.getvalue()))


def _compile_peel() -> None:
    from altneu.algorithms.graph.truss import _replay_task
    from altneu.algorithms.graph.truss_plan import ReplayRequest

    list(_replay_task(ReplayRequest(first_epoch=0, last_epoch=0))(_as_received(_sample_intervals())))


def _compile_threads() -> None:
    """Compile the kernels of a peel and a proof in several threads, where there are cores for them."""
    from altneu.algorithms.graph.kernels import parallel_peel, replay
    from altneu.algorithms.graph.proof_records import ProofScope
    from altneu.algorithms.graph.truss import _replay_task
    from altneu.algorithms.graph.truss_plan import ReplayRequest

    parallel_peel.LARGE_BATCH = replay.MANY_EPOCHS = 1
    request = ReplayRequest(first_epoch=0, last_epoch=4, scope=ProofScope(2), threads=2)
    list(_replay_task(request)(_as_received(_sample_intervals())))


def _compile_deletions() -> None:
    _compile_maintenance(_sample_edges(begin=0))


def _compile_insertions() -> None:
    _compile_maintenance(_sample_edges(end=0))


def _compile_maintenance(edges: pa.Table) -> None:
    from altneu.algorithms.graph.kernels.replay import replay_window

    a, b, start, until = (np.array(edges[name]) for name in ("a", "b", "epoch", "until"))
    nothing = np.empty(0, np.int64)
    first = replay_window(a, b, start, until, nothing, nothing, nothing.astype(np.int32), 0, 0, "peel").changes
    replay_window(a, b, start, until, first.a, first.b, first.after, 1, 4, "incremental")


def _compile_persistent_graph() -> None:
    """Compile the kernels of a graph that is opened from files, and that grows."""
    from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph

    a, b, _ = _sample_trussness()
    with TemporaryDirectory() as folder:
        ids, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
        tail, head = ends[: a.size].astype(np.int32), ends[a.size :].astype(np.int32)
        PersistentGraph.from_edges(ids, tail, head, np.full(a.size, -1, np.int32)).save_graph(Path(folder), "key")
        graph = PersistentGraph.open_graph(Path(folder), "key")
        assert graph is not None
        graph.levels.label[0] += 1
        graph.save_graph(Path(folder), "changed")
    graph.make_room(graph.number_edges(np.arange(40, 80), np.arange(1000, 1040)))


def _compile_proof() -> None:
    """Compile the kernels of a proof: by all triangles of a graph, then by the triangles of the changes alone."""
    from altneu.algorithms.graph.kernels import incremental_prover
    from altneu.algorithms.graph.proof_records import ProofScope
    from altneu.algorithms.graph.truss import _replay_task
    from altneu.algorithms.graph.truss_plan import ReplayRequest

    rows = _sample_intervals()
    list(_replay_task(ReplayRequest(first_epoch=0, last_epoch=0, scope=ProofScope(2)))(_as_received(rows)))
    incremental_prover.WHOLE = 1
    list(_replay_task(ReplayRequest(first_epoch=0, last_epoch=4, scope=ProofScope(2)))(_as_received(rows)))


def _compile_triangles() -> None:
    from altneu.algorithms.graph.triangles import _count_all

    list(_count_all(_as_received(_sample_edges())))


def _compile_partitions() -> None:
    """Compile one cell, two rounds of the part that owns every edge, and the kernels that only regions need."""
    from altneu.algorithms.graph import bsp, truss_bsp
    from altneu.algorithms.graph.kernels import partial_graph_solver
    from altneu.algorithms.graph.kernels.level_sorted_graph import UNASKED

    a, b, k = _sample_trussness()
    part, nothing, level = np.zeros(a.size, np.int32), np.zeros(a.size, np.int64), (k - 2).astype(np.int32)
    columns = {"a": a, "b": b, "owner": part, "level": level, "cap": level, "epoch": nothing, "diff": nothing}
    held, nobody = bsp.pack_partition(0, columns), bsp.no_messages()
    bsp._support_task([a, b], None)
    bsp._holders_task(1, [a, b, part], None)
    for number in (0, 1):
        truss_bsp._settle_task("", 0, 1, number, (pa.scalar(0),), held, nobody)
        truss_bsp._place_task("", number, (pa.scalar(0),), held, nobody)
    known = partial_graph_solver.KnownEdges(a, b, level, nothing, part, level, np.full(a.size, UNASKED, np.int32))
    partial_graph_solver._edges_beside(
        partial_graph_solver._build_partial_graph(known, (0, 0)).levels, np.flatnonzero(part == 0), 1
    )


def _compile_motifs() -> None:
    from altneu.algorithms.graph.kernels import motif_recount
    from altneu.algorithms.graph.motif_patterns import OWN_EDGES, parse_motif
    from altneu.algorithms.graph.motifs import _motif_task

    wanted = {"square": parse_motif("a-b, b-c, c-d, a-d"), "triangle": parse_motif("a-b, a-c, b-c")}
    rows = _sample_edges()
    rows = rows.append_column("relation", pa.repeat(pa.scalar(OWN_EDGES), rows.num_rows))
    for neu in (pa.nulls(rows.num_rows, pa.bool_()), pa.array(np.arange(rows.num_rows) % 3 == 0)):
        list(_motif_task(wanted)(_as_received(rows.append_column("neu", neu))))
    pairs = np.array(rows["a"]), np.array(rows["b"])
    for patterns in wanted.values():
        motif_recount.count_motifs(patterns, {OWN_EDGES: pairs})


def _compile_audit() -> None:
    from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
    from altneu.algorithms.graph.kernels.triangles import count_triangles
    from altneu.algorithms.graph.kernels.trussness_check import check_trussness

    a, b, k = _sample_trussness()
    count_triangles(a, b)
    check_trussness(a, b, k.astype(np.int64))
    count_certificate(a, b, k.astype(np.int32) - 2, k.astype(np.int64))


def _compile_fingerprints() -> None:
    """Compile the fingerprint kernels for writable arrays, and for the read-only ones of a Spark task."""
    from altneu.algorithms.fingerprint import Fingerprint

    from ..storage.arrow_fingerprints import fingerprints_by_epoch

    (received,) = _as_received(_sample_edges())
    for columns in (_sample_trussness(), tuple(received[name].to_numpy() for name in ("a", "b"))):
        Fingerprint.from_rows(columns)
        Fingerprint.from_rows(columns, columns[0])
    row = {"epoch": [0], "diff": [1], "a": [1], "b": [2.0], "c": ["x"], "d": [True]}
    fingerprints_by_epoch("", pa.table(row))


def _compile_views() -> None:
    from altneu.algorithms.graph.kernels.communities import truss_communities, truss_sizes
    from altneu.algorithms.graph.kernels.triangles import enumerate_triangles

    a, b, k = _sample_trussness()
    truss_sizes(a, b, k.astype(np.int64))
    truss_communities(a, b, k.astype(np.int64), 4)
    list(enumerate_triangles(a, b))


GROUPS = {  # the longest first
    "truss: insertions": _compile_insertions,
    "truss: deletions": _compile_deletions,
    "truss: peel": _compile_peel,
    "truss: proof": _compile_proof,
    "truss: threads": _compile_threads,
    "truss: parts": _compile_partitions,
    "triangles": _compile_triangles,
    "motifs": _compile_motifs,
    "audit": _compile_audit,
    "truss: cached graphs": _compile_persistent_graph,
    "fingerprints": _compile_fingerprints,
    "views": _compile_views,
}

if __name__ == "__main__":
    GROUPS[sys.argv[1]]()
