"""What declared queries cost: the stage `queries` alone, commits included, in one warm session.

    python -m tests.benchmarks.queries [--rows 1400000] [--epochs 3] [--heap 5g] [--together] [--only NAME]
        [--without-text NAME]

Seeded R-MAT in both directions with amounts and times, a fifth of the pairs several times, in Iceberg tables; then
epochs of 500 deletions and 500 upserts. Beside each query the same text is run by Spark in the same session, and the
time of the audit by DuckDB at the last epoch. Seconds and CPU seconds of the JVM: of the stage, which also maintains
the values in force for all queries that read `arcs`, and of the query alone. The ratio is that of the text, which reads
the stored relations, to the query. The results of joins begin empty: no run reads them, and computing them anew is not
measured here. `--together`: all queries in each run, else one for each; then queries run side by side, and the CPU
seconds of one contain those of others.
Triangles, trussness and suites are left out. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from altneu.algorithms import maintained_query
from altneu.algorithms.sql_query import spark_text
from altneu.pipeline.checking import query_recount
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.query_results import published_queries
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.run.stages import audit, queries, report, triangles, truss
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.stage_results import (
    AuditFacts,
    QueriesFacts,
    QueryRun,
    ReportFacts,
    TrianglesFacts,
    TrussFacts,
)
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.session import start_session
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.benchmarks import spread
from tests.benchmarks.triangles import by_rmat

QUERIES = {
    "by_sender": "SELECT src, count(*) AS n, sum(amount) AS total FROM landed GROUP BY src",
    "mutual": """SELECT a.src, a.dst, a.amount AS given, b.amount AS taken FROM arcs a
        JOIN arcs b ON b.src = a.dst AND b.dst = a.src WHERE a.src < a.dst""",
    "triangles": """SELECT ab.src AS a, ab.dst AS b, ac.dst AS c FROM edges ab JOIN edges ac ON ac.src = ab.src
        JOIN edges bc ON bc.src = ab.dst AND bc.dst = ac.dst""",
    "ring": """SELECT a.src AS x, b.src AS y, c.src AS z, a.amount, c.seq - a.seq AS lasted FROM landed a
        JOIN landed b ON b.src = a.dst AND b.seq > a.seq
        JOIN landed c ON c.src = b.dst AND c.dst = a.src AND c.seq > b.seq
        WHERE 10 * b.amount >= 8 * a.amount AND b.amount <= a.amount
            AND 10 * c.amount >= 8 * b.amount AND c.amount <= b.amount""",
}


def land(home: Home, epoch: int, src: np.ndarray, dst: np.ndarray, gone: int, rng: np.random.Generator) -> None:
    """Land rows with amounts and times; the first `gone` are deletions."""
    path = home.landing / f"epoch={epoch}"
    path.mkdir(parents=True)
    columns = {
        "src": src,
        "dst": dst,
        "amount": rng.integers(1, 1000, src.size),
        "seq": rng.integers(0, 10**9, src.size) + epoch * 10**9,
        "op": ["delete"] * gone + ["upsert"] * (src.size - gone),
    }
    pq.write_table(pa.table(columns), path / "rows.parquet")
    (path / "_SUCCESS").touch()


def leave_out_other_stages(patch: pytest.MonkeyPatch) -> None:
    """Have runs without triangles, trussness, checks and pages."""

    def count_nothing(run: RunContext) -> TrianglesFacts:
        run.write_rows("triangle_counts", None)
        return TrianglesFacts(rows=0, proposals=None)

    def replay_nothing(run: RunContext) -> TrussFacts:
        run.write_rows("trussness", None)
        return TrussFacts(rows=0, epochs=0)

    patch.setattr(triangles, "count_triangles_and_motifs", count_nothing)
    patch.setattr(truss, "maintain_truss", replay_nothing)
    patch.setattr(audit, "audit_run", lambda run: AuditFacts(checks=0, failed=0, critical=0))
    patch.setattr(report, "write_report", lambda run: ReportFacts(pages=0, page=None))


@dataclass
class SpentSeconds:
    """The CPU seconds of the JVM of the stages `queries`, and those of the last run of each query."""

    stages: list[float] = field(default_factory=list)
    queries: dict[str, float] = field(default_factory=dict)


def count_seconds(spark: SparkSession, patch: pytest.MonkeyPatch) -> SpentSeconds:
    """Count the CPU seconds of every stage `queries` from now on."""
    maintain_stage, maintain_query, spent = queries.maintain_queries, queries._Maintainer.maintain, SpentSeconds()

    def maintain_queries(run: RunContext) -> QueriesFacts:
        _, cpu, facts = measure(spark, lambda: maintain_stage(run))
        spent.stages.append(cpu)
        return facts

    def maintain(maintainer: Any, task: Any) -> QueryRun:
        _, spent.queries[task.definition.name], result = measure(spark, lambda: maintain_query(maintainer, task))
        return result

    patch.setattr(queries, "maintain_queries", maintain_queries)
    patch.setattr(queries._Maintainer, "maintain", maintain)
    return spent


def jvm_seconds(spark: SparkSession) -> float:
    """Return the CPU seconds of Spark's JVM."""
    process = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(spark: SparkSession, work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of some work, the CPU seconds of the JVM, and its result."""
    begin, before = time.perf_counter(), jvm_seconds(spark)
    result = work()
    return time.perf_counter() - begin, jvm_seconds(spark) - before, result


def run_stage(ledger: Ledger, epochs: list[int]) -> tuple[float, QueriesFacts]:
    """Run epochs, and return the seconds of the stage `queries`, and its facts."""
    plan = planning.plan_epochs(ledger, epochs) if epochs else planning.plan_run(ledger, lambda epoch: True)
    revision = runner.execute_run(ledger, plan)
    assert revision is not None
    row = next(row for row in ledger.stages.select(revision.run_id) if row.stage == "queries")
    assert isinstance(row.facts, QueriesFacts)
    return row.seconds or 0.0, row.facts


def declare(home: Home, names: list[str]) -> None:
    folder = home.path / "queries"
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.sql"):
        file.unlink()
    for name in names:
        (folder / f"{name}.sql").write_text(QUERIES[name])


def recompute_by_spark(spark: SparkSession, ledger: Ledger, name: str, epoch: int) -> int:
    """Run the text by Spark on the relations as they are at the epoch, and return how many rows it has."""
    tables, revision = (
        Warehouse(spark, ledger.home, published_queries(ledger, ledger.revisions.get())),
        ledger.revisions.get(),
    )
    alive = f"epoch <= {epoch} AND until > {epoch}"
    views = {
        "landed": ("upserts", "src, dst, amount, op, seq, epoch", f"epoch <= {epoch}"),
        "arcs": ("arcs", "src, dst, amount", alive),
        "edges": ("edges", "a AS src, b AS dst", alive),
    }
    for view, (table, columns, condition) in views.items():
        if view in QUERIES[name]:
            key = ", ".join(each.split(" AS ")[0] for each in columns.split(", "))
            rows = tables.read_table(table, revision).where(condition).groupBy(*key.split(", ")).agg({"diff": "sum"})
            rows.where("`sum(diff)` > 0").selectExpr(*columns.split(", ")).createOrReplaceTempView(view)
    return spark.sql(spark_text(QUERIES[name])).count()


def audit_by_duckdb(ledger: Ledger, name: str, epoch: int) -> None:
    revision, tables = ledger.revisions.get(), DuckTables(ledger.home)
    known = published_queries(ledger, revision)
    source = query_recount.QuerySource(tables, lambda table: tables.read_table(table, revision), known, in_spark=False)
    query_recount.find_differing_rows(source, [known[name]], [epoch])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_400_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--heap", default="5g")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--without-text", nargs="*", default=[], help="queries whose text is not run again")
    parser.add_argument("--only", nargs="+", default=list(QUERIES))
    options = parser.parse_args()
    conf = {"spark.driver.memory": options.heap}
    spark = start_session(conf=conf)
    settings = f'[values]\namount = "long"\n[spark]\nconf = {{ "spark.driver.memory" = "{options.heap}" }}\n'
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        leave_out_other_stages(patch)
        compare(spark, home_helpers.make(Path(folder) / "home", settings)[1], options, patch)


def begin_empty(patch: pytest.MonkeyPatch) -> None:
    """Have new queries without a last step begin without rows."""
    compute = maintained_query.core_from_scratch

    def compute_little(query: Any, relations: Any, limit: Any) -> Any:
        few = relations if query.is_grouped else {name: rows.limit(0) for name, rows in relations.items()}
        return compute(query, few)

    patch.setattr(maintained_query, "core_from_scratch", compute_little)


def compare(spark: SparkSession, ledger: Ledger, options: Any, patch: pytest.MonkeyPatch) -> None:
    home = ledger.home
    rng = np.random.default_rng(3)
    a, b = by_rmat(options.rows * 4 // 5)
    again = rng.choice(a.size, options.rows - a.size)
    a, b = np.append(a, a[again]), np.append(b, b[again])
    turned = rng.random(a.size) < 0.5
    src, dst = np.where(turned, b, a), np.where(turned, a, b)
    land(home, 0, src, dst, 0, rng)
    runner.execute_run(ledger, planning.plan_epochs(ledger, [0]))
    print(f"{src.size:,} rows", flush=True)
    print("| query | stage, s | CPU s | query, s | CPU s | its text by Spark, s | CPU s | ratio of CPU | audit, s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    epoch, spent = 0, count_seconds(spark, patch)
    for names in [options.only] if options.together else [[name] for name in options.only]:
        declare(home, names)
        with patch.context() as empty:
            begin_empty(empty)
            run_stage(ledger, [])
        found: list[tuple[float, float, dict[str, QueryRun], dict[str, float]]] = []
        for _ in range(options.epochs + 1):
            epoch += 1
            gone = rng.choice(src.size, 500, replace=False)
            ends = np.append(src[gone], rng.choice(src, 500)), np.append(dst[gone], rng.choice(dst, 500))
            land(home, epoch, *ends, 500, rng)
            seconds, facts = run_stage(ledger, [epoch])
            found.append((seconds, spent.stages[-1], dict(facts.queries), dict(spent.queries)))
        for name in names:
            show(spark, ledger, name, epoch, found[1:], again=name not in options.without_text)


def show(spark: SparkSession, ledger: Ledger, name: str, epoch: int, found: list[Any], *, again: bool) -> None:
    stage, cpu = ([each[place] for each in found] for place in (0, 1))
    own, own_cpu = [each[2][name].seconds for each in found], [each[3][name] for each in found]
    cells = [name, spread(stage), spread(cpu), spread(own), spread(own_cpu)]
    if again:
        text, text_cpu, _ = measure(spark, lambda: recompute_by_spark(spark, ledger, name, epoch))
        checked = measure(spark, lambda: audit_by_duckdb(ledger, name, epoch))[0]
        cells += [f"{text:.1f}", f"{text_cpu:.1f}", f"{text_cpu / statistics.median(own_cpu):.1f}", f"{checked:.1f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
