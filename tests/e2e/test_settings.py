"""Settings from the file to the results: value columns of any allowed name; conditions that Spark alone can judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.sql_predicates import Condition
from altneu.pipeline import cli
from altneu.pipeline.checking import audit
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers

pytestmark = pytest.mark.usefixtures("tiny")

# names of columns that the plans have of their own, or had
AWKWARD = ["version", "now", "before", "at", "n", "last", "one", "value", "relation", "x", "key", "name", "is_value"]
CONDITION = " AND ".join(["größe > 1 AND `my col` <> 7", *(f"{name} > 0" for name in AWKWARD)])
DECLARED = "".join(f'{name} = "long"\n' for name in AWKWARD)
NAMES = f"""
[values]
"my col" = "long"
"größe" = "double"
order = "string"
{DECLARED}[edges]
where = "{CONDITION}"
[motifs]
both = "a->b where größe > 2, b->a where `order` = 'x'"
path = "a->b where relation > 1, b-c where at > 1"
"""
ROWS = """src,dst,my col,größe,order
1,2,1,2.5,x
2,3,1,2.5,y
1,3,1,2.5,y
3,1,1,1.5,x
3,4,7,2.5,x
4,1,1,0.5,x
"""


def rows(text: str) -> str:
    """With a value in each awkward column, and one more row, which its last one keeps out."""
    head, *lines = f"{text}2,4,1,2.5,y\n".splitlines()
    ones = [[1 + (place + column) % 2 for column in range(len(AWKWARD))] for place in range(len(lines))]
    ones[-1][-1] = 0
    full = [",".join(map(str, [line, *more])) for line, more in zip(lines, ones, strict=True)]
    return "\n".join([",".join([head, *AWKWARD]), *full]) + "\n"


def published(ledger: Ledger, spark: SparkSession) -> list[str]:
    """The failed checks of a full audit of what is published."""
    row = ledger.revisions.get()
    epochs = list(ledger.outputs.published_batches())
    results = audit.audit_published(Warehouse(spark, ledger.home), row, epochs, lambda text: None)
    return [result["name"] for result in results if not result["passed"]]


@pytest.mark.slow
@pytest.mark.usefixtures("unaudited")
def test_value_columns_of_unusual_names(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", NAMES)
    folder = home.landing / "epoch=1"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text(rows(ROWS), encoding="utf-8")
    home_helpers.run(ledger, [1])
    (point,) = views.select_totals(ledger)
    assert (point["edges"], point["triangles"], point["motifs"]["both"]) == (3, 1, 1)
    assert point["motifs"]["path"] > 0
    (folder / "rows.csv").write_text(rows(ROWS.replace("3,4,7,", "3,4,8,")), encoding="utf-8")  # replaced
    home_helpers.run(ledger, [1])
    assert views.select_totals(ledger)[0]["edges"] == 4
    toml = home.path / "altneu.toml"
    toml.write_text(NAMES.replace("[edges]", '"né à" = "boolean"\n[edges]'), encoding="utf-8")
    home = Home.open(home.path)
    ledger = Ledger(home)
    home_helpers.put(home, 2, [])
    home_helpers.run(ledger, [2])  # another column was declared
    assert published(ledger, spark) == []
    before = views.select_totals(ledger)
    runner.execute_run(ledger, planning.plan_rebuild(ledger, from_landing=True))
    assert [{**row, "revision": 0} for row in views.select_totals(ledger)] == [{**row, "revision": 0} for row in before]

    def said(*command: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(home.path), *command])
        assert not ended.value.code
        return capsys.readouterr().out

    shown = json.loads(said("show", "vertices", "--format", "json"))
    assert {row["vertex"]: row["both"] for row in shown} == {1: 1, 2: 0, 3: 1, 4: 0}
    assert f"filtered out: not ({CONDITION})" in " ".join(said("explain", "edge", "1", "4").split())
    graph = Graph(home.path, spark)
    graph.register("named_")
    assert spark.sql("SELECT sum(`my col`), max(`größe`) FROM named_diffs_upserts").first() is not None


def test_a_run_refuses_a_condition_that_spark_does_not_take(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[values]\nw = "long"\n[edges]\nwhere = "no_such(w) > 1"\n')
    home_helpers.put(home, 1, [(1, 2, 3, "upsert", 0)])
    with pytest.raises(UsageError, match=r"\[edges\] where = 'no_such\(w\) > 1': .*no_such") as refused:
        home_helpers.run(ledger, [1])
    assert str(home.path / "altneu.toml") in (refused.value.next or "")
    assert ledger.revisions.get().revision == 0


EXPRESSIONS = """
w > 0 | w>=0 AND NOT w <> 3 | ! (w = 1) | w == 1 OR w != 2 | w <=> NULL | w IS NOT NULL | g IS NOT TRUE | g
w IS DISTINCT FROM 3 | w BETWEEN 1 AND 2 AND g | w NOT BETWEEN 1 AND 2 | w IN (1, 2 + 3)
t LIKE 'a%' | t NOT LIKE 'a!%' ESCAPE '!' | t RLIKE '^a' | t ILIKE ANY ('a', 'b') | t = 'it''s' 'more' | t = "x"
w % 2 = 0 | w DIV 2 > 1 | -w < +1 | ~w = 1 | (w & 3) + 4 > 1 ^ 2 | w << 2 > 1 | t || 'x' = 'ax' | w - -1 > .5e-3
CAST(w AS string) = '1' | w::double > 1.5 | TRY_CAST(t AS int) > 1 | CAST(w AS decimal(10, 2)) > 1.5BD | w > 1L
CASE WHEN w > 1 THEN g ELSE false END | CASE w WHEN 1 THEN true END | if(w > 1, g, NULL) | coalesce(g, false)
substring(t, 1, 2) = 'ab' | substring(t FROM 1 FOR 2) = 'ab' | trim(BOTH 'x' FROM t) = 'a' | abs(w) > pow(d, 2)
exists(split(t, ','), x -> x = 'a') | size(filter(split(t, ','), x -> length(x) > 1)) > 0 | split(t, ',')[0] = 'a'
date '2020-01-01' < timestamp_seconds(w) | timestamp_seconds(w) > timestamp '2020-01-01 00:00:00' | true | r'a\\b' = t
extract(YEAR FROM timestamp_seconds(w)) > 2000 | `w` > 1 | t COLLATE UTF8_LCASE = 'A' | w > 1 -- why | /* why */ g
w > | w 1 | (w > 1 | w > 1) | w > > 1 | AND g | w IN () | w IN 1 | CASE w END | CAST(w) > 1 | w # 1 | 'open | w ? 1
w BETWEEN 1 | f( | w LIKE | w = 1, g | [1] | w IS 3 | NOT | w =
"""


def test_what_spark_reads_is_read_without_it(spark: SparkSession) -> None:
    """The settings refuse no condition that Spark would take; what it would not is refused here, or when it judges."""
    row = spark.createDataFrame([(1, 1.0, "1", True)], "w bigint, d double, t string, g boolean")
    texts = [text for text in EXPRESSIONS.replace("\n", " | ").split(" | ") if text]
    refused = []
    for text in texts:
        try:
            row.where(F.expr(text))
            spark_reads = True
        except PySparkException:
            spark_reads = False
        try:
            Condition.from_text(text)
        except ValueError as error:
            assert not spark_reads, (text, str(error))
            refused.append(text)
    assert len(texts) > 60 and len(refused) > 12


def test_a_value_may_get_another_type_until_something_is_published(tmp_path: Path) -> None:
    """The first run has made the tables, and was stopped: the next one reads the values by the new type."""
    home, ledger = home_helpers.make(tmp_path / "home", '[values]\nw = "long"\n')
    home_helpers.put(home, 1, [(1, 2, 7, "upsert", 0)])
    stopped = runner.begin_run(ledger, planning.plan_epochs(ledger, [1]))
    assert stopped is not None
    runner.execute_stage(ledger, stopped, "ingest")

    home, ledger = home_helpers.make(home.path, '[values]\nw = "double"\n')
    home_helpers.put(home, 1, [(1, 2, 7.5, "upsert", 0)])  # type: ignore[list-item]
    revision, tables = home_helpers.run(ledger, [1]), DuckTables(home)
    assert revision is not None
    assert tables.to_arrow(tables.read_table("upserts", revision))["w"].to_pylist() == [7.5]
