"""The answers to questions: rows at one revision, from the database alone, from DuckDB or from Spark.

`run_query` checks what can be checked before an engine starts. The module `engines` chooses the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ..errors import UsageError
from ..home.home import Home
from ..state.ledger import Ledger
from ..state.records import CheckRecord, Revision, Severity
from ..state.schema import checks
from ..state.schema import ledger as published
from .published_moment import choose_revision
from .query_model import Question

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ..home.queries import QueryDefinition
    from ..storage.duckdb_tables import DuckTables, Query
    from ..storage.warehouse import Warehouse
    from .engine_protocol import R, Tables
    from .engines import Engines
    from .vertex_names import RowFilter

Row = Mapping[str, Any]
_COMPUTED = ("ArithmeticException", "NumberFormatException", "DateTimeException")
_TEXTS = ("label", "result", "suite", "check", "observed", "first", "at", "name", "run")
_NUMBER = "number of the row"  # an additional column
_TYPES = {"transitivity": "double", "published": "boolean"} | dict.fromkeys(
    _TEXTS, "string"
)  # the types of columns from the database; all others are bigint


@dataclass(frozen=True)
class Answer:
    """The rows of an answer: `rows`, or a `table` in memory, or a `frame` of Spark."""

    columns: tuple[str, ...]
    rows: Sequence[Row] | None
    frame: DataFrame | None = None
    notes: tuple[str, ...] = field(default=())  # what a reader has to know besides the rows
    table: pa.Table | None = None

    def iterate_rows(self, first: int | None = None) -> Iterator[Row]:
        if self.table is not None:
            for batch in self.table.slice(0, first).to_batches(max_chunksize=10_000):
                yield from batch.to_pylist()
        elif self.frame is None:
            yield from (self.rows or ())[:first]
        else:
            frame = self.frame if first is None else self.frame.limit(first)
            for row in frame.toLocalIterator():
                yield row.asDict()

    def count_rows(self) -> int:
        if self.table is not None:
            return int(self.table.num_rows)
        return len(self.rows or ()) if self.frame is None else self.frame.count()

    def arrow_schema(self) -> pa.Schema | None:
        """Return the schema, or None where the rows come from the database."""
        if self.table is not None:
            return self.table.schema
        if self.frame is None:
            return None
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.frame.schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        import pyarrow as pa

        if self.table is not None:
            return self.table
        if self.frame is not None:
            return self.frame.toArrow()
        kinds = {"double": pa.float64(), "string": pa.string(), "boolean": pa.bool_(), "bigint": pa.int64()}
        schema = pa.schema([(name, kinds[type_]) for name, type_ in self.sql_types().items()])
        return pa.Table.from_pylist([dict(row) for row in self.rows or ()], schema=schema)

    def sql_types(self) -> dict[str, str]:
        """Map each column of rows from the database to its SQL type."""
        return {name: _TYPES.get(name, "bigint") for name in self.columns}


def run_query(ledger: Ledger, question: Question, engines: Engines) -> Answer:
    """Answer a question at one revision. An engine starts only where the database cannot answer.

    Raises:
        UsageError: The parts of the question do not fit together, or an epoch cannot be answered for.
        AltneuError: Nothing is published.
    """
    form = question.view_form
    chosen = choose_revision(ledger, question.revision, question.published_at)
    question = replace(question, revision=chosen, published_at=None)
    row = ledger.revisions.get(question.revision)
    if not (row.revision and question.since_revision is not None):  # changes to an empty revision are an answer
        ledger.revisions.require_published(question.revision)
    runner = _QueryRunner(ledger, question, row)
    columns = runner.list_columns()
    question.sort_column(columns)
    runner.check_epochs()
    return runner.answer_from_tables(engines, columns) if form.reads else runner.answer_from_database(columns, engines)


@dataclass(frozen=True)
class _QueryRunner:
    ledger: Ledger
    question: Question
    row: Revision

    def list_columns(self) -> tuple[str, ...]:
        question = self.question
        columns = question.view_form.columns
        if question.view == "query":
            return self._list_result_columns()
        if question.view in ("totals", "vertices"):
            columns += tuple(self.ledger.runs.list_motifs(self.row))
        if question.view == "changes" and question.k is not None:
            return tuple(name for name in columns if name != "trussness")
        return (*columns[:-1], "epoch", "diff") if question.view == "changes" and question.all_epochs else columns

    def _list_result_columns(self) -> tuple[str, ...]:
        from . import query_results

        if self.question.since_revision is None:
            return query_results.result_columns(self.query)
        old = self.ledger.revisions.get(self.question.since_revision)
        query_results.require_same_columns(self.ledger, old, self.query)
        return (*self.query.columns, *(("epoch",) if self.question.all_epochs else ()), "diff")

    @cached_property
    def query(self) -> QueryDefinition:
        """Return the declared query that the question is about."""
        from . import query_results

        return query_results.require_query(self.ledger, self.row, self.question.span[0])

    @property
    def read_tables(self) -> tuple[str, ...]:
        """Return the tables from which the question is answered."""
        return (self.query.table,) if self.question.view == "query" else self.question.view_form.reads

    @cached_property
    def epoch(self) -> int:
        """Return the epoch as of which the question asks."""
        assert self.row.frontier is not None
        return (
            self.row.frontier
            if self.question.as_of is None
            else self.ledger.home.schedule.parse_epoch(self.question.as_of)
        )

    @cached_property
    def epoch_span(self) -> list[int]:
        words = () if self.question.view == "query" else self.question.span
        return [self.ledger.home.schedule.parse_epoch(text) for text in words]

    def check_epochs(self) -> None:
        """Raise `UsageError` for epochs that cannot be answered for. This needs no engine."""
        from . import views

        view, assert_since = self.question.view, self.question.since_revision
        if view in ("quarantine", "checks", "results"):
            if len(self.epoch_span) == 2 and self.epoch_span[0] > self.epoch_span[1]:
                first, last = self.question.span
                raise UsageError(f"from {first} to {last} is backwards.", f"altneu show {view} {last} {first}")
            known = self.ledger.outputs.published_batches(self.row.revision)
            if len(self.epoch_span) == 1 and self.epoch_span[0] not in known and view != "results":
                raise unpublished_error(self.ledger.home, self.epoch_span[0], known)
        elif self.epoch_span:
            views.require_forward(self.ledger.home, self.row, self.epoch_span[0], self.epoch_span[1], view)
        elif self.question.as_of is not None and (view not in ("totals", "trusses") or self.epoch > self.frontier):
            views.require_answerable(self.ledger.home, self.row, self.epoch)
        if assert_since is not None and assert_since > self.row.revision:
            raise UsageError(
                f"--since-revision {assert_since} is after revision {self.row.revision}.",
                f"altneu show {' '.join([view, *self.question.span])} --since-revision {self.row.revision - 1}",
            )

    @property
    def frontier(self) -> int:
        assert self.row.frontier is not None
        return self.row.frontier

    def answer_from_database(self, columns: tuple[str, ...], engines: Engines) -> Answer:
        from . import views

        question, ledger = self.question, self.ledger
        epoch = None if question.as_of is None else self.epoch
        if question.view == "totals":
            points = views.select_totals(
                ledger, revision=question.revision, as_of=epoch, all_epochs=question.all_epochs
            )
            rows: list[dict[str, Any]] = [{**point, **point["motifs"]} for point in points]
        elif question.view == "trusses":
            rows = views.list_trusses(ledger, question.revision, all_epochs=question.all_epochs, as_of=epoch)
        elif question.view == "results":
            rows = _list_check_results(ledger, self.epoch_span)
        else:
            rows = _list_checks(ledger, self.epoch_span)
        listed: list[Row] = [{name: row[name] for name in columns} for row in rows]
        if question.where is not None:
            listed = _select_matching(Answer(columns, listed), question.where, engines)
        order = question.sort_column(columns)
        if order:
            listed.sort(key=lambda row: (row[order[0]] is not None, row[order[0]]), reverse=order[1])
        return Answer(columns, listed[: question.row_limit], notes=self._sparse_note(rows))

    def _sparse_note(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return a note where only the epochs are listed that landed or changed, because there are too many epochs."""
        from . import views

        if not self.question.all_epochs or not rows:
            return ()
        span, listed = rows[-1]["epoch"] - rows[0]["epoch"], len({row["epoch"] for row in rows})
        if span <= views.MOST_EPOCHS:
            return ()
        return (f"{listed:,} of {span + 1:,} epochs: those that landed or changed something",)

    def answer_from_tables(self, engines: Engines, columns: tuple[str, ...]) -> Answer:
        notes: tuple[str, ...] = ()
        question, read = self.question, [self.row]
        if question.view == "communities" and question.k is None:
            notes = (f"the communities of the {self.greatest_k}-truss, the densest; others with --k",)
        if question.since_revision is not None:
            read.append(self.ledger.revisions.get(question.since_revision))
            notes = (f"from revision {question.since_revision} to revision {self.row.revision}",)
        if question.top is not None and question.sort is None:
            order = question.sort_column(columns)
            notes += (f"by {order[0] if order else ''}; by another column with --sort",)

        def answer_by_duckdb(tables: DuckTables) -> Answer:
            return Answer(
                columns,
                None,
                notes=notes,
                table=_filter_in_duckdb(tables, self._select_view(tables), question, columns),
            )

        def answer_by_spark(warehouse: Warehouse) -> Answer:
            return Answer(columns, None, _filter_frame(self._select_view(warehouse), question, columns), notes)

        return engines.choose_and_run(
            read,
            self.read_tables,
            works=question.view_form.works,
            by_duckdb=answer_by_duckdb,
            by_spark=answer_by_spark,
        )

    @cached_property
    def greatest_k(self) -> int:
        from . import views

        totals = views.select_totals(self.ledger, revision=self.question.revision, as_of=self.epoch)
        return max(int(totals[0]["max_trussness"]), 2)

    def _select_view(self, house: Tables[R]) -> R:
        from . import query_results, triangle_views, views

        question, row, span = self.question, self.row, self.epoch_span
        only = self._row_filter()
        match question.view:
            case "quarantine":
                return views.select_quarantine(house, row, span[0] if span else None, span[-1] if span else None)
            case "query" if question.since_revision is not None:
                old = self.ledger.revisions.get(question.since_revision)
                return query_results.select_result_changes(house, old, row, self.query, all_epochs=question.all_epochs)
            case "query":
                return query_results.select_query_rows(house, row, self.query, self.epoch)
            case "changes" if question.since_revision is not None:
                old = self.ledger.revisions.get(question.since_revision)
                return views.select_changes_since(house, old, row, all_epochs=question.all_epochs, only=only)
            case "changes" if question.k is not None:
                return views.select_truss_changes(house, row, span[0], span[1], question.k, only)
            case "changes":
                return views.select_changes(house, row, span[0], span[1], only)
            case "triangles":
                return triangle_views.list_triangles(
                    house, row, span[1] if span else self.epoch, span[0] if span else None, only
                )
            case "communities":
                return triangle_views.list_communities(house, row, self.epoch, question.k or self.greatest_k, only)
            case "support":
                return triangle_views.count_support(house, row, self.epoch, only)
            case view:
                return views.select_as_of(house, row, view, self.epoch, self.ledger.runs.list_motifs(row), only)

    def _row_filter(self) -> RowFilter | None:
        from .vertex_names import RowFilter

        names = self.question.edge or self.question.vertices
        return RowFilter(tuple(names), self.question.edge is not None) if names else None


def unpublished_error(home: Home, epoch: int, known: Iterable[int], what: str = "published") -> UsageError:
    """Return the error for an epoch that was never published, with the nearest published ones."""
    label = home.schedule.format_label
    near = sorted(sorted(known, key=lambda each: abs(each - epoch))[:3])
    hint = f" The nearest epochs are {', '.join(map(label, near))}." if near else f" Nothing was {what}."
    return UsageError(f"epoch {label(epoch)} was never {what}.{hint}", "altneu status")


def _filter(frame: DataFrame, where: str, columns: Sequence[str]) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        frame = frame.where(where)
        frame.schema  # noqa: B018  over Spark Connect the condition is analyzed only when the schema is read
    except AnalysisException as error:
        raise _condition_error(where, columns, error) from None
    return frame


def _filter_frame(frame: DataFrame, question: Question, columns: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as F

    if question.where is not None:
        frame = _filter(frame, question.where, columns)
    by = [(F.col(f"`{name}`"), down) for name, down in question.sort_order(columns)]
    frame = frame.orderBy(*(column.desc() if down else column.asc() for column, down in by))
    return frame if question.row_limit is None else frame.limit(question.row_limit)


def _filter_in_duckdb(tables: DuckTables, rows: Query, question: Question, columns: tuple[str, ...]) -> pa.Table:
    """Filter, sort and limit rows in DuckDB, with nulls first as in Spark. It may raise `UncertainCondition`."""
    from ..storage.condition_errors import Refused

    where = ""
    if question.where is not None:
        try:
            where = f"WHERE {tables.translate_condition(question.where, tables.column_types(rows))}"
        except Refused as error:
            raise _condition_error(question.where, columns, error) from None
    ways = {True: "DESC NULLS LAST", False: "ASC NULLS FIRST"}
    order = ", ".join(f"{tables.quote_identifier(name)} {ways[down]}" for name, down in question.sort_order(columns))
    limit = "" if question.row_limit is None else f"LIMIT {question.row_limit}"
    return tables.to_arrow(tables.select_rows(f"SELECT * FROM {{rows}} {where} ORDER BY {order} {limit}", rows=rows))


def _condition_error(where: str, columns: Sequence[str], error: Exception) -> UsageError:
    why = _error_line(error)
    return UsageError(f"--where {where!r} cannot be read: {why}. The columns are {', '.join(columns)}.")


@contextmanager
def translate_condition_errors(where: str | None) -> Iterator[None]:
    """Run the block, and turn errors of a condition (1/0, '7x' as a number) into a `UsageError`."""
    try:
        yield
    except Exception as error:
        if where is None or type(error).__name__ not in _COMPUTED:
            raise
        raise UsageError(f"--where {where!r}: {_error_line(error)}.") from None


def _error_line(error: Exception) -> str:
    line = str(error).strip().splitlines()[0]
    return re.sub(r"^\[[\w.]+\] ", "", line).split(" SQLSTATE")[0].split(" If necessary set ")[0].rstrip(". ")


def _select_matching(answer: Answer, where: str, engines: Engines) -> list[Row]:
    """Select the rows of the database for which a condition holds, in their order, as every view understands it."""
    import pyarrow as pa

    rows = list(answer.iterate_rows())
    table = answer.to_arrow().append_column(_NUMBER, pa.array(range(len(rows)), pa.int64()))

    def by_duckdb(tables: DuckTables) -> list[int]:
        from ..storage.condition_errors import Refused
        from ..storage.duckdb_tables import Query

        try:
            holds = tables.translate_condition(where, answer.sql_types())
        except Refused as error:
            raise _condition_error(where, answer.columns, error) from None
        held = Query("SELECT * FROM rows_of_the_database", {"rows_of_the_database": table})
        matching = tables.select_rows(
            f"SELECT {tables.quote_identifier(_NUMBER)} AS number FROM {{rows}} WHERE {holds}", rows=held
        )
        return [row["number"] for row in tables.collect_rows(matching)]

    def by_spark(warehouse: Warehouse) -> list[int]:
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in (answer.sql_types() | {_NUMBER: "bigint"}).items())
        frame = warehouse.spark.createDataFrame(table.to_pylist(), columns)
        return [row[0] for row in _filter(frame, where, answer.columns).select(f"`{_NUMBER}`").collect()]

    with translate_condition_errors(where):
        return [
            rows[number]
            for number in sorted(engines.choose_and_run((), (), works=False, by_duckdb=by_duckdb, by_spark=by_spark))
        ]


def _list_check_results(ledger: Ledger, span: Sequence[int]) -> list[dict[str, Any]]:
    """Return every stored result, the newest first."""
    within = (checks.c.epoch >= span[0], checks.c.epoch <= span[-1]) if span else ()
    columns = ("epoch", "revision", "at", "suite", "name", "severity", "passed", "observed", "run_id")
    joined = checks.outerjoin(published, published.c.run_id == checks.c.run_id)
    statement = sa.select(*(checks.c[name] for name in columns), published.c.revision.label("made")).select_from(joined)
    return [
        {
            "epoch": row.epoch,
            "label": ledger.home.schedule.format_label(row.epoch),
            "revision": row.revision,
            "at": row.at,
            "result": "passed" if row.passed else "warns" if row.severity == "warning" else "fails",
            "suite": row.suite,
            "name": row.name,
            "observed": row.observed,
            "run": row.run_id or "an audit",
            "published": row.run_id is None or row.made is not None,
        }
        for row in ledger.database.read_rows(statement.where(*within).order_by(checks.c.id.desc()))
    ]


def _list_checks(ledger: Ledger, span: Sequence[int]) -> list[dict[str, Any]]:
    """Return the newest results about what is published and the failures that still matter, failures first."""
    from ..state.epoch_status import is_fresh, is_relevant, list_epoch_statuses, select_newest_checks

    stand = list_epoch_statuses(ledger, ledger.revisions.get())
    within = (checks.c.epoch >= span[0], checks.c.epoch <= span[-1]) if span else ()
    rows = []
    for check in map(
        CheckRecord.from_row, ledger.database.read_rows(select_newest_checks(stand.newest.revision, *within))
    ):
        subject = check, stand.status_of(check.epoch).batch, stand.marks
        if not is_fresh(*subject) and (check.passed or not is_relevant(*subject)):
            continue
        first = check.rows[0] if check.rows else {}
        rows.append(
            {
                "epoch": check.epoch,
                "label": ledger.home.schedule.format_label(check.epoch),
                "result": "passed" if check.passed else "warns" if check.severity is Severity.WARNING else "fails",
                "suite": check.suite,
                "check": check.name,
                "observed": check.observed,
                "first": ", ".join(f"{name} {value}" for name, value in first.items() if name != "why"),
            }
        )
    order = {"fails": 0, "warns": 1, "passed": 2}
    return sorted(rows, key=lambda row: (order[row["result"]], row["epoch"]))
