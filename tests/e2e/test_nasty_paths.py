"""A home is itself at whatever path: not the one that the path would be decoded to, nor those that match it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from altneu.pipeline.reading.graph import Graph
from tests.canonical import History
from tests.e2e.conftest import Altneu

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")

NAME = "k=3 %41%2F%25 [x]?* #b&c;d {y} 'e' \"f\" größe $HOME ~"


def by_every_reader(altneu: Altneu, home: Path, spark: SparkSession) -> list[tuple[int, ...]]:
    """The edges, of which DuckDB, Spark and another program say the same."""
    by_duckdb, by_spark = (
        [tuple(row.values()) for row in json.loads(altneu(*shown, "--engine", engine, home=home).out)]
        for shown in [("show", "edges", "--format", "json")]
        for engine in ("duckdb", "spark")
    )
    said = json.loads(altneu("tables", "--format", "json", home=home).out)
    where = said["catalog"]
    catalog = load_catalog(where["name"], type="sql", uri=where["uri"], warehouse=where["warehouse"])
    diffs = catalog.load_table((said["namespace"], "trussness")).scan().to_arrow().to_pylist()
    now: dict[tuple[int, ...], int] = {}
    for row in diffs:
        key = row["a"], row["b"], row["k"]
        now[key] = now.get(key, 0) + row["diff"]
    assert by_duckdb == by_spark == sorted(key for key, n in now.items() if n)
    assert by_duckdb == [tuple(row) for row in Graph(home, spark).edges(sort="src").collect()]
    return by_duckdb


def test_a_home_is_itself_at_any_path(altneu: Altneu, tmp_path: Path, spark: SparkSession, numbers: History) -> None:
    home, like = tmp_path / NAME / "home", tmp_path / NAME.replace("[x]", "x") / "home"
    decoded = tmp_path / NAME.replace("%41", "A").replace("%2F", "_").replace("%25", "%")
    decoded.mkdir()
    raw = tmp_path / "raw.csv"
    numbers.copy(home)
    before = by_every_reader(altneu, home, spark)
    assert len(before) == 10
    # a copy whose path matches that of the original as a pattern, with files of the same names
    shutil.copytree(home, like)
    assert altneu("show", "edges", home=like).code == 2
    moved = altneu("relocate", home=like)
    assert moved.code == 0 and str(home) in moved.out and str(like) in moved.out
    raw.write_text("src,dst\n3,8\n")
    for arguments in (("land", raw, "--columns", "src,dst", "--epoch", "4"), ("backfill", "--all")):
        done = altneu(*arguments, home=like)
        assert done.code == 0, done.err
    assert (3, 8, 2) in by_every_reader(altneu, like, spark)
    assert by_every_reader(altneu, home, spark) == before
    explained = altneu("explain", "edge", "1", "2", "--format", "json", home=home)
    assert json.loads(explained.out)["there"]
    assert list(decoded.iterdir()) == [] and {each.name for each in tmp_path.iterdir()} == {
        *("raw.csv", NAME, decoded.name, like.parent.name)
    }
