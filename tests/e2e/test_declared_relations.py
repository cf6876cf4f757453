"""The life of a declared relation in a home with names: declared later, read again, rolled back, compacted, removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import landing
from altneu.pipeline.checking import audit, fingerprint_check
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import compact, rollback
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import planning
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.e2e.test_queries import declare, rows_of, run_all, ways

COUNTRIES = """SELECT p.country AS a, q.country AS b, count(*) AS n FROM arcs l
    JOIN people p ON p.id = l.src JOIN people q ON q.id = l.dst GROUP BY p.country, q.country"""
HOME = '[vertices]\nids = "string"\n[ingest]\nmax_bad_share = 0.5\n[retention]\nepochs = 2\nrevisions = 1\n'
PEOPLE = 'people = { key = { id = "vertex" }, values = { country = "string"%s } }\n'


def land(home: Home, path: Path, epoch: int, text: str, **options: object) -> None:
    path.mkdir(exist_ok=True)
    (path / "rows.csv").write_text(text)
    landing.land(home, [path / "rows.csv"], landing.LandOptions(epoch=epoch, far=True, **options))  # type: ignore[arg-type]


def reopen(home: Home, text: str) -> tuple[Home, Ledger]:
    (home.path / "altneu.toml").write_text(text)
    home = Home.open(home.path)
    return home, Ledger(home)


def assert_audited(spark: SparkSession, ledger: Ledger, epochs: list[int]) -> None:
    checks = audit.audit_published(Warehouse(spark, ledger.home), ledger.revisions.get(), epochs, lambda text: None)
    assert all(check["passed"] for check in checks), [check for check in checks if not check["passed"]]


@pytest.mark.slow
@pytest.mark.law(3, 4)
def test_a_relation_comes_changes_and_goes(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", HOME)
    for epoch, edges in enumerate(["src,dst\nann,bob\nbob,cid\n", "src,dst\ncid,ann\n", "src,dst\ndan,ann\n"]):
        land(home, tmp_path / "in", epoch, edges)
    run_all(ledger)
    home, ledger = reopen(home, HOME + "[relations]\n" + PEOPLE % "")
    land(home, tmp_path / "in", 0, "id,country,op\nann,DE,\nbob,FR,\ncid,,\neve,FR,\nbob,,maybe\n", relation="people")
    land(home, tmp_path / "in", 1, "id,country\nann,FR\n", relation="people")
    declare(home, countries=COUNTRIES)
    first = run_all(ledger)
    assert ways(ledger, first) == {"people": "anew", "countries": "anew"}
    graph = Graph(home.path)
    assert set(rows_of(graph, "people")) == {("ann", "FR"), ("bob", "FR"), ("cid", None), ("eve", "FR")}
    assert rows_of(graph, "countries") == {("FR", "FR", 1): 1, ("FR", None, 1): 1, (None, "FR", 1): 1}
    assert rows_of(graph, "countries", as_of=0) == {("DE", "FR", 1): 1, ("FR", None, 1): 1}
    assert_audited(spark, ledger, [0, 1, 2])
    assert planning.plan_run(ledger, lambda epoch: True).is_idle

    home, ledger = reopen(home, HOME + "[relations]\n" + PEOPLE % ', age = "long"')
    plan = planning.plan_run(ledger, lambda epoch: True)
    assert plan.run == (0, 1) and dict(plan.queries.anew) == {
        "people": "its columns have changed",
        "countries": "it reads people",
    }
    run_all(ledger)
    assert set(rows_of(Graph(home.path), "people", as_of=0)) == {
        ("ann", "DE", None),
        ("bob", "FR", None),
        ("cid", None, None),
        ("eve", "FR", None),
    }
    land(home, tmp_path / "in", 0, "", relation="people", empty=True)
    third = run_all(ledger)
    assert ways(ledger, third) == {"people": "delta", "countries": "delta"}
    assert set(rows_of(Graph(home.path), "people")) == {("ann", "FR", None)}
    rollback.roll_back(ledger, third.revision - 1)
    compact.compact(ledger, spark, grace=0)
    assert len(rows_of(Graph(home.path), "people")) == 4
    assert_audited(spark, ledger, [1, 2])
    newest = ledger.revisions.get()
    recorded = ledger.outputs.fingerprints_of(newest.revision)
    assert not fingerprint_check.compare_fingerprints(Warehouse(spark, home), newest, recorded).differences

    declare(home)
    for epoch in (0, 1):
        land(home, tmp_path / "in", epoch, "", relation="people", empty=True)
    home, ledger = reopen(home, HOME)
    last = run_all(ledger)
    assert not any(table.startswith(("relation_", "query_")) for table in last.snapshots)
