"""What a run says to machines: the cost of a stage, lines of JSON, a trace made of what the database holds."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.pipeline import cli, events
from altneu.pipeline.cli.printing import err
from altneu.pipeline.observability import telemetry
from altneu.pipeline.state.stage_results import EdgesFacts, Facts, PublishFacts, Size, TrussFacts
from tests.report.seed import DAY, Seed


@pytest.fixture(autouse=True)
def logger() -> Iterator[None]:
    """The loggers as they were, after a test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], events.log.level
    yield
    root.handlers[:] = handlers
    events.log.setLevel(level)


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    seed = Seed(tmp_path / "home")
    cost = {"rows": 9, "files": 1, "bytes": 900, "python": 1, "jvm": 2, "workers": 3}
    seed.run({DAY: (9, 0), DAY + 1: (4, 0)}, {DAY: {"edges": 9}}, facts={"edges": {"rows": 9, "cost": cost}})
    return seed


def stage(seed: Seed, name: str) -> telemetry.StageTelemetry:
    return telemetry.StageTelemetry(seed.ledger, seed.ledger.runs.list_all()[-1], name)


class Tables:
    """Snapshots of tables as a run sees them: 10 rows in each one, 7 more once `edges` is written."""

    def __init__(self) -> None:
        self.snapshots = {"edges": 1, "degrees": 1}

    def unpublished_revision(self) -> Any:
        return SimpleNamespace(snapshots=dict(self.snapshots))

    def base_snapshot(self, table: str) -> int:
        return 1

    @property
    def warehouse(self) -> Any:
        sizes = {(2, 1): Size(rows=7, files=2, bytes=50)}  # snapshot, base
        return SimpleNamespace(written_size=lambda table, snapshot, base: sizes[snapshot, base])


def test_the_cost_of_a_stage_is_what_it_wrote_and_the_memory_it_took(seed: Seed) -> None:
    def function(run: Any) -> EdgesFacts:
        run.snapshots["edges"] = 2
        return EdgesFacts(rows=5, broadcast=True)

    facts = stage(seed, "edges").measure(function, Tables())  # type: ignore[arg-type]
    assert facts.cost and (facts.cost.rows, facts.cost.files, facts.cost.bytes) == (7, 2, 50)
    assert facts.cost.python and facts.cost.python > 1_000_000
    assert replace(facts, cost=None) == EdgesFacts(rows=5, broadcast=True)


def test_a_stage_that_fails_still_tells_its_memory(seed: Seed) -> None:
    def function(run: Any) -> Facts:
        raise ValueError

    watched = stage(seed, "publish")
    with pytest.raises(ValueError):
        watched.measure(function, Tables())  # type: ignore[arg-type]
    assert watched._figures["python"] > 1_000_000


def test_every_event_is_a_line_of_json(seed: Seed) -> None:
    stream = io.StringIO()
    events.log_json_lines(stream)
    stage(seed, "edges").report_done(TrussFacts(rows=3, epochs=2, methods={"peel": 2}, top_edges={str(DAY): []}))
    stage(seed, "truss").report_failed("no memory\nleft")
    logging.getLogger("library").warning("%s is odd", "this")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]  # any thread's library may warn in between
    started, done, _, failed = [line for line in lines if line.get("run") == "run0001"]
    (odd,) = [line for line in lines if line["event"] == "this is odd"]
    assert (started["event"], started["stage"], started["run"]) == ("stage started", "edges", "run0001")
    assert (done["first"], done["last"], done["epochs"]) == ("2004-07-01", "2004-07-02", 2)
    assert done["facts"] == {"rows": 3, "epochs": 2, "methods.peel": 2} and done["seconds"] >= 0
    assert (failed["level"], failed["error"]) == ("error", "no memory\nleft")
    assert odd["level"] == "warning"


def test_the_text_of_an_event_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "altneu"):
        events.log_event("stage failed", logging.ERROR, run="r1", stage="truss", parent=None, error="no memory")
    assert caplog.messages == ["stage failed: run r1, stage truss, error no memory"]


def test_a_command_that_fails_says_so_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = err.quiet
    try:
        with pytest.raises(SystemExit) as stopped:
            cli.main(["--home", str(tmp_path / "none"), "--log-format", "json", "status"])
    finally:
        err.quiet = quiet
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert stopped.value.code == 2 and found["event"] == "command failed"
    assert "is not an altneu home" in found["error"] and "altneu land" in found["next"]


def test_a_trace_holds_the_run_and_its_stages(seed: Seed) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    telemetry.export_trace(exporter, seed.ledger, "run0001")
    *stages, root = exporter.get_finished_spans()
    assert [span.name for span in stages] == ["ingest", "edges", "triangles", "truss", "audit"]
    assert root.name == "altneu run" and root.parent is None and root.attributes is not None
    assert (root.attributes["altneu.run"], root.attributes["altneu.last"]) == ("run0001", "2004-07-02")
    assert {span.context.trace_id for span in stages} == {root.context.trace_id}
    assert all(span.parent is not None and span.parent.span_id == root.context.span_id for span in stages)
    edges = stages[1].attributes
    assert edges is not None and (edges["altneu.rows"], edges["altneu.cost.bytes"]) == (9, 900)
    assert root.resource.attributes["service.name"] == "altneu"


def test_a_failed_run_is_a_failed_trace(seed: Seed) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    run_id = seed.run({DAY + 2: (1, 0)}, error="audit: a critical check failed")
    exporter = InMemorySpanExporter()
    telemetry.export_trace(exporter, seed.ledger, run_id)
    status = exporter.get_finished_spans()[-1].status
    assert not status.is_ok and status.description == "audit: a critical check failed"


def test_a_trace_goes_to_the_receiver_that_the_environment_names(seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        stage(seed, "publish").report_done(PublishFacts(revision=1, tables={}))
        assert not got
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        stage(seed, "edges").report_done(EdgesFacts(rows=1, broadcast=True))
        assert not got
        stage(seed, "publish").report_done(PublishFacts(revision=1, tables={}))
    finally:
        server.shutdown()
        server.server_close()
    ((path, body),) = got
    assert path == "/v1/traces" and b"run0001" in body and b"triangles" in body


def test_a_trace_that_cannot_be_sent_does_not_fail_a_run(
    seed: Seed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    def broken(*args: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(telemetry, "export_trace", broken)
    with caplog.at_level(logging.WARNING):
        stage(seed, "publish").report_done(PublishFacts(revision=1, tables={}))
    assert "could not be sent" in caplog.text


def test_events_in_words(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    events.log_text_lines(sys.stderr)
    try:
        events.log_event(
            "stage failed", logging.ERROR, run="r7", stage="truss", error="no space left", cost={"rows": 0}
        )
        events.log.warning("the trace of run %s could not be sent", "r7")
        assert capsys.readouterr().err == "the trace of run r7 could not be sent\n"  # the command says the rest
    finally:
        events.log.handlers = []
    caplog.clear()
    with caplog.at_level(logging.INFO, "altneu"):
        events.log_event(
            "stage failed", logging.ERROR, run="r7", stage="truss", error="no space left", cost={"rows": 0}
        )
    assert caplog.messages == ["stage failed: run r7, stage truss, error no space left"]
