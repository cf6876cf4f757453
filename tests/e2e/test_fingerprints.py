"""Fingerprints as a user meets them: status, audit, compact, rebuild, and the statement of the reference page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.errors import CheckFailed
from altneu.pipeline.state import schema
from altneu.pipeline.storage.warehouse import Warehouse
from altneu.pipeline.tasks import maintenance
from tests import seeds
from tests.canonical import History
from tests.docs.pages import blocks, read
from tests.e2e.conftest import Altneu
from tests.fingerprint_helpers import another_number

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")


@pytest.mark.law(11, 12)
def test_what_is_stored_is_what_was_published(
    altneu: Altneu, spark: SparkSession, tmp_path: Path, numbers: History
) -> None:
    home, ledger = numbers.copy(tmp_path / "home")
    fine = altneu("audit", "--fingerprints")
    assert (fine.code, "7 tables hold what was published as revision 2, at every epoch" in fine.out) == (0, True), fine
    status = json.loads(altneu("status", "--format", "json").out)
    assert set(status["fingerprints"]) == set(status["tables"])

    # the statement of the reference, on copies
    (statement,) = (block for block in blocks(read("docs/reference.md")) if block.language == "sql")
    warehouse, row = Warehouse(spark, home), ledger.revisions.get()
    for table in ("trussness", "edges"):
        warehouse.read_table(table, row).orderBy("b", "a").write.parquet(str(tmp_path / table))
        spark.read.parquet(str(tmp_path / table)).createOrReplaceTempView(table)
    text, numbers = re.subn(r"\b12\b", str(status["frontier"]), statement.text)
    assert numbers == 3
    copies = {found["name"]: found["fingerprint"] for found in spark.sql(text).collect()}
    assert copies == {table: status["fingerprints"][table] for table in ("trussness", "edges")}

    # damage that nothing but the rows can show
    another_number(home.path, "trussness", "k", seeds.one())
    found = altneu("audit", "--fingerprints")
    assert found.code == 1 and re.search(r"table trussness, epoch [123]: fingerprint \w{32} instead of", found.err), (
        found
    )
    assert "1 of 7 tables do not hold what was published as revision 2: trussness." in found.err
    assert "or: altneu rebuild\n" in found.err
    refused = altneu("compact", "--grace", "0")
    assert refused.code == 1 and "Nothing was replaced" in refused.err and "altneu rebuild" in refused.err
    again = altneu("rebuild")
    assert (again.code, "every table is the same as in revision 2" in again.out) == (0, True), again
    assert altneu("audit", "--fingerprints").code == 0

    # a home of before there were fingerprints
    with ledger.database.engine.begin() as connection:
        connection.execute(sa.delete(schema.fingerprints))
    unknown = altneu("audit", "--fingerprints")
    assert unknown.code == 1 and "has no recorded fingerprints" in unknown.err and "altneu rebuild" in unknown.err
    assert altneu("audit", "1", "--fingerprints").code == 2


def test_the_weekly_audit_looks_at_them_too(tmp_path: Path, numbers: History) -> None:
    home, ledger = numbers.copy(tmp_path / "home")
    assert maintenance.full_audit(str(home.path), 0, "")["tables"] == 7
    mine, once = schema.fingerprints.c.collection == "edges", schema.fingerprints.c.fingerprint != ""
    with (
        ledger.database.engine.begin() as connection
    ):  # as if other rows had been published: no recomputation can see that
        connection.execute(sa.update(schema.fingerprints).where(mine & once).values(fingerprint=f"{1:032x}"))
    said: list[str] = []
    with pytest.raises(CheckFailed, match="1 of 7 tables do not hold what was published as revision 2: edges"):
        maintenance.full_audit(str(home.path), 0, "", said.append)
    assert any(text.startswith("table edges, epoch 1: fingerprint") for text in said)
    with ledger.database.engine.begin() as connection:  # as an earlier version has left it
        connection.execute(sa.delete(schema.fingerprints))
    assert "tables" not in maintenance.full_audit(str(home.path), 0, "")
