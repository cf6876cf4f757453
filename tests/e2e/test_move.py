"""`altneu move` as it is typed: moved and proved by Spark, a home answers as before and goes on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.schema import fingerprints
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers
from tests.builders import make_clique
from tests.canonical import History

from .conftest import Altneu
from .test_old_home import answers


@pytest.mark.usefixtures("tiny", "unaudited")
def test_a_home_moves_and_goes_on(tmp_path: Path, altneu: Altneu, numbers: History) -> None:
    """A reader of each revision gets the same answers."""
    home, _ = numbers.copy(tmp_path / "home")
    new = tmp_path / "new"

    def ask(path: Path) -> list[str]:
        return [
            altneu("show", view, "--revision", revision, "--format", "json", home=path).out
            for view in ("edges", "vertices", "totals")
            for revision in ("1", "2")
        ]

    before = ask(home.path)
    done = altneu("move", str(new))
    assert done.code == 0, done.err
    assert "3 landed epochs" in done.out and f"next: altneu --home {new} status" in done.out
    assert "proved: every table has the fingerprints of the original at revisions 1…2" in done.out
    shutil.rmtree(home.path)
    assert ask(new) == before
    home_helpers.put(Home.open(new), 4, make_clique(1, 2, 8))
    for command in (["backfill", "--all"], ["audit", "--fingerprints"], ["doctor"]):
        assert altneu(*command, home=new).code == 0, command


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "unaudited")
def test_an_old_home_moves_and_goes_on(tmp_path: Path, altneu: Altneu) -> None:
    """Six revisions: a reader of each gets the same answers."""
    home, before = home_helpers.old(tmp_path)
    relocate_home(Home.open(home))
    new = tmp_path / "new"
    done = altneu("move", str(new))
    assert done.code == 0, done.err
    assert "9 tables, 4 landed epochs" in done.out and f"next: altneu --home {new} status" in done.out
    assert "proved: every table has the fingerprints of the original at revisions 1…6" in done.out
    shutil.rmtree(home)
    assert answers(new, before) == before
    folder = new / "landing" / "epoch=2024-03-05"
    folder.mkdir()
    (folder / "rows.csv").write_text("src,dst,rating\nada,bob,1\nada,new,2\nbob,new,3\n")
    for command in (["backfill", "--all"], ["compact"], ["audit", "--fingerprints"], ["doctor"]):
        assert altneu(*command, home=new).code == 0, command


@pytest.mark.usefixtures("tiny", "unaudited")
def test_a_copy_that_broke_is_copied_again(
    tmp_path: Path, altneu: Altneu, monkeypatch: pytest.MonkeyPatch, numbers: History
) -> None:
    """Found by its fingerprints, since it has the bytes that it should have; a home that is broken itself is told."""
    home, _ = numbers.copy(tmp_path / "home")
    new, other = tmp_path / "new", tmp_path / "other"

    from altneu.pipeline.maintenance import move

    real = move._copy_database

    def broken(*arguments: object) -> int:
        file = sorted((new / "warehouse/graph/trussness/data").glob("*.parquet"))[0]
        content = file.read_bytes()
        file.write_bytes(content[:40] + bytes(20) + content[60:])
        return real(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(move, "_copy_database", broken)
        refused = altneu("move", str(new))
    assert refused.code == 1 and re.search(r"1 of \d+ files of the copy differ from those of the home", refused.err)
    assert "next: run the same command again" in refused.err and not (new / "altneu.toml").exists()
    assert altneu("move", str(new)).code == 0

    with sa.create_engine(home.database).begin() as connection:
        wrong = fingerprints.update().where(fingerprints.c.collection == "trussness").values(fingerprint="0" * 32)
        assert connection.execute(wrong).rowcount
    refused = altneu("move", str(other))
    assert refused.code == 1 and "the home itself does not hold what was published as revision 1" in refused.err
    assert "altneu repair" in refused.err


@pytest.mark.usefixtures("tiny", "unaudited")
def test_held_runs_come_along(tmp_path: Path, spark: SparkSession, altneu: Altneu, postgres: str) -> None:
    """Into PostgreSQL: a correction that is held, after a rollback and a compaction; published there, it is what it
    would have been here. Back on disk the same."""
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch, rows in enumerate(([(1, 2), (1, 3), (2, 3)], [(1, 4), (2, 4)], [(3, 4)])):
        home_helpers.put(home, epoch, [(a, b, None, "upsert", 0) for a, b in rows])
        home_helpers.run(ledger, [epoch])
    rollback.roll_back(ledger, 2)
    compact(ledger, spark)
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0), (1, 3, None, "upsert", 0)])
    waits = home_helpers.hold(ledger, [0]).run_id
    new = tmp_path / "new"
    done = altneu("move", str(new), "--to", postgres)
    assert done.code == 0, done.err
    assert f"held runs were copied, too: publish or discard them in one of the two homes ({waits})" in done.out
    back = tmp_path / "back"
    done = altneu("move", str(back), home=new)
    assert done.code == 0, done.err
    assert "proved: every table has the fingerprints of the original at revisions" in done.out
    seen = []
    for each in (home.path, new, back):
        opened = Home.open(each)
        assert altneu("publish", waits, home=each).code == 0
        shown = altneu("show", "totals", "--all-epochs", "--format", "json", home=each)
        edges = altneu("show", "edges", "--format", "json", home=each)
        seen.append(
            [json.loads(shown.out), json.loads(edges.out), home_identity.open_ledger(opened).revisions.get().revision]
        )
    assert seen[0] == seen[1] == seen[2]
