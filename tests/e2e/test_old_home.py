"""A home that an earlier version made, elsewhere: relocated, it answers as before, and goes on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from altneu.pipeline.reading.graph import Graph
from tests import home_helpers

from .conftest import Altneu

DAY = "2024-03-05"
MADE = "/srv/altneu/home"  # where the stored home was made


def rows(answer: pa.Table) -> list[dict[str, Any]]:
    return sorted(answer.to_pylist(), key=lambda row: json.dumps(row, default=str))


def answers(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Ask a home the same questions again."""
    graph = Graph(path).arrow
    found: dict[str, Any] = {
        "totals": {r: rows(graph.totals(all_epochs=True, revision=int(r))) for r in asked["totals"]},
        "edges": {},
        "vertices": {},
    }
    for key in asked["edges"]:
        revision, epoch = key.split(" ")
        found["edges"][key] = rows(graph.edges(as_of=epoch, revision=int(revision)))
        found["vertices"][key] = rows(graph.vertices(as_of=epoch, revision=int(revision)))
    return found


@pytest.mark.dear("an old home is moved, upgraded, run and audited")
@pytest.mark.usefixtures("tiny", "unaudited")
def test_an_old_home_at_another_place(tmp_path: Path, altneu: Altneu, monkeypatch: pytest.MonkeyPatch) -> None:
    home, before = home_helpers.old(tmp_path)
    for command in (["status"], ["show", "totals"], ["run", "2024-03-03"], ["compact"], ["audit"], ["connect"]):
        refused = altneu(*command)
        assert refused.code == 2, command
        assert f"{MADE}/warehouse" in refused.err and "next: altneu relocate" in refused.err, command
    done = altneu("relocate")
    assert done.code == 0, done.err
    assert f"9 tables from {MADE}/warehouse now work in" in done.out
    assert answers(home, before) == before

    # a copy next to it goes on: another epoch, a compaction; the original stays as it is, to the byte
    there = tmp_path / "there"
    shutil.copytree(home, there)
    untouched = contents(home)
    assert altneu("relocate", home=there).code == 0
    folder = there / "landing" / f"epoch={DAY}"
    folder.mkdir()
    (folder / "rows.csv").write_text("src,dst,rating\nada,bob,1\nada,new,2\nbob,new,3\n")
    monkeypatch.setattr("altneu.pipeline.run.run_context.MERGED_ROWS", 0)  # as in a home of many rows
    monkeypatch.setattr("altneu.pipeline.maintenance.compact.SPLIT_ROWS", 0)
    done = altneu("backfill", "--all", home=there)
    assert done.code == 0 and re.search(r"edges: runs read all of the \d+ rows .* altneu compact", done.err), done.err
    shown = altneu("compact", "--grace", "0", home=there)
    apart = "edges: what has ended gets files of its own, which runs skip"
    assert shown.code == 0 and apart in shown.err, shown.err
    again = altneu("compact", "--grace", "0", home=there)
    assert again.code == 0 and apart not in again.err, again.err
    audited = altneu("audit", home=there)
    assert audited.code == 0 and "5 epoch(s) audited at revision 7: all equal" in audited.out
    assert answers(there, {**before, "edges": {}})["totals"] == before["totals"]
    assert contents(home) == untouched


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
