"""What a user types and reads: exit codes, outputs, and errors that lose nothing."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from altneu.pipeline.cli.command_line import app
from tests.canonical import History
from tests.e2e.conftest import Altneu

K4 = "src,dst\n" + "".join(f"{a},{b}\n" for a in range(1, 5) for b in range(a + 1, 5))


def land(home: Path, epoch: str, text: str | bytes, name: str = "rows.csv") -> Path:
    folder = home / "landing" / f"epoch={epoch}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "_SUCCESS").touch()
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    (path / "altneu.toml").write_text("")
    return path


PACKED = gzip.compress(K4.encode() * 500)
FLIPPED = PACKED[:30] + bytes([PACKED[30] ^ 16]) + PACKED[31:]
BROKEN = {
    "a missing column": (b"src,op\n1,upsert\n", "rows.csv", "column dst is missing"),
    "a truncated gzip": (gzip.compress(K4.encode() * 500)[:-30], "rows.csv.gz", "truncated"),
    "a flipped bit": (
        FLIPPED,
        "rows.csv.gz",
        "landing/epoch=2/rows.csv.gz: it cannot be read: the gzip stream is damaged",
    ),
    "a broken Parquet file": (b"PAR1 nothing PAR1", "rows.parquet", "landing/epoch=2/rows.parquet: it cannot be read"),
    "another encoding": (K4.encode("utf-16"), "rows.csv", "landing/epoch=2/rows.csv: it is UTF-16"),
    "an unknown column": (b"src,dst,colour\n1,2,red\n", "rows.csv", "column colour is unknown"),
    "bad integers": (b"src,dst\n1,2\n1,x\n", "rows.csv", "line 3: dst is 'x', not an integer"),
    "a wrong op": (b"src,dst,op\n1,2,upsert\n1,3,erase\n", "rows.csv", "op is 'erase'"),
    "no file at all, but a note": (b"hello", "notes.doc", "notes.doc ends with none of"),
}


@pytest.mark.usefixtures("ledger_only")
def test_broken_input_stops_the_run_and_loses_nothing(typed: Altneu, home: Path) -> None:
    """One published epoch; then every kind of broken batch: exit 1, the input named, the published state untouched."""
    land(home, "1", K4)
    assert typed("run", "1").code == 0
    before = typed("show", "totals", "--all-epochs", "--format", "json").out
    for name, (content, file, says) in BROKEN.items():
        broken = land(home, "2", content, file)
        found = typed("run", "2")
        assert found.code == 1, name
        assert says in found.err, (name, found.err)
        assert "next:" in found.err, name
        if file != "notes.doc":
            status = json.loads(typed("status", "--format", "json").out)
            states = {row["epoch"]: row["state"] for row in status["epochs"]}
            assert states == {1: "published", 2: "failed"}, name
        broken.unlink()
        assert typed("show", "totals", "--all-epochs", "--format", "json").out == before, name
    # fixed, it goes through; a few bad rows among many are quarantined, an empty line and a comment are nothing lost
    good = "".join(f"{a},{a + 1}\n" for a in range(1, 40))
    land(home, "2", f"# a comment\nsrc,dst\n{good}\n7,seven\n")
    repaired = typed("run", "2")
    assert repaired.code == 0, repaired.err
    assert "quarantined 3" in repaired.err
    row = json.loads(typed("show", "totals", "--format", "json").out)[0]
    assert (row["edges"], row["triangles"], row["revision"]) == (42, 4, 2)


@pytest.mark.usefixtures("ledger_only")
def test_an_empty_batch_and_removal(typed: Altneu, home: Path) -> None:
    (home / "altneu.toml").write_text("[edges]\nlive_for = 2\n")
    land(home, "1", K4)
    assert typed("run", "1").code == 0
    land(home, "3", "src,dst\n")  # nothing happened in epoch 3: the edges of epoch 1 have expired by then
    assert typed("run", "3").code == 0
    rows = json.loads(typed("show", "totals", "--all-epochs", "--format", "json").out)
    assert [(row["epoch"], row["edges"], row["max_trussness"]) for row in rows] == [(1, 6, 4), (2, 6, 4), (3, 0, 0)]
    for file in (home / "landing" / "epoch=1").iterdir():
        file.unlink()
    (home / "landing" / "epoch=1").rmdir()
    refused = typed("run", "1")
    assert (refused.code, "--remove" in refused.err) == (2, True)
    assert typed("run", "1", "--remove").code == 0
    rows = json.loads(typed("show", "totals", "--all-epochs", "--format", "json").out)
    assert {row["edges"] for row in rows} == {0}


@pytest.mark.slow  # tests/e2e/test_ledger_only.py has names in the default tier
@pytest.mark.usefixtures("tiny", "unaudited")
def test_string_ids(altneu: Altneu, home: Path, tmp_path: Path) -> None:
    (home / "altneu.toml").write_text('[vertices]\nids = "string"\n')
    land(home, "1", "src,dst\nada,bob\nbob,cy\ncy,ada\n")
    land(home, "2", "src,dst,op\ndee,ada,upsert\ndee,bob,upsert\nada,bob,delete\n")
    assert altneu("backfill", "--all").code == 0
    shown = json.loads(altneu("show", "triangles", "--as-of", "1", "--format", "json").out)
    assert [sorted([row["a"], row["b"], row["c"]]) for row in shown] == [["ada", "bob", "cy"]]
    edges = json.loads(altneu("show", "edges", "--format", "json").out)
    assert sorted(tuple(sorted((row["src"], row["dst"]))) for row in edges) == [
        ("ada", "cy"),
        ("ada", "dee"),
        ("bob", "cy"),
        ("bob", "dee"),
    ]
    changes = json.loads(altneu("show", "changes", "1", "2", "--format", "json").out)
    assert sum(row["diff"] for row in changes) == 1
    assert altneu("audit").code == 0


@pytest.mark.usefixtures("tiny")
def test_looking_around(altneu: Altneu, home: Path, tmp_path: Path) -> None:
    land(home, "5", K4)
    nothing = altneu("show", "totals")
    assert (nothing.code, "nothing is published yet" in nothing.err) == (1, True)
    assert altneu("plan").out.count("1 missing") == 1
    assert altneu("run", "5").code == 0
    assert "greatest trussness 4" in altneu("run", "5").out or "nothing new" in altneu("run", "5").out
    status = json.loads(altneu("status", "--format", "json").out)
    assert (status["revision"], status["frontier"]) == (1, 5)
    assert status["epochs"][0]["audited"] is True
    stages = {each["stage"]: each for each in json.loads(altneu("report", "5", "--json").out)["run"]["stages"]}
    wrote = {name: each["facts"]["cost"].get("rows") for name, each in stages.items()}
    assert wrote == {"ingest": 6, "edges": 10, "triangles": 4, "truss": 6, "audit": 0, "publish": None}
    assert all(each["facts"]["cost"]["jvm"] > 10**8 for each in stages.values())
    vertices = json.loads(altneu("show", "vertices", "--format", "json").out)
    assert vertices[0] == {"vertex": 1, "degree": 3, "triangles": 3, "clustering": 1.0}
    listed = altneu("show", "edges", "--format", "csv").out.splitlines()
    assert listed[:2] == ["src,dst,trussness", "1,2,4"]
    for output in ("edges", "edges.parquet"):
        assert altneu("show", "edges", "--format", "parquet", "--output", tmp_path / output).code == 0
        assert (tmp_path / output).is_file() and pq.read_table(tmp_path / output).num_rows == 6
    assert altneu("show", "totals", "--as-of", "9").code == 2
    assert altneu("show", "totals", "--revision", "9").code == 1
    assert altneu("run", "77").code == 2
    assert altneu("show", "nonsense").code == 2
    audited = altneu("audit", "--output", tmp_path / "audit.xml")
    assert (audited.code, "all equal" in audited.out) == (0, True)
    assert '<testsuite name="incremental_versus_full"' in (tmp_path / "audit.xml").read_text()
    for wrong in (("--output", "audit.txt"), ("--fingerprints", "--output", "audit.xml")):
        assert altneu("audit", *wrong).code == 2
    report = altneu("report")
    assert report.code == 0
    assert all(Path(line).exists() for line in report.out.split())


@pytest.mark.usefixtures("ledger_only")
def test_correcting_history(typed: Altneu, home: Path) -> None:
    """The commands around history, as they are typed: plan, a backfill in parts, other settings, rollback."""
    for epoch in (1, 2, 4):
        land(home, str(epoch), K4.replace("1,2\n", f"1,{epoch + 8}\n"))
    (home / "altneu.toml").write_text("[ingest]\nmax_revision_mb = 0.00005\n[edges]\nlive_for = 2\n")
    planned = json.loads(typed("plan", "--format", "json").out)
    assert (planned["counts"], planned["revisions"], planned["seconds"]) == ({"missing": 3}, 3, None)
    assert planned["rows"] == 3 * (len(K4.splitlines()) - 1)  # small enough to be counted
    ran = typed("backfill", "--all")
    assert (ran.code, ran.out.count("published revision")) == (0, 3), ran.err
    assert "s left" in ran.err
    (home / "altneu.toml").write_text("[edges]\nlive_for = 2\n")
    land(home, "1", K4)
    planned = json.loads(typed("plan", "--format", "json").out)
    assert (planned["late"], planned["restated"], planned["rows"] > 0) == ([1], [2], True)
    assert planned["seconds"] > 0 and set(planned["stages"]) >= {"ingest", "audit"}
    shown = typed("plan").out
    assert "1 changed, 2 published" in shown and "replay 1 … 4 in one task" in shown
    (home / "altneu.toml").write_text("[edges]\nlive_for = 3\n")
    refused = typed("run", "1")
    assert (refused.code, "live_for: 2 → 3" in refused.err, "next: altneu rebuild" in refused.err) == (2, True, True)
    assert "live_for: 2 → 3" in typed("plan").out
    assert typed("rebuild").code == 0
    totals = json.loads(typed("show", "totals", "--all-epochs", "--format", "json").out)
    assert [(row["epoch"], row["edges"]) for row in totals] == [(1, 6), (2, 7), (3, 7), (4, 7)]
    status = json.loads(typed("status", "--format", "json").out)
    assert (status["revision"], status["readable_revisions"], status["since"]) == (4, [1, 2, 3, 4], None)
    assert status["tables"]["edges"]["files"] == 1
    back = typed("rollback", "2")
    assert (back.code, "revision 5: the state of revision 2" in back.out) == (0, True), back.err
    assert "live_for: 2 → 3" in back.out
    assert json.loads(typed("status", "--format", "json").out)["frontier"] == 2
    changes = typed("show", "changes", "--since-revision", "4", "--format", "json")
    assert {row["diff"] for row in json.loads(changes.out)} == {1, -1}
    assert "from revision 4 to revision 5" in changes.err
    assert typed("rollback", "77").code == 1


@pytest.mark.slow  # tests/laws/test_history.py has a compaction that folds in the default tier
@pytest.mark.usefixtures("tiny")
def test_what_a_compaction_has_folded_is_an_error_that_says_so(
    altneu: Altneu, numbers: History, tmp_path: Path
) -> None:
    home, _ = numbers.copy(tmp_path / "home")
    (home.path / "altneu.toml").write_text("[edges]\nlive_for = 3\n[retention]\nepochs = 1\nrevisions = 1\n")
    compacted = altneu("compact", "--grace", "0")
    assert (compacted.code, "epochs from 3 on, at revisions 2;" in compacted.out) == (0, True), compacted
    folded = altneu("show", "edges", "--as-of", "1")
    assert (folded.code, "epoch 1 was folded by a compaction" in folded.err) == (2, True)
    gone = altneu("show", "edges", "--revision", "1")
    assert (gone.code, "revision 1 cannot be read any more" in gone.err) == (1, True)
    assert json.loads(altneu("show", "totals", "--revision", "1", "--format", "json").out)[0]["edges"] == 9
    assert altneu("audit", "3").code == 0


def test_no_home_is_an_error_that_helps(altneu: Altneu, tmp_path: Path) -> None:
    found = altneu("status", home=tmp_path / "nowhere")
    assert found.code == 2
    assert "altneu demo" in found.err


def test_every_command_has_help() -> None:
    runner = CliRunner()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        shown = runner.invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert command.callback.__doc__, name  # type: ignore[union-attr]


@pytest.mark.slow
def test_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    """A run on `local-cluster[2,1,1024]`, started as a user starts it: nothing assumes one process."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "altneu.toml").write_text('[spark]\nmaster = "local-cluster[2,1,1024]"\n')
    land(home, "1", K4)
    land(home, "2", "src,dst,op\n1,2,delete\n5,1,upsert\n5,3,upsert\n")

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        repo = Path(__file__).resolve().parents[2]
        env = os.environ | {"PYTHONPATH": str(repo)}
        line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *arguments]
        return subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)

    ran = command("backfill", "--all")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(command("show", "totals", "--all-epochs", "--format", "json").stdout)
    assert [(r["vertices"], r["edges"], r["triangles"], r["max_trussness"]) for r in rows] == [
        (4, 6, 4, 4),
        (5, 7, 3, 3),
    ]
