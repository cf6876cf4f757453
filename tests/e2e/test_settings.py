"""Settings from the file to the results: value columns of any allowed name; conditions that Spark alone can judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import audit, cli, runner, views
from pipeline.api import Graph
from pipeline.config import Home
from pipeline.errors import UsageError
from pipeline.ledger import Ledger
from pipeline.warehouse import Warehouse
from tests import homes

pytestmark = pytest.mark.usefixtures("tiny")

NAMES = """
[values]
"my col" = "long"
"größe" = "double"
order = "string"
[edges]
where = "größe > 1 AND `my col` <> 7"
[motifs]
both = "a->b where größe > 2, b->a where `order` = 'x'"
"""
ROWS = """src,dst,my col,größe,order
1,2,1,2.5,x
2,3,1,2.5,y
1,3,1,2.5,y
3,1,1,1.5,x
3,4,7,2.5,x
4,1,1,0.5,x
"""


def published(home: Home, ledger: Ledger, spark: SparkSession) -> list[str]:
    """The failed checks of a full audit of what is published."""
    row = ledger.at()
    epochs = list(ledger.batches())
    results = audit.audit_published(Warehouse(spark, home), row, epochs, lambda text: None)
    return [result["name"] for result in results if not result["passed"]]


def test_value_columns_of_unusual_names(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, ledger = homes.make(tmp_path / "home", NAMES)
    folder = home.landing / "epoch=1"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    homes.run(home, ledger, [1])
    (point,) = views.totals(home, ledger)
    assert (point["edges"], point["triangles"], point["motifs"]) == (3, 1, {"both": 1})
    assert published(home, ledger, spark) == []
    (folder / "rows.csv").write_text(ROWS.replace("3,4,7,", "3,4,8,"), encoding="utf-8")  # replaced
    homes.run(home, ledger, [1])
    assert views.totals(home, ledger)[0]["edges"] == 4
    toml = home.path / "altneu.toml"
    toml.write_text(NAMES.replace("[edges]", '"né à" = "boolean"\n[edges]'), encoding="utf-8")
    home = Home.open(home.path)
    homes.put(home, 2, [])
    homes.run(home, ledger, [2])  # another column was declared
    runner.run(home, ledger, runner.plan_rebuild(home, ledger, from_landing=True))
    assert published(home, ledger, spark) == []

    def said(*command: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(home.path), *command])
        assert not ended.value.code
        return capsys.readouterr().out

    shown = json.loads(said("show", "vertices", "--format", "json"))
    assert {row["vertex"]: row["both"] for row in shown} == {1: 1, 2: 0, 3: 1, 4: 0}
    assert "filtered out: not (größe > 1 AND `my col` <> 7)" in said("explain", "edge", "1", "4")
    graph = Graph(home.path, spark)
    graph.register("named_")
    assert spark.sql("SELECT sum(`my col`), max(`größe`) FROM named_diffs_upserts").first() is not None


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[edges]\nwhere = "no_such(w) > 1"\n', r"\[edges\] where = 'no_such\(w\) > 1': .*no_such"),
        ('[edges]\nwhere = "abs(w)"\n', r"\[edges\] where = 'abs\(w\)'"),
        ("[edges]\nwhere = \"w > 'many'\"\n", r"\[edges\] where = \"w > 'many'\": .*many"),
        ('[motifs]\nm = "a->b where no_such(w), b->c"\n', r"\[motifs\] m: a->b where no_such\(w\): .*no_such"),
    ],
)
def test_conditions_that_only_spark_can_judge(spark: SparkSession, tmp_path: Path, toml: str, said: str) -> None:
    home, ledger = homes.make(tmp_path / "home", '[values]\nw = "long"\n' + toml)
    homes.put(home, 1, [(1, 2, 3, "upsert", 0)])
    with pytest.raises(UsageError, match=said) as refused:
        homes.run(home, ledger, [1])
    assert str(home.path / "altneu.toml") in (refused.value.next or "")
    assert ledger.at().revision == 0
