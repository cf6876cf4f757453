"""`altneu audit` of a small home without Spark: what passes by Spark passes by it, and what was changed is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from altneu.expectations.model import Check
from altneu.pipeline import cli
from altneu.pipeline.checking import audit, audit_engine
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.duckdb_tables import DuckTables
from altneu.pipeline.storage.warehouse import Warehouse
from tests.canonical import History

COLUMNS = {"upserts": "src", "edges": "b", "degrees": "diff", "triangle_counts": "vertex", "trussness": "k"}


def silently(text: str) -> None:
    pass


def audit_small(ledger: Ledger) -> list[Check] | None:
    revision = ledger.revisions.get()
    return audit_engine.audit_without_spark(ledger, revision, audit.auditable_epochs(ledger, revision), silently)


@pytest.fixture(scope="module")
def published(numbers: History, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Ledger]:
    return numbers.copy(tmp_path_factory.mktemp("small") / "home")


def test_it_says_what_spark_says(published: tuple[Home, Ledger], spark: Any) -> None:
    home, ledger = published
    revision = ledger.revisions.get()
    epochs = audit.auditable_epochs(ledger, revision)
    by_spark = audit.audit_published(Warehouse(spark, home), revision, epochs, silently)
    assert by_spark and audit_small(ledger) == by_spark and all(check["passed"] for check in by_spark)


@pytest.mark.parametrize("table", COLUMNS)
@pytest.mark.parametrize("place", [0, -1])
def test_a_row_that_was_changed_is_found(
    table: str, place: int, published: tuple[Home, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = audit_engine._read_tables

    def read_changed(*arguments: Any) -> dict[str, pa.Table]:
        tables = dict(read(*arguments))
        values = tables[table][COLUMNS[table]].to_pylist()
        within = [row for row, epoch in enumerate(tables[table]["epoch"].to_pylist()) if epoch <= 3]
        values[within[place]] += 1
        at = tables[table].column_names.index(COLUMNS[table])
        tables[table] = tables[table].set_column(at, COLUMNS[table], pa.array(values, pa.int64()))
        return tables

    monkeypatch.setattr(audit_engine, "_read_tables", read_changed)
    checks = audit_small(published[1])
    assert checks is not None and any(not check["passed"] for check in checks)


def with_setting(home: Home, section: str, **values: object) -> Home:
    part = getattr(home.config, section).model_copy(update=values)
    return Home(home.path, home.config.model_copy(update={section: part}))


def test_what_is_left_to_spark(published: tuple[Home, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    home, ledger = published
    assert audit_small(Ledger(with_setting(home, "audit", engine="spark"))) is None
    assert audit_small(Ledger(with_setting(home, "vertices", ids="string"))) is None
    revision = ledger.revisions.get()
    served = replace(revision, snapshots={**revision.snapshots, "edge_now": 1})
    assert audit_engine.audit_without_spark(ledger, served, [1, 2, 3], silently) is None
    monkeypatch.setattr(audit_engine, "MOST_EDGES", 3)
    assert audit_small(ledger) is None


def test_a_home_that_only_spark_can_audit_is_wrong_use_where_duckdb_is_to_do_it(published: tuple[Home, Ledger]) -> None:
    conditioned = with_setting(with_setting(published[0], "audit", engine="duckdb"), "edges", where="abs(src) > 0")
    with pytest.raises(UsageError, match="DuckDB cannot audit"):
        audit_small(Ledger(conditioned))


def test_where_the_engines_disagree_what_was_found_counts(
    published: tuple[Home, Ledger], spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark looks again where DuckDB finds something, to explain it; if it does not find that, it is still an error."""
    home, _ = published
    line = ["--home", str(home.path), "audit"]
    monkeypatch.setattr(audit, "audit_published", lambda *_, **__: pytest.fail("Spark is not needed"))
    with pytest.raises(SystemExit) as ended:
        cli.main(line)
    assert not ended.value.code
    assert "3 epoch(s) audited at revision 2: all equal" in capsys.readouterr().out
    passed = audit_small(published[1])
    monkeypatch.setattr(audit, "audit_published", lambda *_, **__: passed)
    monkeypatch.setattr(audit_engine, "_read_tables", lambda *_: empty_tables(published[1]))
    with pytest.raises(SystemExit) as ended:
        cli.main(line)
    assert ended.value.code == 1
    assert "differ from the recomputation" in capsys.readouterr().err


def empty_tables(ledger: Ledger) -> dict[str, pa.Table]:
    tables = DuckTables(ledger.home)
    return {name: tables.to_arrow(tables.empty_rows(name)) for name in ledger.revisions.get().snapshots}
