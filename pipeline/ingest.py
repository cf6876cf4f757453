"""Ingest: landed files → diff triples of `upserts`, and of `quarantine` for the rows that are none.

A rerun of an epoch replaces its batch: what is written is the difference between the batch as landed and as published.
Files are read inside Spark tasks, a file a task, a block at a time. A file that is broken as a whole (truncated gzip,
missing column) stops the run; malformed rows go to quarantine with file, line and reason, and stop the run only above
`[ingest] max_bad_share`. Empty lines are noted in quarantine and count as nothing lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .config import Home
from .errors import RunFailed
from .iceberg import classic
from .landing import OPERATIONS, Landed, layout
from .reading import ARROW, FileBroken, Layout, read
from .warehouse import SQL_TYPES

_ID = {"integer": "bigint", "string": "string"}


def parse(spark: SparkSession, home: Home, landed: Iterable[Landed]) -> DataFrame:
    """All rows of the landed files: src, dst, values, op, seq, file, line, epoch; for bad ones reason, text, fatal."""
    form = layout(home)
    files = [(batch.epoch, str(f), f"epoch={batch.label}/{f.name}") for batch in landed for f in batch.files]
    values = "".join(f"{name} {SQL_TYPES[type_]}, " for name, type_ in home.config.values.items())
    id_type = _ID[home.config.ids]
    schema = (
        f"src {id_type}, dst {id_type}, {values}op string, seq bigint, file string, line bigint, epoch bigint, "
        "reason string, text string, fatal boolean"
    )
    if not files:
        return spark.createDataFrame([], schema)
    slices = min(len(files), 4 * spark.sparkContext.defaultParallelism) if classic(spark) else min(len(files), 8)
    listed = spark.createDataFrame(files, "epoch bigint, path string, name string")
    spread = listed.repartitionByRange(slices, "path") if slices > 1 else listed.coalesce(1)
    return spread.mapInArrow(_reader(form), schema)


def _reader(form: Layout) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for epoch, path, name in zip(*(batch[c].to_pylist() for c in ("epoch", "path", "name")), strict=True):
                for table in _file(Path(path), name, epoch, form):
                    yield from table.to_batches(1 << 17)

    return rows


def _file(path: Path, name: str, epoch: int, form: Layout) -> Iterator[pa.Table]:
    try:
        for block in read(path, form):
            good = block.good.combine_chunks()
            operation = good["op"].fill_null("upsert")
            fine = pc.is_in(operation, pa.array(OPERATIONS))
            bad = list(block.bad)
            if not pc.all(fine).as_py():
                for row in good.filter(pc.invert(fine)).to_pylist():
                    line = row.pop("line")
                    reason = f"op is {row['op']!r}, not one of {', '.join(OPERATIONS)}"
                    bad.append((line, reason, json.dumps(row)[:500]))
            good = good.set_column(good.column_names.index("op"), "op", operation)
            good = good.set_column(good.column_names.index("seq"), "seq", good["seq"].fill_null(0)).filter(fine)
            yield _dressed(good.drop_columns(["line"]), good["line"], name, epoch)
            if bad:
                yield _quarantined(bad, form, name, epoch, fatal=False)
    except FileBroken as error:
        yield _quarantined([(0, str(error), "")], form, name, epoch, fatal=True)


def _dressed(rows: pa.Table, lines: pa.ChunkedArray, name: str, epoch: int) -> pa.Table:
    n = rows.num_rows
    extra = {
        "file": pa.repeat(pa.scalar(name), n),
        "line": lines,
        "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), n),
        "reason": pa.nulls(n, pa.string()),
        "text": pa.nulls(n, pa.string()),
        "fatal": pa.repeat(pa.scalar(False), n),
    }
    for column, array in extra.items():
        rows = rows.append_column(column, array)
    return rows


def _quarantined(bad: list[tuple[int, str, str]], form: Layout, name: str, epoch: int, fatal: bool) -> pa.Table:
    n = len(bad)
    columns = {column: pa.nulls(n, ARROW[type_]) for column, type_ in form.types.items()}
    columns |= {
        "file": pa.repeat(pa.scalar(name), n),
        "line": pa.array([line for line, _, _ in bad], pa.int64()),
        "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), n),
        "reason": pa.array([reason for _, reason, _ in bad], pa.string()),
        "text": pa.array([text for _, _, text in bad], pa.string()),
        "fatal": pa.repeat(pa.scalar(fatal), n),
    }
    return pa.table(columns)


def judge(rows: DataFrame, max_bad_share: float) -> dict[int, tuple[int, int]]:
    """Epoch → (good rows, quarantined rows). Raises `RunFailed` for a broken file or too large a bad share."""
    serious = F.col("reason").isNotNull() & (F.col("reason") != "empty line")
    counted = rows.groupBy("epoch").agg(
        F.count_if(F.col("reason").isNull()).alias("good"),
        F.count_if(F.col("reason").isNotNull()).alias("bad"),
        F.count_if(serious).alias("serious"),
        F.count_if("fatal").alias("fatal"),
        F.min(F.when(serious, F.struct("file", "line", "reason", "text"))).alias("first"),
        F.min(F.when(F.col("fatal"), F.struct("file", "reason"))).alias("broken"),
    )
    found = sorted(counted.collect(), key=lambda row: row.epoch)
    for row in found:
        if row.fatal:
            more = f" (and {row.fatal - 1} more)" if row.fatal > 1 else ""
            raise RunFailed(
                f"landing/{row.broken.file}: {row.broken.reason}{more}. Nothing was published.",
                "mend or remove the file, then run the same command again",
            )
    bad, total = sum(row.serious for row in found), sum(row.good + row.serious for row in found)
    if bad > max_bad_share * total:
        first = next(row.first for row in found if row.first)
        raise RunFailed(
            f"{bad} of {total} rows are malformed, more than [ingest] max_bad_share = {max_bad_share:g} allows. "
            f"The first: landing/{first.file} line {first.line}: {first.reason}: {first.text[:80]!r}. "
            "Nothing was published.",
            "mend the files, or raise max_bad_share in altneu.toml",
        )
    return {row.epoch: (row.good, row.bad) for row in found}


def difference(new: DataFrame, old: DataFrame | None) -> DataFrame:
    """The diff triples that turn the published rows `old` (with `diff`) into `new` (one each)."""
    plus = new.withColumn("diff", F.lit(1).cast("bigint"))
    if old is None:
        return plus
    data = new.columns
    minus = old.select(*data, (-F.col("diff")).alias("diff"))
    return plus.unionByName(minus).groupBy(*data).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def number_names(rows: DataFrame, names: DataFrame) -> tuple[DataFrame, DataFrame]:
    """String ids → integers: (rows with src, dst as ids, the new entries of the dictionary as id, name).

    `names`: the dictionary before (id, name). New names are numbered in their order, after the greatest id; the ids
    mean nothing outside the store. Cost: one shuffle of the names and two joins, at ingest alone; the graph joins see
    integers.
    """
    from pyspark.sql import Window

    seen = rows.select(F.explode(F.array("src", "dst")).alias("name")).distinct()
    fresh = seen.join(names, "name", "left_anti")
    last = names.agg(F.coalesce(F.max("id"), F.lit(-1)).alias("last"))
    order = F.row_number().over(Window.orderBy("name"))
    new = fresh.crossJoin(last).select((F.col("last") + order).cast("bigint").alias("id"), "name")
    book = names.select("id", "name").unionByName(new)
    columns = rows.columns
    out = rows
    for end in ("src", "dst"):
        entry = book.select(F.col("id").alias(f"_{end}"), F.col("name").alias(end))
        out = out.join(entry, end).drop(end).withColumnRenamed(f"_{end}", end)
    return out.select(*columns), new
