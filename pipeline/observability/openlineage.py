"""OpenLineage events that say what a run has read and written, and what its checks have found.

Events are sent where OpenLineage's own variables (`OPENLINEAGE_URL`, …) name a receiver, in the same way from the
command line and from Airflow: START when a run begins, COMPLETE when it has published, FAIL or ABORT when it will not
publish. They are made from the database. Only what was published is an output, with the snapshot that readers see. The
checks are an event of their own, of the job `….audit` whose parent is the run: assertions on its input tables, as the
specification asks.

Datasets are named by their location, as the specification asks for Iceberg tables in a catalog of files: the namespace
is `file` or that of the store. A receiver that is down or slow delays a run by at most `WAIT` seconds, and never makes
it fail.

Where Airflow's own provider sends events of the tasks, those events name the datasets
(`altneu.pipeline.scheduling.lineage`), and this module sends no events of runs (`send_by_tasks`).
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from altneu.expectations.model import Check

from ..events import log
from ..home.home import Home
from ..home.queries import Definitions, is_query_table, recorded_queries
from ..optional_dependencies import require_extras
from ..state import clock, home_identity
from ..state.ledger import Ledger
from ..state.records import RunKind, RunRecord, RunState, Severity
from ..state.stage_results import AuditFacts
from ..storage.table_schemas import MOTIFS, NAMESPACE, TABLES, query_columns, table_columns
from .query_columns import LANDING, TracedColumns, trace_columns

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2.column_lineage_dataset import InputField

WAIT = 5.0  # seconds for a receiver
STATES = {RunState.RUNNING: "START", RunState.PUBLISHED: "COMPLETE", RunState.DONE: "COMPLETE", RunState.FAILED: "FAIL"}
# column of a table → the columns from which a stage derives it
COLUMNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "upserts": {name: [f"{LANDING}.{name}"] for name in ("src", "dst", "op", "seq")},
    "edges": {name: ["upserts.src", "upserts.dst"] for name in ("a", "b")},
    "degrees": {"vertex": ["edges.a", "edges.b"], "diff": ["edges.a", "edges.b", "edges.diff"]},
    "triangle_counts": {"vertex": ["edges.a", "edges.b"], "diff": ["edges.a", "edges.b", "edges.diff"]},
    "trussness": {"a": ["edges.a"], "b": ["edges.b"], "k": ["edges.a", "edges.b", "edges.diff"]},
    "arcs": {name: [f"upserts.{name}"] for name in ("src", "dst")},
    "vertices": {
        "vertex": ["degrees.vertex", "triangle_counts.vertex"],
        "degree": ["degrees.diff"],
        "triangles": ["triangle_counts.diff"],
    },
}
VALUES_OF = {"upserts": LANDING, "arcs": "upserts"}  # table with the value columns → where they come from
# word in the name of a check that belongs to no table's suite → the table that the check is about
ABOUT = {
    "truss": "trussness",
    "triangle": "triangle_counts",
    "motif": "motif_counts",
    "vert": "degrees",
    "row": "upserts",
}


_by_tasks: ContextVar[bool] = ContextVar("_by_tasks", default=False)


@contextlib.contextmanager
def send_by_tasks(sends: bool) -> Iterator[None]:
    """Run the block without sending events of runs when `sends` is true, because the scheduler's tasks send them."""
    token = _by_tasks.set(sends)
    try:
        yield
    finally:
        _by_tasks.reset(token)


def is_wanted() -> bool:
    """Tell whether the environment names a receiver."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() in ("true", "1"):
        return False
    named = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
    return any(map(os.environ.get, named)) or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)


def emit_run(ledger: Ledger, run_id: str) -> None:
    """Send the events of a run in its present state. This function raises no error; failures are logged."""
    if _by_tasks.get() or not is_wanted():
        return
    try:
        require_extras("lineage (OPENLINEAGE_URL)", "lineage")
        _send_events(run_events(ledger, run_id))
    except Exception as error:  # a run must not fail because its lineage cannot be sent
        log.warning("the lineage of run %s could not be sent: %s", run_id, error)


def emit_audit(ledger: Ledger, results: Sequence[Check]) -> None:
    """Send the results of an audit of what is published. This function raises no error; failures are logged."""
    if not is_wanted() or not results:
        return
    try:
        require_extras("lineage (OPENLINEAGE_URL)", "lineage")
        row, at = ledger.revisions.get(), clock.timestamp()
        _send_events([_audit_event(ledger.home, f"audit {at}", at, results, row.snapshots, None)])
    except Exception as error:
        log.warning("the lineage of an audit could not be sent: %s", error)


def run_events(ledger: Ledger, run_id: str) -> list[RunEvent]:
    """Return the events of a run in its present state: that of its checks, if there are any, and last its own."""
    from openlineage.client.event_v2 import Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    home = ledger.home
    run = ledger.runs.get(run_id)
    state = RunState(STATES.get(run.state, "ABORT"))
    facets: dict[str, Any] = _run_facets(home, run)
    if run.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(run.error, "Python")
    event_time = run.started_at if state is RunState.START else run.last_signal
    run_event = RunEvent(
        eventTime=event_time,
        eventType=state,
        run=Run(_event_uuid(run.started_at, run_id), facets),
        job=_job_of(home, run.kind),
        inputs=input_datasets(ledger, run_id),
        outputs=output_datasets(ledger, run_id),
        producer=producer_uri(),
    )
    checks = [] if state is RunState.START else [each.to_check() for each in ledger.checks.select(run_id=run_id)]
    if not checks:
        return [run_event]
    return [
        _audit_event(home, f"{run_id} audit", run.started_at, checks, _snapshots_seen(ledger, run_id), run, event_time),
        run_event,
    ]


def _send_events(run_events: Iterable[RunEvent]) -> None:
    """Send events in another thread, and wait at most `WAIT` seconds for the receiver."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    events, failed = list(run_events), []

    def send_all() -> None:
        try:
            if "OPENLINEAGE_URL" in os.environ:
                config = {"url": os.environ["OPENLINEAGE_URL"], "timeout": WAIT, "retry": {"total": 0}}
                config["endpoint"] = os.environ.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage")
                if key := os.environ.get("OPENLINEAGE_API_KEY"):
                    config["auth"] = {"type": "api_key", "apiKey": key}
                client = OpenLineageClient(transport=HttpTransport(HttpConfig.from_dict(config)))
            else:
                client = OpenLineageClient()
            for event in events:
                client.emit(event)
            client.close(WAIT)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=send_all, daemon=True, name="lineage")
    thread.start()
    thread.join(WAIT)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {WAIT:g} s")
    if failed:
        raise failed[0]


# -- runs and jobs ------------------------------------------------------------------------------------------------


def producer_uri() -> str:
    return f"https://altneu/{metadata.version('altneu')}"


def _event_uuid(at: str, text: str) -> str:
    from openlineage.client.uuid import generate_static_uuid

    return str(generate_static_uuid(datetime.fromisoformat(at), text.encode()))


def _job_of(home: Home, name: str) -> Any:
    """Return a job of the home, named by the home's identity and the kind of run."""
    from openlineage.client.event_v2 import Job
    from openlineage.client.facet_v2 import job_type_job

    facet = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="ALTNEU", jobType="JOB")
    return Job(_lineage_namespace(), f"{home_identity.claim_identity(home).catalog}.{name}", {"jobType": facet})


def _lineage_namespace() -> str:
    return os.environ.get("OPENLINEAGE_NAMESPACE") or "altneu"


def _run_facets(home: Home, run: RunRecord) -> dict[str, Any]:
    from openlineage.client.facet_v2 import nominal_time_run, parent_run, processing_engine_run

    engine = processing_engine_run.ProcessingEngineRunFacet(metadata.version("altneu"), "altneu")
    facets: dict[str, Any] = {"processing_engine": engine}
    if run.epochs and home.schedule.seconds is not None:
        first, end = home.schedule.start_of(min(run.epochs)), home.schedule.start_of(max(run.epochs) + 1)
        facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(first.isoformat(), end.isoformat())
    parent = os.environ.get("OPENLINEAGE_PARENT_ID", "").split("/")
    if len(parent) >= 3:  # namespace/job/run, the form that other programs of OpenLineage use
        job = parent_run.Job(parent[0], "/".join(parent[1:-1]))
        facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(parent[-1]), job)
    return facets


# -- datasets -----------------------------------------------------------------------------------------------------


def dataset_name(home: Home, table: str) -> tuple[str, str]:
    """Return the namespace and the name of a table, or of the landing."""
    at = home.landed_at if table == LANDING else f"{home.warehouse.rstrip('/')}/{NAMESPACE}/{table}"
    store = re.match(r"(\w+://[^/]+)/(.*)", at)
    return (store[1], store[2]) if store else ("file", at)


def _dataset_facets(
    home: Home, table: str, snapshot: int | None, queries: Definitions = MappingProxyType({})
) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as columns
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, symlinks_dataset

    typed = query_columns(queries)[table] if is_query_table(table) else table_columns(home, table)
    known = [schema_dataset.SchemaDatasetFacetFields(*each) for each in typed.items()]
    symlink = symlinks_dataset.Identifier(home_identity.claim_identity(home).catalog, f"{NAMESPACE}.{table}", "TABLE")
    facets: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(known),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([symlink]),
    }
    if snapshot is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot))
    traced = _trace(home, table, queries)
    if traced.sources:
        facets["columnLineage"] = columns.ColumnLineageDatasetFacet(
            {column: columns.Fields(_input_fields(home, many)) for column, many in traced.sources.items()},
            _input_fields(home, traced.deciding),
        )
    return facets


def _trace(home: Home, table: str, queries: Definitions) -> TracedColumns:
    """Return the origin of a table's columns."""
    if is_query_table(table):
        return trace_columns(home, table, queries)
    sources = dict(COLUMNS.get(table, {}))
    if table in VALUES_OF:
        sources |= {value: [f"{VALUES_OF[table]}.{value}"] for value in home.config.values}
    return TracedColumns(sources)


def _input_fields(home: Home, named: Sequence[str]) -> list[InputField]:
    """Return columns, each written `TABLE.COLUMN`, as the specification has them."""
    from openlineage.client.facet_v2 import column_lineage_dataset as columns

    split = [each.partition(".") for each in named]
    return [columns.InputField(*dataset_name(home, table), column) for table, _, column in split]


def input_datasets(ledger: Ledger, run_id: str) -> list[InputDataset]:
    """Return what a run reads: the landed files, or for a rebuild the stored upserts of its parent."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    home = ledger.home
    run = ledger.runs.get(run_id)
    if run.kind in (RunKind.ROLLBACK, RunKind.COMPACT):
        return []
    if run.kind is RunKind.REBUILD:
        snapshot = ledger.runs.get_parent(run).snapshots.get("upserts")
        return [InputDataset(*dataset_name(home, "upserts"), facets=_dataset_facets(home, "upserts", snapshot))]
    batches = ledger.outputs.staged_batches(run.run_id)
    rows, files = sum(batch.rows + batch.bad_rows for batch in batches), sum(batch.files for batch in batches)
    facet = statistics.InputStatisticsInputDatasetFacet(rowCount=rows, fileCount=files)
    return [InputDataset(*dataset_name(home, LANDING), inputFacets={"inputStatistics": facet} if batches else {})]


def output_datasets(ledger: Ledger, run_id: str) -> list[OutputDataset]:
    """Return the tables whose published snapshots differ from the parent's; none before the run is published."""
    from openlineage.client.event_v2 import OutputDataset

    row = ledger.revisions.published_by(run_id)
    if row is None:
        return []
    before = ledger.runs.get_parent(ledger.runs.get(run_id)).snapshots
    changed = {table: snapshot for table, snapshot in sorted(row.snapshots.items()) if before.get(table) != snapshot}
    queries = recorded_queries(ledger.runs.get(run_id).config)
    return [
        OutputDataset(*dataset_name(ledger.home, table), facets=_dataset_facets(ledger.home, table, snapshot, queries))
        for table, snapshot in changed.items()
    ]


# -- checks -------------------------------------------------------------------------------------------------------


def checked_datasets(ledger: Ledger, run_id: str) -> list[InputDataset]:
    """Return the tables that the checks of a run have looked at, with the results."""
    return _assertion_datasets(
        ledger.home, [each.to_check() for each in ledger.checks.select(run_id=run_id)], _snapshots_seen(ledger, run_id)
    )


def _snapshots_seen(ledger: Ledger, run_id: str) -> Mapping[str, int]:
    """Return the snapshots that a run has published; before that, those that its audit saw or its stages wrote."""
    row = ledger.revisions.published_by(run_id)
    if row is not None:
        return row.snapshots
    stages = {row.stage: row.facts for row in ledger.stages.select(run_id)}
    audit = stages.get("audit")
    return (
        audit.snapshots
        if isinstance(audit, AuditFacts) and audit.snapshots
        else ledger.stages.recorded_snapshots(run_id)
    )


def table_of_check(check: Check) -> str:
    """Return the table that a check is about.

    >>> table_of_check({"suite": "edges", "name": "a < b"})
    'edges'
    >>> table_of_check({"suite": "proof", "name": "trussness values are proved"})
    'trussness'
    """
    if check["suite"] in TABLES | MOTIFS:
        return check["suite"]
    if check["suite"] == "plain":
        return check["name"].partition(" ")[0]
    return next((table for word, table in ABOUT.items() if word in check["name"]), "edges")


def _assertion_datasets(home: Home, checks: Sequence[Check], snapshots: Mapping[str, int]) -> list[InputDataset]:
    """Return the tables of some checks, with one assertion for each check at each epoch."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    assertions_by_table: dict[str, list[quality.Assertion]] = defaultdict(list)
    for check in checks:
        assertions_by_table[table_of_check(check)].append(
            quality.Assertion(
                assertion=check["name"],
                success=check["passed"],
                severity={Severity.CRITICAL: "error", Severity.WARNING: "warn"}.get(
                    Severity(check["severity"]), "info"
                ),
                name=f"{check['suite']}: {check['name']}",
                description=check["meaning"] or None,
                actual=check["observed"],
                params={"epoch": home.schedule.format_label(check["epoch"])},
            )
        )
    return [
        InputDataset(
            *dataset_name(home, table),
            facets=_dataset_facets(home, table, snapshots.get(table)),
            inputFacets={"dataQualityAssertions": quality.DataQualityAssertionsDatasetFacet(assertions)},
        )
        for table, assertions in sorted(assertions_by_table.items())
    ]


def _audit_event(
    home: Home,
    named: str,
    started: str,
    checks: Sequence[Check],
    snapshots: Mapping[str, int],
    run: RunRecord | None,
    at: str | None = None,
) -> RunEvent:
    """Return the event of some checks, below that of a run if there is one."""
    from openlineage.client.event_v2 import Run, RunEvent, RunState
    from openlineage.client.facet_v2 import parent_run

    facets: dict[str, Any] = {}
    if run is not None:
        job = parent_run.Job(_lineage_namespace(), f"{home_identity.claim_identity(home).catalog}.{run.kind}")
        facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(_event_uuid(run.started_at, run.run_id)), job)
    broken = any(not check["passed"] and Severity(check["severity"]) is Severity.CRITICAL for check in checks)
    return RunEvent(
        eventTime=at or started,
        eventType=RunState.FAIL if broken else RunState.COMPLETE,
        run=Run(_event_uuid(started, named), facets),
        job=_job_of(home, "audit"),
        inputs=_assertion_datasets(home, checks, snapshots),
        outputs=[],
        producer=producer_uri(),
    )
