"""Rows on which a condition of the settings cannot be evaluated: they do not land, and everything else is as if they
were not there. References are plain Python."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.graph import edge_derivation
from altneu.algorithms.spark_conf import configured
from altneu.algorithms.sql_predicates import can_fail, fails_on, only_where
from altneu.pipeline.checking import audit, audited_rows, edge_rederivation
from altneu.pipeline.errors import BatchRejected, RunFailed, UsageError
from altneu.pipeline.landing import predicate_validation
from altneu.pipeline.landing.predicate_validation import RowCondition
from altneu.pipeline.reading import explain, views
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import local_frame
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, reference, seeds

TYPES = {"tag": "string", "c": "long", "w": "double", "d": "string"}
COLUMNS = {"src": "bigint", "dst": "bigint", "tag": "string", "c": "bigint", "w": "double", "d": "string"}
COLUMNS |= {"op": "string", "seq": "bigint", "file": "string", "line": "bigint", "epoch": "bigint", "diff": "bigint"}
EPOCHS = range(4)
GREATEST = 2**63 - 1


class Landed(NamedTuple):
    """A landed row."""

    src: int
    dst: int
    tag: str | None
    c: int | None
    w: float | None
    d: str | None
    op: str
    seq: int
    file: str
    line: int
    epoch: int
    diff: int = 1


class Fails(Exception):
    """The condition cannot be evaluated."""


def to_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?\d+", text) or not -GREATEST - 1 <= int(text) <= GREATEST:
        raise Fails
    return int(text)


def to_date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise Fails from None


def add(x: int | None, y: int) -> int | None:
    if x is not None and not -GREATEST - 1 <= x + y <= GREATEST:
        raise Fails
    return None if x is None else x + y


def divide(x: float | None, y: float | None) -> float | None:
    if x is None or y is None:
        return None
    if y == 0:
        raise Fails
    return x / y


def greater(x: Any, y: Any) -> bool | None:
    return None if None in (x, y) else x > y


def either(x: bool | None, *others: Callable[[], bool | None]) -> bool | None:
    """OR as Spark has it: what follows is not asked once something holds."""
    for other in others:
        if x is True:
            return True
        y = other()
        x = True if y is True else None if None in (x, y) else False
    return x


NEW_YEAR = date(2024, 1, 1)
CONDITIONS: dict[str, Callable[[Landed], bool | None]] = {
    "tag > 5": lambda row: greater(to_number(row.tag), 5),
    "tag IS NULL OR tag > 5": lambda row: either(row.tag is None, lambda: greater(to_number(row.tag), 5)),
    "w / (c - 1) > 2": lambda row: greater(divide(row.w, add(row.c, -1)), 2),
    "w / (c - 1) > 2 OR w / (c - 1) < 2": lambda row: either(
        greater(divide(row.w, add(row.c, -1)), 2), lambda: greater(2, divide(row.w, add(row.c, -1)))
    ),
    "c + 1 > 3": lambda row: greater(add(row.c, 1), 3),
    "to_date(d) > date'2024-01-01'": lambda row: greater(to_date(row.d), NEW_YEAR),
    "d > date'2024-01-01'": lambda row: greater(to_date(row.d), NEW_YEAR),
    "element_at(array(true, false), int(c % 4))": lambda row: at_place(None if row.c is None else row.c % 4),
    "src / (dst - 3) > 0": lambda row: greater(divide(row.src, row.dst - 3), 0),
}


def at_place(place: int | None) -> bool | None:
    if place not in (None, 1, 2):
        raise Fails
    return None if place is None else place == 1


def draw(rng: random.Random, n: int) -> list[Landed]:
    """Landed rows of few pairs, of which `seq` orders each epoch's; many have values on which something fails."""
    return [
        Landed(
            rng.randrange(5),
            rng.randrange(5),
            rng.choice(["abc", "7", "-3", "6", "9223372036854775808", "", "7.5", None]),
            rng.choice([0, 1, 2, 3, 7, GREATEST, None]),
            rng.choice([0.0, 1.5, -8.0, 9.0, None]),
            rng.choice(["2024-02-29", "2023-05-01", "2023-02-29", "soon", None]),
            rng.choice(["upsert", "upsert", "delete"]),
            line,
            f"epoch={line % len(EPOCHS)}/rows.csv",
            line,
            line % len(EPOCHS),
        )
        for line in range(1, n + 1)
    ]


def is_decided(row: Landed, holds: Callable[[Landed], bool | None]) -> bool:
    try:
        return row.op == "delete" or holds(row) in (True, False, None)
    except Fails:
        return False


def frame(spark: SparkSession, rows: list[Landed]) -> DataFrame:
    return local_frame.local_frame(spark, COLUMNS, rows).repartition(
        2
    )  # so that it is computed by tasks, as what is landed is


def contents(steps: DataFrame) -> dict[int, set[tuple[int, int]]]:
    """The pairs that diff triples leave at each epoch."""
    found = steps.select("a", "b", "epoch", "diff").collect()
    sums: dict[int, dict[tuple[int, int], int]] = {}
    for epoch in EPOCHS:
        sums[epoch] = {}
        for row in found:
            if row.epoch <= epoch:
                sums[epoch][row.a, row.b] = sums[epoch].get((row.a, row.b), 0) + row.diff
    return {epoch: {pair for pair, n in at.items() if n} for epoch, at in sums.items()}


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_fail_pass_or_not_as_python_says(spark: SparkSession, compiled: bool) -> None:
    """For every condition, with and without generated code."""
    rows = draw(random.Random(seeds.one()), 300)
    settings = {"spark.sql.codegen.wholeStage": str(compiled).lower()}
    settings |= {"spark.sql.codegen.factoryMode": "CODEGEN_ONLY"} if compiled else {}
    columns = []
    for place, text in enumerate(CONDITIONS):
        fails = fails_on(text, "op <> 'delete'")
        passes = only_where(f"op <> 'delete' AND NOT ({fails})", text)
        columns += [F.expr(fails).alias(f"fails_{place}"), F.expr(passes).alias(f"passes_{place}")]
    with configured(spark, settings):
        found = {row.line: row for row in frame(spark, rows).select("line", *columns).collect()}
    for place, (text, holds) in enumerate(CONDITIONS.items()):
        assert can_fail(text, {**TYPES, "src": "long", "dst": "long"}), text
        for row in rows:
            decided = is_decided(row, holds)
            expected = not decided, decided and row.op == "upsert" and holds(row) is True
            assert (found[row.line][f"fails_{place}"], found[row.line][f"passes_{place}"]) == expected, (text, row)


ONE_OF_EACH = ("tag > 5", "w / (c - 1) > 2 OR w / (c - 1) < 2")  # a cast; arithmetic, behind what is short-circuited


@pytest.mark.parametrize(
    "text", [text if text in ONE_OF_EACH else pytest.param(text, marks=pytest.mark.slow) for text in CONDITIONS]
)
def test_the_other_rows_make_the_edges(spark: SparkSession, text: str) -> None:
    """As the stage maintains them, as a first load has them, and as the proof and the audit derive them."""
    rows, holds = draw(random.Random(seeds.one()), 160), CONDITIONS[text]
    condition = [RowCondition("[edges] where", text)]
    decided = [row for row in rows if is_decided(row, holds)]
    bad = predicate_validation.quarantine_failures(frame(spark, rows), condition).collect()
    assert sorted(row.line for row in bad) == sorted({r.line for r in rows} - {r.line for r in decided}), text
    assert all(row.reason.startswith("[edges] where cannot be evaluated on {") for row in bad)
    kept = predicate_validation.keep_decided(frame(spark, rows), condition)
    home: Any = SimpleNamespace(
        config=SimpleNamespace(edge_condition=text, values=TYPES, edges=SimpleNamespace(live_for=None), motifs={})
    )
    values = list(TYPES)
    surviving = audited_rows.recompute_edges(kept, home, list(EPOCHS)).distinct().collect()
    ways = {
        "stage": contents(
            edge_derivation.interval_steps(
                edge_derivation.edge_changes(None, kept, None, values, None, text), ["a", "b"]
            )
        ),
        "first": contents(
            edge_derivation.interval_steps(edge_derivation.first_edges(kept, values, None, text), ["a", "b"])
        ),
        "proof": contents(edge_rederivation.edge_steps(edge_rederivation.add_pairs(kept), home)),
        "audit": {e: {(r.a, r.b) for r in surviving if r.epoch == e} for e in EPOCHS},
    }
    history: dict[int, list[reference.Row]] = {epoch: [] for epoch in EPOCHS}
    for row in decided:
        history[row.epoch].append((row.src, row.dst, row.line, row.op, row.seq))
    passing = {row.line for row in decided if row.op == "upsert" and holds(row) is True}
    for epoch in EPOCHS:
        expected = reference.edges(history, epoch, None, passing.__contains__)
        assert {name: found[epoch] for name, found in ways.items()} == dict.fromkeys(ways, expected), (text, epoch)


def test_a_condition_is_asked_only_of_rows_that_pass_the_one_before(spark: SparkSession) -> None:
    rows = draw(random.Random(seeds.one()), 120)
    first, second = CONDITIONS["c + 1 > 3"], CONDITIONS["tag > 5"]

    def expected(row: Landed) -> str | None:
        if not is_decided(row, first):
            return "filter"
        return "motif" if row.op == "upsert" and first(row) and not is_decided(row, second) else None

    asked = [RowCondition("filter", "c + 1 > 3"), RowCondition("motif", "tag > 5", precondition="c + 1 > 3")]
    bad = predicate_validation.quarantine_failures(frame(spark, rows), asked).collect()
    assert {row.line: row.reason.split()[0] for row in bad} == {r.line: e for r in rows if (e := expected(r))}
    kept = predicate_validation.keep_decided(frame(spark, rows), asked)
    relations = ["-> where tag > 5", "->"]
    found = edge_derivation.relation_changes(
        None, kept, None, values=list(TYPES), relations=relations, live_for=None, where="c + 1 > 3"
    ).collect()
    assert {row.relation for row in found} == {*relations}


def test_what_cannot_fail_does_not(spark: SparkSession) -> None:
    """Conditions at random that `can_fail` is certain of, evaluated on extreme values as they are."""
    rng = random.Random(seeds.one())
    terms = {
        "number": ["c", "w", "src", "7", "-2.5", "1e300", "999999999999999", "-.000000000001", "NULL"],
        "text": ["tag", "d", "'abc'", "'7'", "''", "NULL"],
    }

    def draw_condition(depth: int) -> str:
        if depth and rng.random() < 0.5:
            joined = f" {rng.choice(['AND', 'OR'])} ".join(draw_condition(depth - 1) for _ in range(2))
            return f"NOT ({joined})" if rng.random() < 0.3 else f"({joined})"
        kind = rng.choice(list(terms))
        x, y, z = (rng.choice(terms[kind]) for _ in range(3))
        forms = [f"{x} {rng.choice(['=', '<>', '<', '>=', '<=>', 'IS DISTINCT FROM'])} {y}", f"{x} IN ({y}, {z})"]
        return rng.choice([*forms, f"{x} NOT BETWEEN {y} AND {z}", f"{x} IS NOT NULL"])

    conditions = [draw_condition(2) for _ in range(60)]
    assert not [text for text in conditions if can_fail(text, {**TYPES, "src": "long"})]
    extreme = [-GREATEST - 1, GREATEST, 0, None], [float("nan"), float("inf"), -1e308, 5e-324, None]
    rows = [row._replace(c=rng.choice(extreme[0]), w=rng.choice(extreme[1])) for row in draw(rng, 60)]
    chosen = frame(spark, rows).select(*[F.expr(text).alias(f"_{i}") for i, text in enumerate(conditions)])
    assert len(chosen.collect()) == len(rows)


VALUES = '[values]\ntag = "string"\nc = "long"\nw = "double"\nd = "string"\n'


@pytest.mark.parametrize("text", [text for text in CONDITIONS if "src" not in text])
def test_conditions_are_not_tried_on_a_value(spark: SparkSession, tmp_path: Path, text: str) -> None:
    home, _ = home_helpers.make(tmp_path / "home", f'{VALUES}[edges]\nwhere = "{text}"\n')
    predicate_validation.require_conditions(spark, home)
    assert [condition.sql for condition in predicate_validation.fallible_conditions(home)] == [text]


def test_which_conditions_are_judged_as_rows_land(tmp_path: Path) -> None:
    """Those that can fail, once each, with the setting; of string ids not those that ask for the numbers of ids."""
    motif = "a->b where tag > 5, b->c where c > 1, a->d where src % c = 0"
    toml = f'{VALUES}[edges]\nwhere = "c > 0"\n[motifs]\nm = "{motif}"\n'
    home, _ = home_helpers.make(tmp_path / "home", toml)
    found = predicate_validation.fallible_conditions(home)
    assert [each.setting for each in found] == [
        "[motifs] m: a->b where tag > 5",
        "[motifs] m: a->d where src % c = 0",
    ]
    assert {each.precondition for each in found} == {"c > 0"} and found[1].columns == ["src", "c"]
    home, _ = home_helpers.make(tmp_path / "names", f'[vertices]\nids = "string"\n{toml}')
    assert [each.setting for each in predicate_validation.fallible_conditions(home)] == [
        "[motifs] m: a->b where tag > 5"
    ]
    home, _ = home_helpers.make(tmp_path / "odd", f'[vertices]\nids = "string"\n{toml.replace("c > 0", "src > 0")}')
    assert predicate_validation.fallible_conditions(home) == []


@pytest.mark.parametrize(
    ("toml", "says"),
    {
        "a function that nobody knows": ('[edges]\nwhere = "no_such(c) > 1"\n', r"\[edges\] where = .*no_such"),
        "no truth": ('[edges]\nwhere = "abs(c)"\n', r"\[edges\] where = 'abs\(c\)': .*BOOLEAN"),
        "types that do not go together": ('[edges]\nwhere = "c > true"\n', r"\[edges\] where = 'c > true'"),
        "arguments of wrong types": ('[edges]\nwhere = "size(c) > 1"\n', r"\[edges\] where = 'size\(c\) > 1'"),
        "a constant that is no number": ("[edges]\nwhere = \"c > 'many'\"\n", r"\[edges\] where = .*many"),
        "a constant that cannot be computed": ('[edges]\nwhere = "c > 1 / 0"\n', r"\[edges\] where = 'c > 1 / 0'"),
        "of a motif": ('[motifs]\nm = "a->b where no_such(c), b->c"\n', r"\[motifs\] m: a->b where no_such\(c\)"),
    }.values(),
)
def test_what_is_no_condition_is_refused_by_name(spark: SparkSession, tmp_path: Path, toml: str, says: str) -> None:
    home, _ = home_helpers.make(tmp_path / "home", VALUES + toml)
    with pytest.raises(UsageError, match=says):
        predicate_validation.require_conditions(spark, home)


TOML = '[values]\ntag = "string"\n[ingest]\nmax_bad_share = 0.2\n[edges]\nwhere = "{}"\n'
K4 = [(a, b, "7", "upsert", 0) for a in range(4) for b in range(a + 1, 4)]


def put(ledger_home: Any, epoch: int, *more: tuple[int, int, str, str, int]) -> None:
    home_helpers.put(ledger_home, epoch, [*K4, *more])  # type: ignore[list-item]


def test_an_undecided_row_goes_to_quarantine_and_its_batch_alone_is_held_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is published is what would be, had the row not landed."""
    home, ledger = home_helpers.make(tmp_path / "home", TOML.format("tag > 5"))
    put(home, 0, (0, 4, "abc", "upsert", 0), (1, 4, "abc", "delete", 0))
    put(home, 1, (2, 4, "9", "upsert", 0))
    home_helpers.run(ledger, [0, 1])
    warehouse = Warehouse(spark, home)
    (bad,) = warehouse.read_table("quarantine", ledger.revisions.get()).collect()
    assert (bad.file, bad.line, bad.epoch) == ("epoch=0/rows.csv", 8, 0)
    assert bad.reason == """[edges] where = 'tag > 5' cannot be evaluated on {"tag":"abc"}"""
    assert bad.text == '{"src":0,"dst":4,"tag":"abc","op":"upsert","seq":0}'
    assert (ledger.outputs.published_batches()[0].rows, ledger.outputs.published_batches()[0].bad_rows) == (7, 1)
    assert [point["edges"] for point in views.select_totals(ledger, all_epochs=True)] == [6, 7]
    checks = audit.audit_published(warehouse, ledger.revisions.get(), [0, 1], lambda text: None)
    assert [check["name"] for check in checks if not check["passed"]] == []
    told = explain.explain_edge(
        warehouse, ledger.revisions.get(), 1, ("1", "4")
    )  # its delete has a tag on which the condition fails
    assert [row["fate"] for row in told["rows"]] == ["a deletion"] and not told["there"]

    # above the share its batch is wrong, and no other
    put(home, 2, (0, 5, "x", "upsert", 0), (0, 6, "y", "upsert", 0), (0, 7, "z", "upsert", 0))
    with pytest.raises(BatchRejected, match="3 of 9 rows are malformed") as wrong:
        home_helpers.run(ledger, [2])
    assert "landing/epoch=2/rows.csv line 8: [edges] where = 'tag > 5' cannot be evaluated on" in wrong.value.what


@pytest.mark.slow  # tests/e2e/test_left_out.py leaves batches out in the default tier
def test_a_batch_with_many_undecided_rows_is_left_out(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML.format("tag > 5"))
    put(home, 2, (0, 5, "x", "upsert", 0), (0, 6, "y", "upsert", 0), (0, 7, "z", "upsert", 0))
    put(home, 3, (0, 8, "8", "upsert", 0))
    runner.execute_run(ledger, planning.plan_epochs(ledger, [2, 3]), keep_going=True)
    assert sorted(ledger.outputs.published_batches()) == [3]


def test_another_condition_judges_the_landed_rows_again(tmp_path: Path) -> None:
    """The stored rows are not those that would have landed under it: a rebuild from them says so, one from the landing
    lets a row land that was in quarantine."""
    home, ledger = home_helpers.make(tmp_path / "home", TOML.format("tag > 5"))
    put(home, 0, (0, 4, "abc", "upsert", 0))
    home_helpers.run(ledger, [0])

    def rebuild(condition: str, *, from_landing: bool) -> None:
        (home.path / "altneu.toml").write_text(TOML.format(condition))
        now = Ledger(type(home).open(home.path))
        runner.execute_run(now, planning.plan_rebuild(now, from_landing=from_landing))

    def describe_batch() -> tuple[int, int, int]:
        batch = ledger.outputs.published_batches()[0]
        return views.select_totals(ledger)[0]["edges"], batch.rows, batch.bad_rows

    assert describe_batch() == (6, 6, 1)
    with pytest.raises(RunFailed, match=r"epoch=0/rows\.csv line 8: \[edges\] where = 'tag > 5'") as refused:
        rebuild("length(tag) > 0", from_landing=False)
    assert (refused.value.next or "").startswith("altneu rebuild --from-landing")
    rebuild("length(tag) > 0", from_landing=True)
    assert describe_batch() == (7, 7, 0)


@pytest.mark.slow
def test_a_condition_that_stored_rows_do_not_decide_is_refused(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML.format("length(tag) > 0"))
    put(home, 0, (0, 4, "abc", "upsert", 0))
    home_helpers.run(ledger, [0])
    (home.path / "altneu.toml").write_text(TOML.format("tag > 5"))
    now = Ledger(type(home).open(home.path))
    with pytest.raises(RunFailed, match=r"epoch=0/rows\.csv line 8: \[edges\] where = 'tag > 5'"):
        runner.execute_run(now, planning.plan_rebuild(now, from_landing=False))


def test_what_is_evaluated_on_the_numbers_of_names_fails_with_the_setting(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[vertices]\nids = "string"\n[edges]\nwhere = "10 / src > 1"\n')
    home_helpers.put(home, 0, [("x", "y", None, "upsert", 0)])  # type: ignore[list-item]
    with pytest.raises(RunFailed, match=r"\[edges\] where = '10 / src > 1' cannot be evaluated: .*DIVIDE_BY_ZERO"):
        home_helpers.run(ledger, [0])
