"""The examples of README.md and docs/operating/commands.md, typed as they stand there, on two weeks of messages."""

from __future__ import annotations

import csv
import gzip
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import messages_file, with_daily_epochs
from tests import home_helpers
from tests.e2e.conftest import Altneu

REPO = Path(__file__).parents[2]
REPEAT_PAIRS = (REPO / "docs" / "queries.md").read_text().split("```sql\n")[1].partition("```")[0]
MAY_15 = "41,176\n176,20\n20,41\n"
FIRST, LAST = datetime(2004, 5, 4, tzinfo=UTC), datetime(2004, 5, 18, tzinfo=UTC)


def examples(*commands: str) -> list[str]:
    """The example lines of some commands, without their comments, each once."""
    operating = (REPO / "docs" / "operating" / "commands.md").read_text()
    purposes = operating.split("\n## Commands by purpose\n")[1].split("\n## ")[0]
    lines = re.findall(r"^altneu (.*?)(?:\s{2,}#.*)?$", (REPO / "README.md").read_text() + purposes, re.M)
    return [line for line in dict.fromkeys(lines) if line.split()[0] in commands]


@pytest.mark.slow
def test_the_examples_answer(altneu: Altneu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_daily_epochs(Home.open(tmp_path / "home", create=True))
    with gzip.open(messages_file(), "rt") as source, (tmp_path / "messages.txt").open("w") as target:
        for src, dst, at in list(csv.reader(source))[1:]:
            when = datetime.strptime(at, "%m/%d/%y %I:%M %p").replace(tzinfo=UTC)
            if FIRST <= when < LAST:
                target.write(f"{src},{dst},{int(when.timestamp())}\n")
    (tmp_path / "may-15.txt").write_text(MAY_15)
    (tmp_path / "home" / "queries").mkdir()
    (tmp_path / "home" / "queries" / "repeat_pairs.sql").write_text(REPEAT_PAIRS)
    for line in examples("land", "plan", "backfill"):
        found = altneu(*shlex.split(line))
        assert found.code == 0, (line, found.err)
    lines = examples("show", "explain", "status", "report", "audit")
    assert len(lines) >= 10
    for line in lines:
        line = line.replace("--since-revision 7", "--since-revision 0")
        line = re.sub(r"--published-at \S+", f"--published-at {datetime.now(UTC):%FT%T}", line)
        found = altneu(*shlex.split(line))
        assert found.code == 0, (line, found.err)
        assert "not there" not in found.out and ("no rows" not in found.err or "checks" in line), (line, found.out)
    assert (tmp_path / "edges.csv").read_text().startswith("src,dst,trussness")
    assert "there, trussness" in altneu(*shlex.split(examples("explain")[0])).out


@pytest.mark.usefixtures("ledger_only")
def test_looking_before_it_is_published(typed: Altneu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tour of a held run, as README.md has it: published once, given up once."""
    monkeypatch.chdir(tmp_path)
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    day = home.schedule.parse_epoch("2004-05-15")
    for epoch in (day - 1, day):
        home_helpers.put(home, epoch, [(41, 176, None, "upsert", 0)])
    assert typed("backfill", "--all").code == 0
    text = (REPO / "README.md").read_text()
    tour = next(block for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) if "--hold" in block)
    lines = [shlex.split(line.partition("  #")[0])[1:] for line in tour.splitlines()]
    assert [line[0] for line in lines] == ["land", "backfill", "diff", "publish", "discard"]
    land, backfill, _, publish, discard = lines  # diff needs Spark: tests/e2e/test_diff.py
    for source, answer, revision in ((MAY_15, publish, 2), ("41,176\n", discard, 2)):
        (tmp_path / "may-15.txt").write_text(source)
        for line in (land, backfill, answer):
            found = typed(*line)
            assert found.code == 0, (line, found.err)
        assert ledger.revisions.get().revision == revision and ledger.runs.list_held() == []
        assert ledger.outputs.published_batches()[day].rows == 3
    assert answer[-1] in typed("status").out
