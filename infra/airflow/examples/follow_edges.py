"""A consumer of altneu: a copy of the edges in its own database, to which each publication is applied exactly once.

A run starts for each epoch whose results have changed: new epochs, corrected ones, and those that a correction
restates. The event only says when to look. The task asks for the changes since the revision of the copy, and writes the
rows and the new revision in one transaction. So a run that is repeated, that was killed before its commit, or that
comes after another run has applied everything, changes nothing; and a correction, a rollback, or a publication outside
of Airflow is applied like everything else.

`ALTNEU_HOME` is the home, `EDGES_COPY` is the copy, an SQLite file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

EPOCHS = Asset(name="altneu_epochs", uri="altneu://graph/epochs", group="altneu")


def follow(home: str, copy: str) -> tuple[int, int]:
    """Bring the copy from its revision to the newest one; return both."""
    from altneu import Graph

    graph = Graph(home)
    with closing(sqlite3.connect(copy, isolation_level=None, timeout=300)) as base:  # without a COMMIT nothing changes
        base.execute("CREATE TABLE IF NOT EXISTS edges (src, dst, trussness, PRIMARY KEY (src, dst))")
        base.execute("CREATE TABLE IF NOT EXISTS applied (revision INTEGER PRIMARY KEY)")
        base.execute("BEGIN IMMEDIATE")  # another run waits here
        old = base.execute("SELECT coalesce(max(revision), 0) FROM applied").fetchone()[0]
        new = graph.ledger.revisions.get().revision  # 0 before the first publication; an emptied graph has one
        if new > old:
            changes = graph.arrow.changes_since(old, new).to_pylist()
            gone = [(row["src"], row["dst"], row["trussness"]) for row in changes if row["diff"] < 0]
            come = [(row["src"], row["dst"], row["trussness"]) for row in changes if row["diff"] > 0]
            base.executemany("DELETE FROM edges WHERE src = ? AND dst = ? AND trussness = ?", gone)
            base.executemany("INSERT INTO edges VALUES (?, ?, ?)", come)
            base.execute("INSERT INTO applied VALUES (?)", (new,))
        base.execute("COMMIT")
        return old, max(old, new)


with DAG("follow_edges", schedule=PartitionedAssetTimetable(assets=EPOCHS), max_active_runs=1, doc_md=__doc__):

    @task
    def apply(dag_run: Any = None) -> list[int]:
        old, new = follow(os.environ["ALTNEU_HOME"], os.environ["EDGES_COPY"])
        print(f"the results of epoch {dag_run.partition_key} have changed: the copy went from revision {old} to {new}")
        return [old, new]

    apply()
