"""Read landed files in Spark, as diff triples of `upserts`, and of `quarantine` for malformed rows.

If an epoch is run again, its batch is replaced: the difference between the landed and the published batch is written.
Files are read inside Spark tasks, one file per task, one block at a time: once to count them, then for their rows. A
file that cannot be read as a whole (damaged gzip, missing column) stops the run; malformed rows go to quarantine with
file, line and reason, and stop the run only above `[ingest] max_bad_share`. Empty lines and the comments before a
header are recorded in quarantine, but do not count as lost rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from altneu.algorithms.sql_text import quote_identifier

from ..errors import BatchRejected, Unavailable
from ..home.columns import SQL_TYPES
from ..home.home import Home
from ..home.s3_config import S3
from ..storage import local_frame
from ..storage.session import count_cores
from ..storage.table_schemas import ddl_schema, value_columns
from . import OPERATIONS, BatchFiles
from .batch_files import LandedFile
from .file_reader import read_blocks
from .repeated_headers import HARMLESS, reject_repeated_headers
from .row_schema import BrokenFileError, RowSchema, relation_schema

FEW_FILES = 8  # up to this number each file is a task; of more files a core gets about four tasks, since sizes differ

COMMENTS_NOTED = "comments before the header"  # the reason of a quarantine row that stands for comments

_ID = {"integer": "bigint", "string": "string"}


def read_good_rows(spark: SparkSession, home: Home, landed: Iterable[BatchFiles]) -> DataFrame:
    """Return the usable rows of the landed files: src, dst, values, op, seq, file, line, epoch.

    The files are read again at every use of the frame.
    """
    id_type = _ID[home.config.vertices.ids]
    own = {"op": "string", "seq": "bigint", "file": "string", "line": "bigint", "epoch": "bigint"}
    return _read_files(
        spark, home, landed, _iterate_good, ddl_schema({"src": id_type, "dst": id_type} | value_columns(home) | own)
    )


def read_relation_rows(spark: SparkSession, home: Home, landed: Iterable[BatchFiles], relation: str) -> DataFrame:
    """Return the usable rows of a declared relation's landed files: its columns, op, seq, file, line, epoch.

    The files are read again at every use of the frame.
    """
    types = {name: _spark_type(home, type_) for name, type_ in home.config.relations[relation].columns.items()}
    own = {"op": "string", "seq": "bigint", "file": "string", "line": "bigint", "epoch": "bigint"}
    schema = ddl_schema(types | own)
    return _read_files(spark, home, landed, _iterate_good, schema, lambda batch: batch.files_of(relation))


def _spark_type(home: Home, type_: str) -> str:
    return _ID[home.config.vertices.ids] if type_ == "vertex" else SQL_TYPES[type_]


def read_bad_rows(spark: SparkSession, home: Home, landed: Iterable[BatchFiles]) -> DataFrame:
    """Return the malformed rows of the landed files, also of those of relations: file, line, reason, text, epoch.

    The files are read again at every use of the frame.
    """
    return _read_files(
        spark,
        home,
        landed,
        _iterate_bad,
        "file string, line bigint, reason string, text string, epoch bigint",
        _all_files,
    )


def count_rows(
    spark: SparkSession,
    home: Home,
    landed: Sequence[BatchFiles],
    *,
    apart: bool = False,
    count_failures: Callable[[Sequence[BatchFiles]], Iterable[Row]] | None = None,
) -> tuple[dict[int, tuple[int, int]], dict[int, BatchRejected]]:
    """Count the rows of landed batches, and find the batches that must not be published.

    This is a reading of its own, in which no row leaves its task: it is cheaper than keeping all rows until their
    number is known.

    Args:
        apart: Judge each epoch by itself, instead of all of them together.
        count_failures: Count for batches without a broken file how many rows the settings make malformed
            (`predicate_validation.count_failures`).

    Returns:
        Epoch → (good rows of the edges, quarantined rows of all files); and epoch → what is wrong with its batch: a
        broken file, or too large a share of malformed rows.

    Raises:
        Unavailable: A file cannot be reached.
    """
    schema = "epoch bigint, file string, good bigint, bad bigint, serious bigint, fatal boolean, again boolean, "
    schema += "line bigint, reason string, text string"
    files = _read_files(spark, home, landed, _count_file, schema, _all_files).collect()
    files.sort(key=lambda row: (row.epoch, row.file))
    away = next((row for row in files if row.fatal and row.again), None)
    if away:
        raise Unavailable(
            f"landing/{away.file}: {away.reason}. Nothing was published.",
            "altneu doctor; then type the same command again",
        )
    broken = {row.epoch for row in files if row.fatal}
    if count_failures is not None and (apart or not broken):
        failed = {row.file: row for row in count_failures([batch for batch in landed if batch.epoch not in broken])}
        files = [_add_failures(row, failed[row.file]) if row.file in failed else row for row in files]
    counts: dict[int, tuple[int, int]] = {}
    for row in files:
        before = counts.get(row.epoch, (0, 0))
        is_edges = row.file.count("/") == 1
        counts[row.epoch] = before[0] + is_edges * row.good, before[1] + row.bad
    wrong: dict[int, BatchRejected] = {}
    for epochs in [[epoch] for epoch in counts] if apart else [list(counts)]:
        error = _describe_wrong_batch(home, [row for row in files if row.epoch in epochs])
        wrong |= dict.fromkeys(epochs, error) if error else {}
    return counts, wrong


def _add_failures(counted: Row, failed: Row) -> Row:
    """Return the counts of a file with the rows that the settings make malformed added."""
    n = failed.failed
    counts = counted.asDict() | {"good": counted.good - n, "bad": counted.bad + n, "serious": counted.serious + n}
    if counted.line is None or failed.line < counted.line:
        counts |= {"line": failed.line, "reason": failed.reason, "text": failed.text}
    return Row(**counts)


def _describe_wrong_batch(home: Home, files: Sequence[Row]) -> BatchRejected | None:
    """Return why the batches of some files must not be published, or None; `files` are counts of `count_rows`."""
    broken = [row for row in files if row.fatal]
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return BatchRejected(
            f"landing/{broken[0].file}: {broken[0].reason}{more}. Nothing was published.",
            "fix or remove the file, then run the same command again",
        )
    serious = sum(row.serious for row in files)
    total = serious + sum(row.good for row in files)
    if serious > home.config.ingest.max_bad_share * total:
        first = next(row for row in files if row.serious)
        return BatchRejected(
            f"{serious} of {total} rows are malformed, more than [ingest] max_bad_share = "
            f"{home.config.ingest.max_bad_share:g} allows. The first: landing/{first.file} line {first.line}: "
            f"{first.reason}: {first.text[:80]!r}. Nothing was published.",
            "fix the files, or raise max_bad_share in altneu.toml",
        )
    return None


@dataclass(frozen=True)
class _File:
    """One landed file, and how to read it."""

    epoch: int
    location: str
    name: str
    form: RowSchema
    s3: S3


_Rows = Callable[[_File], Iterator[pa.Table]]


def _all_files(batch: BatchFiles) -> tuple[LandedFile, ...]:
    return batch.all_files


def _edge_files(batch: BatchFiles) -> tuple[LandedFile, ...]:
    return batch.files


def _read_files(
    spark: SparkSession,
    home: Home,
    landed: Iterable[BatchFiles],
    rows: _Rows,
    schema: str,
    choose: Callable[[BatchFiles], tuple[LandedFile, ...]] = _edge_files,
) -> DataFrame:
    """Return what `rows` yields for each of the files that are chosen, with one file per task as far as there are
    cores.
    """
    forms = {"": _row_schema_of(home)} | {name: relation_schema(home, name) for name in home.config.relations}
    files = [(batch.epoch, f.location, f"epoch={batch.label}/{f.name}") for batch in landed for f in choose(batch)]
    s3 = S3.from_environment()  # the executors may have other keys in their environment
    if not files:
        return spark.createDataFrame([], schema)

    def read_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for epoch, path, name in zip(*(batch[c].to_pylist() for c in ("epoch", "path", "name")), strict=True):
                form = forms[name.split("/")[1] if name.count("/") == 2 else ""]
                for table in rows(_File(epoch, path, name, form, s3)):
                    yield from table.to_batches(1 << 17)

    slices = len(files) if len(files) <= FEW_FILES else min(len(files), 4 * count_cores(spark))
    listed = local_frame.local_frame(spark, {"epoch": "bigint", "path": "string", "name": "string"}, files)
    spread = listed.repartitionByRange(slices, "path") if slices > 1 else listed.coalesce(1)
    return spread.mapInArrow(read_all, schema)


_MalformedRows = list[tuple[int, str, str]]  # line, reason, text


def _iterate_blocks(file: _File) -> Iterator[tuple[pa.Table, _MalformedRows]]:
    """Yield the rows of a file with their operations, and the malformed rows. Raise `BrokenFileError` for a broken
    file."""
    for block in read_blocks(file.location, file.form, file.s3):
        if ".csv" in Path(file.name).suffixes:
            block = reject_repeated_headers(block, file.form)
        rows = block.rows.combine_chunks()
        operation = rows["op"].fill_null("upsert")
        fine = pc.is_in(operation, pa.array(OPERATIONS))
        malformed = list(block.malformed_rows)
        if block.comments:
            malformed.append((1, COMMENTS_NOTED, f"{block.comments} lines"))
        if not pc.all(fine).as_py():
            for row in rows.filter(pc.invert(fine)).to_pylist():
                line = row.pop("line")
                reason = f"op is {row['op']!r}, not one of {', '.join(OPERATIONS)}"
                malformed.append((line, reason, json.dumps(row)[:500]))
        rows = rows.set_column(rows.column_names.index("op"), "op", operation)
        rows = rows.set_column(rows.column_names.index("seq"), "seq", rows["seq"].fill_null(0))
        yield rows.filter(fine), malformed


def _iterate_good(file: _File) -> Iterator[pa.Table]:
    for rows, _ in _iterate_blocks(file):
        n, lines = rows.num_rows, rows["line"]
        rows = rows.drop_columns(["line"]).append_column("file", pa.repeat(pa.scalar(file.name), n))
        yield rows.append_column("line", lines).append_column("epoch", pa.repeat(pa.scalar(file.epoch, pa.int64()), n))


def _iterate_bad(file: _File) -> Iterator[pa.Table]:
    for _, rows in _iterate_blocks(file):
        line, reason, text = zip(*rows, strict=True) if rows else ((), (), ())
        yield pa.table(
            {
                "file": pa.repeat(pa.scalar(file.name), len(rows)),
                "line": pa.array(line, pa.int64()),
                "reason": pa.array(reason, pa.string()),
                "text": pa.array(text, pa.string()),
                "epoch": pa.repeat(pa.scalar(file.epoch, pa.int64()), len(rows)),
            }
        )


def _count_file(file: _File) -> Iterator[pa.Table]:
    """Yield one row: how many of the file's rows are good, bad, and lost, and the first lost one."""
    counts: dict[str, Any] = {"epoch": file.epoch, "file": file.name, "good": 0, "bad": 0, "serious": 0}
    counts |= {"fatal": False, "again": False}
    first: tuple[int, str, str] | tuple[None, None, None] = (None, None, None)
    try:
        for rows, malformed in _iterate_blocks(file):
            serious = [row for row in malformed if row[1] not in (*HARMLESS, COMMENTS_NOTED)]
            counts["good"] += rows.num_rows
            counts["bad"] += len(malformed)
            counts["serious"] += len(serious)
            first = min(serious) if serious and first[0] is None else first
    except BrokenFileError as error:
        counts["fatal"], counts["again"], first = True, error.transient, (0, str(error), "")
    row = counts | dict(zip(("line", "reason", "text"), first, strict=True))
    yield pa.Table.from_pylist([row], _COUNTS_SCHEMA)


_COUNTS_SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("file", pa.string()),
        ("good", pa.int64()),
        ("bad", pa.int64()),
        ("serious", pa.int64()),
        ("fatal", pa.bool_()),
        ("again", pa.bool_()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("text", pa.string()),
    ]
)


def subtract_published(new: DataFrame, old: DataFrame | None) -> DataFrame:
    """Return the diff triples that turn the published rows `old` (with `diff`) into the rows `new` (one of each)."""
    plus = new.withColumn("diff", F.expr("1L"))
    if old is None:
        return plus
    data = [quote_identifier(name) for name in new.columns]
    minus = old.selectExpr(*data, "-diff AS diff")
    return plus.unionByName(minus).groupBy(*data).agg(F.expr("sum(diff) AS diff")).where("diff <> 0")


def select_new_names(ids: DataFrame, names: DataFrame) -> DataFrame:
    """Return the entries (id, name) that the dictionary `names` lacks for some string ids, in a column `name`.

    New names are numbered in alphabetical order after the greatest id; the ids mean nothing outside the store.
    """
    fresh = ids.distinct().join(names, "name", "left_anti")
    last = names.agg(F.coalesce(F.max("id"), F.lit(-1)).alias("last"))
    order = F.row_number().over(Window.orderBy("name"))
    return fresh.crossJoin(last).select((F.col("last") + order).cast("bigint").alias("id"), "name")


def list_ids(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the string ids in some columns of rows, in a column `name`."""
    return rows.select(F.explode(F.array(*map(quote_identifier, columns))).alias("name"))


def replace_names_by_ids(rows: DataFrame, names: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows with integers for their string ids in some columns, by the dictionary `names` (id, name).

    The dictionary has all of the names.

    Cost: two joins, at ingest alone; the graph's joins see integers.
    """
    out = rows
    for column in columns:
        entry = names.select(F.col("id").alias(f"_{column}"), F.col("name").alias(column))
        out = out.join(entry, column).drop(column).withColumnRenamed(f"_{column}", column)
    return out.select(*map(quote_identifier, rows.columns))


def _row_schema_of(home: Home) -> RowSchema:
    """Return the schema of a landed file."""
    id_type = "long" if home.config.vertices.ids == "integer" else "string"
    types = {"src": id_type, "dst": id_type, **home.config.values, "op": "string", "seq": "long"}
    return RowSchema(types, optional=frozenset(types) - {"src", "dst"})
