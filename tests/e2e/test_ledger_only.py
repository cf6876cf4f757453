"""What runs without Spark (`tests.ledger_only`) say is what real ones say: one scene is typed both ways, and whatever
the ledger, the tables, the commands and the pages hold then is compared."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers, seeds
from tests.builders import Batch, assert_same_state, draw_batch
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly, run_without_spark
from tests.report.seed import check

TOML = """
[vertices]
ids = "string"
[edges]
live_for = 3
[ingest]
max_bad_share = 0.5
"""
FIRST = "src,dst,op,seq\nada,bob,,\nbob,cy,,\ncy,ada,,\nada,ada,,\nbob,ada,delete,1\n,,,\nada,dee,replace,0\n"
SECOND = "src,dst\nada,dee\ndee,bob\neve,ada\neve,bob\ncy,dee\n"
LATE = "src,dst,op,seq\nfay,ada,,\nfay,bob,,\nada,bob,upsert,2\nada,bob,delete,1\n"
AGAIN = "src,dst\nada,bob\nbob,cy\ncy,ada\nada,eve\n"
BROKEN = "src,dst\n" + "x,,\n" * 60


def put(home: Path, epoch: int, text: str) -> None:
    folder = home / "landing" / f"epoch={epoch}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.csv").write_text(text)
    (folder / "_SUCCESS").touch()


def without_chance(text: str) -> str:
    """Leave out of a text the names of runs, times, sizes, and how long something took."""
    names: dict[str, str] = {}
    text = re.sub(r"\b\d{8}T\d{6}_[0-9a-f]{8}\b", lambda m: names.setdefault(m[0], f"#{len(names)}"), text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(\+00:00|Z)?( UTC)?", "AT", text)
    text = re.sub(r"/[^\s\"']*/(real|light)\b", "HOME", text)
    text = re.sub(r"\([\d,]+ a second\)", "(N a second)", text)
    text = re.sub(r"[\d,.]+ (kB|MB|bytes|B)\b", "N bytes", text)
    # a table in memory has no files of its own for what has ended
    text = re.sub(r"(?m)^(\w+ +)\d+ → \d+(?=  .*N bytes)", r"\1N → N", text)
    return re.sub(r"[\d,.]+ (files?|expired snapshots|snapshots|s|min|ms)\b", r"N \1", text)


def play(altneu: Altneu, path: Path) -> Iterator[tuple[str, Any]]:
    """Type the scene; what each command has returned and printed, and what is there in the end."""
    home_helpers.make(path, TOML)

    def typed(*command: str) -> tuple[str, Any]:
        outcome = altneu(*command, home=path)
        said = [line for line in outcome.err.splitlines() if line.startswith(("altneu:", "  next:"))]
        return " ".join(command), (outcome.code, without_chance(outcome.out), without_chance("\n".join(said)))

    def look() -> Iterator[tuple[str, Any]]:
        """What readers see."""
        for view in (["totals", "--all-epochs"], ["edges"], ["vertices"], ["trusses"], ["quarantine"]):
            yield typed("show", *view, "--format", "json")
        yield typed("status")
        command, (code, text, _) = typed("plan")
        yield command, (code, text.splitlines()[:2])  # what follows is the choices, and cached graphs have more of them

    put(path, 1, FIRST)
    put(path, 2, SECOND)
    put(path, 4, BROKEN)
    yield typed("backfill", "--all", "--keep-going")
    yield from look()
    put(path, 0, LATE)
    put(path, 1, AGAIN)
    put(path, 4, SECOND)
    yield typed("backfill", "--all", "--hold")
    yield typed("show", "totals", "--all-epochs", "--format", "json")
    yield typed("status")
    yield typed("publish", "--by", "ada", "--because", "as expected")
    yield from look()
    yield typed("show", "changes", "--since-revision", "1", "--format", "csv")
    yield typed("explain", "edge", "ada", "bob", "--as-of", "1")
    yield typed("rollback", "1")
    yield typed("compact", "--grace", "0")
    yield from look()
    yield from books(path)


def books(path: Path) -> Iterator[tuple[str, Any]]:
    """What the ledger and the pages say."""
    home = Home.open(path)
    ledger = Ledger(home)
    runs = {run.run_id: run for run in ledger.runs.list_all()}
    rows = ledger.revisions.list_all()
    yield "revisions", [(row.revision, row.parent, row.frontier, row.hidden, row.mark, row.since) for row in rows]
    yield "runs", [(run.kind, run.state, run.epochs, run.parent) for run in runs.values()]
    for row in rows:
        yield f"fingerprints of {row.revision}", ledger.outputs.fingerprints_of(row.revision)
        sums: Counter[Any] = Counter()
        for measure, k, epoch, _, diff in ledger.outputs.total_diffs(row.revision):
            if epoch <= (row.frontier or 0):
                sums[measure, k, epoch] += diff
        yield f"totals of {row.revision}", {key: n for key, n in sums.items() if n}
    for run in runs.values():
        for stage in ledger.stages.select(run.run_id):
            facts = {name: getattr(stage.facts, name, None) for name in ("rows", "first_epoch", "failed", "mode")}
            yield f"{stage.stage} of {run.kind} on {run.parent}", (stage.state, facts)
    changes = Graph(home.path).arrow.changes_since(0, all_epochs=True).to_pylist()
    yield "changes since 0", sorted(map(repr, changes))
    for epoch in (0, 1, 2):
        found = epoch_document(ledger, epoch)
        graph, says = found["graph"], (found["audit"] or {}).get("says")
        shown = graph and {name: graph["measures"][name]["value"] for name in ("vertices", "edges", "triangles")}
        yield f"page of {epoch}", (found["state"], shown, says, page_says(home, epoch))


def page_says(home: Home, epoch: int) -> list[str]:
    """The headings of an epoch's page, and how it stands to a recomputation."""
    text = (home.reports / f"epoch={epoch}.html").read_text()
    return [*re.findall(r"<h[12][^>]*>([^<]*)", text), *re.findall("Equal to a full recomputation", text)]


def find_as_suites_do(run: RunContext) -> list[dict[str, Any]]:
    """Say what the suites say of the malformed row of the first run, and later: without Spark none is asked."""
    name = "few malformed rows"
    return [check(1, name, run.revision > 1, severity="warning")] if 1 in run.epochs else []


@pytest.mark.law(11)
@pytest.mark.dear("one scene on real tables, typed command by command, and once more without Spark")
@pytest.mark.usefixtures("tiny")
def test_a_scene_played_without_spark_ends_as_with_it(tmp_path: Path, altneu: Altneu) -> None:
    real = list(play(altneu, tmp_path / "real"))
    with run_without_spark() as homes:
        homes.checks = find_as_suites_do
        light = list(play(altneu, tmp_path / "light"))
    assert [what for what, _ in real] == [what for what, _ in light]
    differences = [(what, one, other) for (what, one), (_, other) in zip(real, light, strict=True) if one != other]
    assert differences == []
    assert len(real) > 50 and repr(real).count("eve") > 5 and "fay" in repr(real)


@pytest.mark.parametrize("ids", [pytest.param("integer", marks=pytest.mark.slow), "string"])
def test_readers_see_what_a_history_of_batches_leaves(ledger_only: LedgerOnly, tmp_path: Path, ids: str) -> None:
    """Late, replaced and empty batches, a rollback and a compaction, over real ledgers and readers."""
    rng = random.Random(seeds.one())
    home, ledger = home_helpers.make(tmp_path / "home", f'[vertices]\nids = "{ids}"\n[edges]\nlive_for = 3\n')
    vertices = range(7) if ids == "integer" else [f"v{number}" for number in range(7)]
    landed: dict[int, Batch] = {}

    def deliver(*epochs: int, size: int = 9) -> None:
        for epoch in epochs:
            landed[epoch] = draw_batch(rng, vertices, size, seqs=3)
            home_helpers.put(home, epoch, landed[epoch])
        home_helpers.run(ledger, epochs)
        assert_same_state(ledger, landed)

    deliver(2, 4)
    deliver(1)
    before = dict(landed)
    deliver(2, size=0)
    deliver(6, 1)
    rollback.roll_back(ledger, 2)
    landed = before
    assert_same_state(ledger, landed)
    deliver(5, 2)
    compact(ledger, None, grace=0)
    assert_same_state(ledger, landed)
    deliver(4)
