"""OpenLineage events, as a receiving server gets them: of a run that publishes, fails, is taken back. No Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import altneu.pipeline.optional_dependencies
from altneu.pipeline.home.queries import read_queries
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.observability import openlineage
from altneu.pipeline.run import approval
from altneu.pipeline.state import schema
from altneu.pipeline.storage.table_schemas import QUERY_INPUTS, TABLES
from tests.receiver import Receiver, receiving
from tests.report.conftest import ticking
from tests.report.seed import DAILY, DAY, Seed, audit, check


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    with ticking():
        yield


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as found:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{found.port}")
        yield found


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home")


SNAPSHOTS = {"upserts": 2**60 + 1, "edges": 2**60 + 3, "trussness": 7}


def publishes(seed: Seed, *checks: dict[str, Any], snapshots: dict[str, int] = SNAPSHOTS) -> str:
    run_id = seed.run({DAY: (9, 1), DAY + 1: (4, 0)}, {DAY: {"edges": 9}}, list(checks))
    texts = {table: str(each) for table, each in snapshots.items()}
    with seed.ledger.database.engine.begin() as connection:  # a seeded revision pins no tables
        mine = schema.ledger.c.run_id == run_id
        connection.execute(sa.update(schema.ledger).where(mine).values(snapshots=texts))
    return run_id


def told(receiver: Receiver) -> list[dict[str, Any]]:
    """The events that came, each of which has what every event must have."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.serde import Serde

    found = []
    for path, event in receiver.got:
        assert path == "/api/v1/lineage"
        assert event["schemaURL"].startswith("https://openlineage.io/spec/") and event["producer"]
        datetime.fromisoformat(event["eventTime"])
        uuid.UUID(event["run"]["runId"])
        for dataset in event["inputs"] + event["outputs"]:
            assert dataset["namespace"] and dataset["name"]
            for facet in (dataset["facets"] | dataset.get("inputFacets", {})).values():
                assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/") and facet["_producer"]
        run, job = Run(event["run"]["runId"]), Job(event["job"]["namespace"], event["job"]["name"])
        again = RunEvent(
            eventTime=event["eventTime"], run=run, job=job, eventType=RunState(event["eventType"]), producer="a:b"
        )
        assert Serde.to_json(again)
        found.append(event)
    receiver.got.clear()
    return found


def test_a_run_that_publishes(seed: Seed, receiver: Receiver) -> None:
    seed.ledger.runs.create("run_1", 0, epochs=[DAY], config={})
    openlineage.emit_run(seed.ledger, "run_1")
    (start,) = told(receiver)
    assert (start["eventType"], start["outputs"]) == ("START", [])
    nominal = start["run"]["facets"]["nominalTime"]
    assert (nominal["nominalStartTime"][:10], nominal["nominalEndTime"][:10]) == ("2004-07-01", "2004-07-02")

    run_id = publishes(seed, check(DAY, "edges are unique"), *audit(DAY, "trussness values of edges"))
    openlineage.emit_run(seed.ledger, run_id)
    checks, done = told(receiver)
    assert done["eventType"] == "COMPLETE" and done["job"]["name"] == start["job"]["name"]
    assert done["job"]["name"].endswith(".run") and done["job"]["namespace"] == "altneu"
    (landing,) = done["inputs"]
    assert (landing["namespace"], landing["name"]) == ("file", str(seed.home.path / "landing"))
    statistics = landing["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (14, 2)
    outputs = {each["name"].rpartition("/")[2]: each for each in done["outputs"]}
    assert sorted(outputs) == sorted(SNAPSHOTS)
    edges = outputs["edges"]
    assert (edges["namespace"], edges["name"]) == ("file", f"{seed.home.warehouse}/graph/edges")
    assert edges["facets"]["version"]["datasetVersion"] == str(SNAPSHOTS["edges"])
    assert edges["facets"]["symlinks"]["identifiers"][0]["name"] == "graph.edges"
    columns = {each["name"]: each["type"] for each in edges["facets"]["schema"]["fields"]}
    assert columns["until"] == columns["diff"] == "bigint"
    sources = edges["facets"]["columnLineage"]["fields"]["a"]["inputFields"]
    assert {(each["name"].rpartition("/")[2], each["field"]) for each in sources} == {
        ("upserts", "src"),
        ("upserts", "dst"),
    }

    assert checks["job"]["name"].endswith(".audit") and checks["outputs"] == []
    assert checks["run"]["facets"]["parent"]["run"]["runId"] == done["run"]["runId"]
    by_table = {each["name"].rpartition("/")[2]: each for each in checks["inputs"]}
    wrong = [
        (table, each["name"], each["severity"], each["params"]["epoch"])
        for table, dataset in by_table.items()
        for each in dataset["inputFacets"]["dataQualityAssertions"]["assertions"]
        if not each["success"]
    ]
    assert wrong == [("trussness", "incremental_versus_full: trussness values of edges equal", "error", "2004-07-01")]
    assertions = [len(each["inputFacets"]["dataQualityAssertions"]["assertions"]) for each in by_table.values()]
    assert sum(assertions) == 5, "every check"
    assert by_table["edges"]["facets"]["version"]["datasetVersion"] == str(SNAPSHOTS["edges"])


def test_queries_have_the_columns_that_they_come_from(tmp_path: Path, receiver: Receiver) -> None:
    """Each query is an output with its columns; its state is one without origin."""
    relation = '[relations]\npeople = { key = { id = "vertex" }, values = { country = "string" } }\n'
    seed = Seed(tmp_path / "home", f'{DAILY}[values]\namount = "long"\n{relation}')
    texts = {
        "spent": "SELECT p.country, sum(a.amount) AS cents FROM arcs a JOIN people p ON p.id = a.src GROUP BY 1",
        "rich": "SELECT country FROM spent WHERE cents > 9",
        "dense": "SELECT e.src + e.dst AS both, l.epoch AS at FROM edges e JOIN landed l USING (src) WHERE l.age < 3",
    }
    (seed.home.path / "queries").mkdir()
    for name, text in texts.items():
        (seed.home.path / "queries" / f"{name}.sql").write_text(text)
    queries = read_queries(seed.home)
    tables = [table for each in queries.values() for table in each.columns_by_table]
    run_id = publishes(seed, snapshots=dict.fromkeys([*tables, "arcs"], 7))
    recorded = {"queries": {name: each.to_json() for name, each in queries.items()}}
    with seed.ledger.database.engine.begin() as connection:
        mine = schema.runs.c.run_id == run_id
        connection.execute(sa.update(schema.runs).where(mine).values(config=recorded))
    openlineage.emit_run(seed.ledger, run_id)
    (done,) = told(receiver)
    outputs = {each["name"].rpartition("/")[2]: each["facets"] for each in done["outputs"]}
    assert set(outputs) == {*tables, "arcs"}
    assert "columnLineage" not in outputs["query_spent_state"]

    def origins(fields: list[dict[str, str]]) -> list[str]:
        return [f"{each['name'].rpartition('/')[2]}.{each['field']}" for each in fields]

    found = {
        f"{table}.{column}": origins(each["inputFields"])
        for table, facets in outputs.items()
        for column, each in facets.get("columnLineage", {"fields": {}})["fields"].items()
    }
    assert found == {
        "query_spent.country": ["relation_people.country"],
        "query_spent.cents": ["arcs.amount"],
        "query_rich.country": ["query_spent.country"],
        "query_dense.both": ["trussness.a", "trussness.b"],
        "query_dense.at": ["upserts.epoch"],
        "arcs.src": ["upserts.src"],
        "arcs.dst": ["upserts.dst"],
        "arcs.amount": ["upserts.amount"],
        "relation_people.id": ["relation_people_rows.id"],
        "relation_people.country": ["relation_people_rows.country"],
        **{f"relation_people_rows.{name}": [f"landing.people/{name}"] for name in ("id", "country", "op", "seq")},
    }
    deciding = {table: origins(outputs[table]["columnLineage"]["dataset"]) for table in ("query_spent", "query_dense")}
    assert deciding == {
        "query_spent": ["arcs.src", "relation_people.country", "relation_people.id"],
        "query_dense": ["trussness.a", "upserts.epoch", "upserts.src"],
    }


def test_only_the_tables_that_have_changed_are_outputs(seed: Seed, receiver: Receiver) -> None:
    publishes(seed)
    run_id = publishes(seed, snapshots=SNAPSHOTS | {"edges": 11})
    openlineage.emit_run(seed.ledger, run_id)
    (done,) = told(receiver)
    assert [each["name"].rpartition("/")[2] for each in done["outputs"]] == ["edges"]


ENDS = {"failed": "FAIL", "interrupted": "ABORT", "superseded": "ABORT"}


@pytest.mark.parametrize("state", ENDS)
def test_what_is_not_published_is_no_output(state: str, seed: Seed, receiver: Receiver) -> None:
    run_id = seed.run({DAY: (9, 0)}, {}, [check(DAY, "edges are unique", False)], error="audit: no", state=state)
    openlineage.emit_run(seed.ledger, run_id)
    checks, done = told(receiver)
    assert (done["eventType"], done["outputs"]) == (ENDS[state], [])
    assert done["run"]["facets"]["errorMessage"]["message"] == "audit: no"
    assert checks["eventType"] == "FAIL"


def test_a_run_that_is_rejected_and_one_that_is_taken_back(seed: Seed, receiver: Receiver) -> None:
    publishes(seed)
    run = seed.ledger.runs.get(seed.hold(DAY + 2))
    approval.reject_run(seed.ledger, run, "ada", "half of it is missing")
    (event,) = told(receiver)
    assert event["eventType"] == "ABORT" and "half of it" in event["run"]["facets"]["errorMessage"]["message"]
    publishes(seed, snapshots={**SNAPSHOTS, "edges": 12})
    rollback.roll_back(seed.ledger, 1)
    (event,) = told(receiver)
    assert event["eventType"] == "COMPLETE" and event["job"]["name"].endswith(".rollback") and event["inputs"] == []


def test_an_audit_outside_a_run(seed: Seed, receiver: Receiver) -> None:
    publishes(seed)
    openlineage.emit_audit(seed.ledger, audit(DAY))  # type: ignore[arg-type]
    (event,) = told(receiver)
    assert event["eventType"] == "COMPLETE" and "parent" not in event["run"]["facets"]
    assert all("version" in each["facets"] for each in event["inputs"] if each["name"].endswith(("edges", "trussness")))


def test_names_in_the_environment(seed: Seed, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "graphs")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/altneu_epoch/{uuid.UUID(int=7 << 76)}")
    openlineage.emit_run(seed.ledger, publishes(seed))
    (event,) = told(receiver)
    assert event["job"]["namespace"] == "graphs"
    parent = event["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "altneu_epoch")


def test_tables_in_a_store_are_named_by_it(tmp_path: Path) -> None:
    toml = '[storage]\nwarehouse = "s3://bucket/some/tables"\n[landing]\nuri = "s3://other/landing"\n'
    seed = Seed(tmp_path / "home", toml)
    assert openlineage.dataset_name(seed.home, "edges") == ("s3://bucket", "some/tables/graph/edges")
    assert openlineage.dataset_name(seed.home, openlineage.LANDING) == ("s3://other", "landing")


def test_the_columns_exist() -> None:
    """Column lineage names columns that the tables have."""
    known = {table: f" {columns} epoch revision diff " for table, columns in (TABLES | QUERY_INPUTS).items()}
    for table, columns in openlineage.COLUMNS.items():
        for column, sources in columns.items():
            assert f" {column} " in known[table].replace(",", " ")
            for source in sources:
                of, _, field = source.partition(".")
                assert of == openlineage.LANDING or f" {field} " in known[of].replace(",", " ")


@pytest.mark.parametrize("fault", ["refuses", "fails", "hangs", "is not installed"])
def test_a_receiver_that_is_down_or_slow_fails_nothing(
    fault: str, seed: Seed, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openlineage, "WAIT", 0.5)
    if fault == "refuses":
        monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    elif fault == "is not installed":
        monkeypatch.setattr(altneu.pipeline.optional_dependencies, "is_installed", lambda extra: False)
    receiver.status, receiver.hangs = (500 if fault == "fails" else 200), fault == "hangs"
    openlineage.emit_run(seed.ledger, publishes(seed))
    assert "could not be sent" in caplog.text
    assert receiver.waiting == (fault == "hangs"), "it does not wait for the receiver, which never answers"


def test_nothing_is_sent_where_nobody_asks(seed: Seed, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    openlineage.emit_run(seed.ledger, publishes(seed))
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    monkeypatch.delenv("OPENLINEAGE_URL")
    openlineage.emit_run(seed.ledger, publishes(seed))
    assert receiver.got == []
