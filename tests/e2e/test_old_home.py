"""A home that an earlier version made, elsewhere: relocated, it answers as before, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.api import Graph
from tests import homes

from .conftest import Altneu

DAY = "2024-03-05"


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: json.dumps(row, default=str))


def answers(graph: Graph, asked: dict[str, Any]) -> dict[str, Any]:
    """The same questions again."""
    found: dict[str, Any] = {
        "totals": {r: rows(graph.totals(all_epochs=True, revision=int(r))) for r in asked["totals"]},
        "edges": {},
        "vertices": {},
    }
    for key in asked["edges"]:
        revision, epoch = key.split(" ")
        found["edges"][key] = rows(graph.edges(epoch, int(revision)))
        found["vertices"][key] = rows(graph.vertices(epoch, int(revision)))
    return found


@pytest.mark.usefixtures("tiny")
def test_an_old_home_at_another_place(tmp_path: Path, spark: SparkSession, altneu: Altneu) -> None:
    home, before = homes.old(tmp_path)
    for command in (["status"], ["show", "totals"], ["run", "2024-03-03"], ["compact"], ["audit"], ["connect"]):
        refused = altneu(*command)
        assert refused.code == 2, command
        assert "/srv/altneu/home/warehouse" in refused.err and "next: altneu relocate" in refused.err, command
    done = altneu("relocate")
    assert done.code == 0, done.err
    assert "9 tables from /srv/altneu/home/warehouse are at home in" in done.out
    assert answers(Graph(home, spark), before) == before
    assert altneu("audit").code == 0

    folder = home / "landing" / f"epoch={DAY}"
    folder.mkdir()
    (folder / "rows.csv").write_text("src,dst,rating\nada,bob,1\nada,new,2\nbob,new,3\n")
    assert altneu("backfill", "--all").code == 0
    shown = altneu("compact", "--grace", "0")
    assert shown.code == 0, shown.err
    audited = altneu("audit")
    assert audited.code == 0 and "5 epoch(s) audited at revision 7: all equal" in audited.out
    after = answers(Graph(home, spark), before)
    assert after["totals"] == before["totals"]
    gone = [path for path in (home / "warehouse").rglob("*.metadata.json") if "/srv/altneu" in path.read_text()]
    latest = set(altneu_locations(home))
    assert latest and not latest & {str(path) for path in gone}


def altneu_locations(home: Path) -> list[str]:
    import sqlite3

    with sqlite3.connect(home / "altneu.db") as connection:
        return [row[0] for row in connection.execute("SELECT metadata_location FROM iceberg_tables")]
