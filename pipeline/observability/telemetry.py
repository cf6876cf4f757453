"""The telemetry of runs: the cost of each stage, a log line for each event, and a trace for each run.

`StageTelemetry` watches one attempt of a stage. Its `cost` is stored in the database with the stage's facts: `rows`,
`files` and `bytes` are what the stage wrote, from Iceberg's own summaries; `python`, `jvm` and `workers` are the
greatest resident memory of this process, of its Java and of Spark's Python workers, in bytes. Memory is sampled every
`SAMPLE_SECONDS` seconds: a shorter peak may be missed, pages that forked workers share are counted in each of them, and
executors on other machines are not seen.

The trace is made from the database once a run was published or has failed, and OpenTelemetry sends it to the address in
`OTEL_EXPORTER_OTLP_ENDPOINT`, if that is set. A failure of telemetry never makes a run fail.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psutil

from ..events import log, log_event
from ..home.home import Home
from ..state.lease import run_periodically
from ..state.ledger import Ledger
from ..state.records import Revision, RunRecord, StageState
from ..state.stage_results import Cost, Facts, FailedFacts, stage_fields
from . import openlineage

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from ..storage.warehouse import Warehouse

SAMPLE_SECONDS = 0.5  # seconds between two samples of the memory
Fields = dict[str, Any]  # the fields of an event or a span


def run_fields(home: Home, run: RunRecord) -> Fields:
    """Return the fields by which every event and span names its run: id, kind, parent and epochs."""
    labels = (
        [home.schedule.format_label(epoch) for epoch in (min(run.epochs), max(run.epochs))]
        if run.epochs
        else [None] * 2
    )
    return {
        "run": run.run_id,
        "kind": run.kind.value,
        "parent": run.parent,
        "epochs": len(run.epochs),
        "first": labels[0],
        "last": labels[1],
    }


def flatten_values(facts: Mapping[str, Any]) -> Fields:
    """Return the plain values of a JSON object; those one level below have dotted names."""
    values = {}
    for key, value in facts.items():
        inner = value if isinstance(value, dict) else {"": value}
        for name, each in inner.items():
            if isinstance(each, (int, float, str)):
                values[f"{key}.{name}" if name else key] = each
    return values


class WritingRun(Protocol):
    """The run of a stage, by what tells how much the stage has written."""

    @property
    def warehouse(self) -> Warehouse: ...
    def unpublished_revision(self) -> Revision: ...
    def base_snapshot(self, table: str) -> int: ...


R = TypeVar("R", bound=WritingRun)


class StageTelemetry:
    """One attempt of a stage. `measure` executes it, `report_done` or `report_failed` reports how it has ended."""

    def __init__(self, ledger: Ledger, run: RunRecord, name: str) -> None:
        home = ledger.home
        self.home, self.ledger, self.run_id, self.name = home, ledger, run.run_id, name
        self._figures: dict[str, int] = {}
        self.started = time.time()
        self._fields = {**run_fields(home, run), "stage": name}
        log_event("stage started", **self._fields)

    def measure(self, function: Callable[[R], Facts], run: R) -> Facts:
        """Call the stage's function on its run, and return its facts with the cost."""
        with _watch_memory(self._figures):
            if self.name in ("publish", "report"):  # these write no rows, and the report reads no table
                facts = function(run)
            else:
                before = run.unpublished_revision().snapshots
                facts = function(run)
                self._figures.update(_added_to_tables(run, before))
        return replace(facts, cost=self.cost())

    def cost(self) -> Cost:
        return Cost(**self._figures)

    def report_done(self, facts: Facts) -> None:
        log_event(
            "stage done",
            **self._fields,
            seconds=self._elapsed_seconds(),
            facts=flatten_values(stage_fields(facts)),
            cost=self._figures,
        )
        if self.name == "publish":
            emit_run_end(self.ledger, self.run_id)

    def report_failed(self, what: str) -> None:
        log_event(
            "stage failed",
            logging.ERROR,
            **self._fields,
            seconds=self._elapsed_seconds(),
            error=what,
            cost=self._figures,
        )
        emit_run_end(self.ledger, self.run_id)

    def _elapsed_seconds(self) -> float:
        return round(time.time() - self.started, 3)


def _added_to_tables(run: WritingRun, before: dict[str, int]) -> dict[str, int]:
    """Return how many rows, files and bytes the stage has added to the tables that it wrote."""
    total = {"rows": 0, "files": 0, "bytes": 0}
    for table, snapshot in run.unpublished_revision().snapshots.items():
        if snapshot != before[table]:
            written = run.warehouse.written_size(table, snapshot, run.base_snapshot(table))
            for unit in total:
                total[unit] += getattr(written, unit)
    return total


@contextlib.contextmanager
def _watch_memory(peaks: dict[str, int]) -> Iterator[None]:
    """Run the block, and record in `peaks` the greatest resident memory of each kind of process."""

    def record_peaks() -> None:
        for kind, size in _resident_memory().items():
            peaks[kind] = max(peaks.get(kind, 0), size)

    try:
        with run_periodically(SAMPLE_SECONDS, record_peaks):
            yield
    finally:
        record_peaks()


def _resident_memory() -> dict[str, int]:
    me = psutil.Process()
    sizes = {"python": me.memory_info().rss, "jvm": 0, "workers": 0}
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # the process may have ended
            name = child.name()
            kind = "jvm" if "java" in name else "workers" if "python" in name.lower() else None
            if kind:
                sizes[kind] += child.memory_info().rss
    return sizes


def emit_run_end(ledger: Ledger, run_id: str) -> None:
    """Send the trace and the lineage of a run that was published or has failed."""
    send_trace(ledger, run_id)
    openlineage.emit_run(ledger, run_id)


def send_trace(ledger: Ledger, run_id: str) -> None:
    """Send the run's trace, when OpenTelemetry's own variables name a receiver."""
    if not any(os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT") for kind in ("", "TRACES_")):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        export_trace(OTLPSpanExporter(), ledger, run_id)
    except Exception:  # a run must not fail because its trace cannot be sent
        log.warning("the trace of run %s could not be sent", run_id, exc_info=True)


def export_trace(exporter: SpanExporter, ledger: Ledger, run_id: str) -> None:
    """Export the trace of a run from the database: a span for the run, and in it one for each stage."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import StatusCode, set_span_in_context

    service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "altneu")}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("altneu")
    run = ledger.runs.get(run_id)
    fields = {f"altneu.{name}": value for name, value in run_fields(ledger.home, run).items() if value is not None}
    start, end = _to_nanoseconds(run.started_at), _to_nanoseconds(run.finished_at or run.started_at)
    root = tracer.start_span(f"altneu {run.kind}", start_time=start, attributes=fields)
    if run.error:
        root.set_status(StatusCode.ERROR, run.error)
    for row in ledger.stages.select(run_id):
        start = _to_nanoseconds(row.started_at)
        facts = row.facts
        values = flatten_values(stage_fields(facts) | {"cost": asdict(facts.cost) if facts.cost else {}})
        attributes = {f"altneu.{name}": value for name, value in values.items()}
        span = tracer.start_span(row.stage, set_span_in_context(root), start_time=start, attributes=attributes)
        if row.state is StageState.FAILED:
            span.set_status(StatusCode.ERROR, facts.error if isinstance(facts, FailedFacts) else None)
        span.end(start + int((row.seconds or 0) * 1e9))
    root.end(end)
    provider.shutdown()


def _to_nanoseconds(iso: str) -> int:
    return int(datetime.fromisoformat(iso).timestamp() * 1e9)
