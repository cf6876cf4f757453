"""The list of decisions: what it holds for which run, and which ways its numbers leave open. Runs are held to what a
plan showed of them in `home_helpers.run_as_planned`, over the histories of the laws and the stories."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from altneu.pipeline.home.home import Home, parse_settings
from altneu.pipeline.run import planning
from altneu.pipeline.run.choices.plan_choice import Number, Scope, Strategy
from altneu.pipeline.run.choices.plan_choices import (
    BROADCAST_ROWS,
    PARTS,
    AuditChoice,
    EdgesChoice,
    MotifsChoice,
    TrianglesChoice,
    TrussChoice,
    choose_all,
)
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY, LANDED_TABLES, RunKind
from altneu.pipeline.state.stage_results import AuditFacts, EdgesFacts, TrianglesFacts, TrussFacts
from tests import home_helpers

NOTHING, SOME = Number.exact(0), Number(10, 0, 30)
MOTIFS = '[motifs]\nwedge = "a-b, b-c"\nx = "a-b where x > 1, b-c"\n[values]\nx = "long"\n'


@dataclass(frozen=True)
class KnownNumbers:
    """The numbers of the decisions, given."""

    rows: Number = SOME
    intervals: Number = SOME
    first: int | None = 3
    there: int = 100
    epochs: Collection[int] = field(default_factory=set)
    kept: bool = False
    state: bool = False

    def changed_upserts(self) -> Number:
        return self.rows

    def stored_rows(self, table: str) -> int:
        return self.there

    def edges_since(self) -> int:
        return self.there

    def changed_rows(self, table: str) -> Number:
        return self.intervals

    def first_change(self) -> int | None:
        return self.first

    def proposal_count(self) -> int | None:
        return None

    def cost_corrections(self) -> Mapping[str, float]:
        return {}

    def has_graph_cache(self) -> bool:
        return self.kept

    def has_checkpoint(self) -> bool:
        return self.state

    def published_epochs(self) -> Collection[int]:
        return self.epochs


def listed(text: str, numbers: KnownNumbers, scope: Scope | None = None) -> dict[str, tuple[str, frozenset[str]]]:
    found = choose_all(scope or Scope(replace(EMPTY, revision=1, frontier=5), (3,)), parse_settings(text, "x"), numbers)
    return {each.NAME: (each.strategy, each.possible_strategies) for each in found}


def test_one_list_in_the_order_of_the_stages() -> None:
    assert [*listed("", KnownNumbers())] == ["edges", "triangles", "truss", "audit"]
    assert [*listed(MOTIFS, KnownNumbers())] == ["edges", "triangles", "motifs", "truss", "audit"]


def test_what_is_bounded_is_certain_and_what_is_not_depends() -> None:
    found = listed('[triangles]\nplan = "bulk"\n', KnownNumbers())
    assert found["edges"] == ("broadcast", {"broadcast"})
    assert found["triangles"] == ("bulk", {"bulk", "nothing"})  # no edge may change
    assert found["truss"] == ("task", {"task", "nothing"})
    unbounded = Number(10, 0, None)
    found = listed("", KnownNumbers(rows=unbounded, intervals=unbounded))
    assert found["edges"][1] == {"broadcast", "shuffle"}
    assert found["triangles"][1] == {"delta", "bulk", "nothing"}
    assert found["truss"][1] == {"task", "parts", "nothing"}


def test_where_nothing_changes_nothing_is_done() -> None:
    found = listed(MOTIFS, KnownNumbers(rows=NOTHING, intervals=NOTHING, first=None))
    assert {name: way for name, (way, _) in found.items() if name in ("triangles", "motifs", "truss")} == {
        "triangles": "nothing",
        "motifs": "nothing",
        "truss": "nothing",
    }
    assert all(may == {way} for way, may in found.values())


def test_scheduled_expiries_are_replayed_though_nothing_changes() -> None:
    scope = Scope(replace(EMPTY, revision=1, frontier=5), (9,))
    truss = TrussChoice.choose(scope, parse_settings("", "x"), KnownNumbers(intervals=NOTHING, first=None))
    assert (truss.first_epoch, truss.last_epoch, truss.strategy, truss.possible_strategies) == (6, 9, "task", {"task"})
    recomputed = TrussChoice.choose(
        replace(scope, kind=RunKind.RELOAD), parse_settings("", "x"), KnownNumbers(intervals=NOTHING, first=None)
    )
    assert recomputed.strategy is Strategy.NOTHING


def test_a_kept_graph_is_gone_on_from_if_its_files_are_there() -> None:
    scope = Scope(replace(EMPTY, revision=1, frontier=5), (5,))
    truss = TrussChoice.choose(scope, parse_settings("", "x"), KnownNumbers(kept=True))
    assert (truss.strategy, truss.possible_strategies) == ("resume", {"resume", "task", "nothing"})
    assert truss.describe(str).endswith(", from the graph cache if it exists")
    recomputed = TrussChoice.choose(
        replace(scope, kind=RunKind.REBUILD), parse_settings("", "x"), KnownNumbers(kept=True)
    )
    assert recomputed.possible_strategies == {"task", "nothing"}
    assert TrussChoice.strategy_of(TrussFacts(rows=1, epochs=2, plan="resume", methods={"lift": 2})) == "resume"


ELSEWHERE = '[spark]\nmaster = "yarn"\nconf = { "spark.executor.memoryOverhead" = "2348m" }\n'  # a task has a gigabyte


@pytest.mark.parametrize(
    ("text", "numbers", "way", "may"),
    [
        (ELSEWHERE, KnownNumbers(there=2_000_000, intervals=Number(9, 1, 9), state=True), "state", {"state", "task"}),
        (
            ELSEWHERE,
            KnownNumbers(there=4_000_000, intervals=Number(9, 1, 9), state=True),
            "task",
            {"task"},
        ),  # not with labels
        (ELSEWHERE, KnownNumbers(there=2_000_000, intervals=Number(9, 1, 9)), "task", {"task"}),
        (ELSEWHERE, KnownNumbers(there=2_000_000, intervals=Number(9, 1, 9), kept=True), "resume", {"resume", "task"}),
    ],
)
def test_where_tasks_see_no_folder_changes_are_followed_from_the_state_in_a_table(
    text: str, numbers: KnownNumbers, way: str, may: set[str]
) -> None:
    truss = truss_of(numbers, text=text)
    assert (truss.strategy, truss.possible_strategies) == (way, may)
    words = f"in one task, from the truss checkpoint of {truss.edges.value:,} edges"
    assert (words in truss.describe(str)) == (way == "state")
    assert TrussChoice.strategy_of(TrussFacts(rows=1, epochs=2, plan="state", methods={"lift": 2})) == "state"


def test_triangles_are_followed_from_a_kept_graph_where_nothing_expires() -> None:
    scope, few = Scope(replace(EMPTY, revision=1, frontier=5), (5,)), KnownNumbers(kept=True, there=2_000_000)
    found = TrianglesChoice.choose(scope, parse_settings("", "x"), few)
    assert (found.strategy, found.possible_strategies) == ("resume", {"resume", "delta", "bulk", "nothing"})
    assert found.describe(str).startswith(
        "from the graph cache, by cost: about 0.7 s (delta query: 1.8 s, enumeration of all"
    )
    assert replace(found, has_graph_cache=False).strategy == "delta", "when its files have gone"
    assert TrianglesChoice.choose(scope, parse_settings("[edges]\nlive_for = 3\n", "x"), few).strategy == "delta"
    assert TrianglesChoice.choose(
        scope, parse_settings('[triangles]\nplan = "delta"\n', "x"), few
    ).possible_strategies == {"delta", "nothing"}
    recomputed = TrianglesChoice.choose(
        replace(scope, kind=RunKind.REBUILD), parse_settings('[triangles]\nplan = "resume"\n', "x"), few
    )
    assert recomputed.possible_strategies == {"delta", "bulk", "nothing"}
    assert TrianglesChoice.strategy_of(TrianglesFacts(rows=1, plan="resume", proposals=None)) == "resume"


def test_a_change_after_the_frontier_is_not_replayed() -> None:
    truss = TrussChoice.choose(
        Scope(replace(EMPTY, revision=1, frontier=5), (3,)), parse_settings("", "x"), KnownNumbers(first=6)
    )
    assert truss.possible_strategies == {"nothing"}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["auto", "delta", "bulk", "resume"]),
    st.integers(0, 60),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 80),
)
def test_a_count_within_the_bounds_goes_a_way_that_was_open(
    wanted: str, there: int, a: int, b: int, limit: int
) -> None:
    least, most = min(a, b), max(a, b)
    text = f'[triangles]\nplan = "{wanted}"\nlimit_edges = {limit}\n[truss]\nlimit_edges = {limit}\n' + MOTIFS
    guess = listed(text, KnownNumbers(intervals=Number(most, least, most), there=there))
    for count in range(least, most + 1):
        counted = KnownNumbers(intervals=Number.exact(count), first=3 if count else None, there=there)
        for name, (way, _) in listed(text, counted).items():
            assert way in guess[name][1], (name, count)


def test_the_delta_query_is_given_up_when_its_proposals_are_many() -> None:
    decision = TrianglesChoice("auto", 2_000_000, Number.exact(1_000))
    assert decision.strategy is Strategy.DELTA and decision.with_proposals(10**4).strategy is Strategy.DELTA
    assert decision.with_proposals(10**8).strategy is Strategy.BULK
    assert (
        TrianglesChoice("auto", 0, Number.exact(10**6)).with_proposals(0).strategy is Strategy.BULK
    )  # nobody counts them then


def test_the_facts_say_which_way_it_went() -> None:
    assert [EdgesChoice.strategy_of(EdgesFacts(rows=0, broadcast=few)) for few in (True, False)] == [
        "broadcast",
        "shuffle",
    ]
    assert TrianglesChoice.strategy_of(TrianglesFacts(rows=1, plan="delta", proposals=3)) == "delta"
    assert TrianglesChoice.strategy_of(TrianglesFacts(rows=0, proposals=0)) == "nothing"
    for stored, wanted, limit in product((0, 9), ("delta", "bulk"), (5, 100)):
        decision = MotifsChoice(wanted, limit, 2, ("edges",), stored, Number.exact(3))
        facts = TrianglesFacts(rows=1, proposals=0, motif_rows=1, motif_plan=decision.describe(str))
        assert MotifsChoice.strategy_of(facts) == decision.strategy
    assert MotifsChoice.strategy_of(TrianglesFacts(rows=1, proposals=0, motif_rows=0)) == "nothing"
    assert TrussChoice.strategy_of(TrussFacts(rows=0, epochs=0)) == "nothing"
    assert (
        TrussChoice.strategy_of(TrussFacts(rows=0, first_epoch=1, epochs=0, plan="replay")) == "task"
    )  # no edge was ever alive
    assert TrussChoice.strategy_of(TrussFacts(rows=1, epochs=2, methods={"parts": 2}, rounds=3)) == "parts"
    assert TrussChoice.strategy_of(TrussFacts(rows=1, epochs=2, methods={"peel": 1, "lift": 1})) == "task"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home, _ = home_helpers.make(tmp_path / "home", "[ingest]\nmax_revision_mb = 1\n")
    return home


def test_of_several_revisions_the_first_is_shown(home: Home) -> None:
    rng = random.Random(0)
    ledger = Ledger(home)
    for epoch in range(3):
        home_helpers.put(
            home, epoch, [(rng.randrange(10**9), rng.randrange(10**9), None, "upsert", 0) for _ in range(25_000)]
        )
    plan = planning.plan_run(ledger, lambda epoch: True)
    pieces = planning.split_by_size(home, plan)
    assert len(pieces) > 1
    found = forecast_run(ledger, plan)
    alone = forecast_run(ledger, replace(plan, run=pieces[0]))
    assert (found.revisions, alone.revisions) == (len(pieces), 1)
    assert found.choice_descriptions == alone.choice_descriptions and found.rows > alone.rows


def test_the_document_names_every_decision(home: Home) -> None:
    home_helpers.put(home, 4, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)])
    ledger = Ledger(home)
    document = json.loads(json.dumps(forecast_run(ledger, planning.plan_epochs(ledger, [4])).to_document()))
    assert document["plans"]["audit"] == "recompute 1 epoch: 4"
    assert document["plans"]["truss"].startswith("replay 4 … 4 in one task")
    assert {each["name"]: (each["way"], each["depends"]) for each in document["decisions"]} == {
        "edges": ("broadcast", False),
        "triangles": ("bulk", True),
        "truss": ("task", True),
        "audit": ("full: 4", False),
    }
    assert document["decisions"][-1]["may"] == ["full: 4"]
    idle = forecast_run(ledger, planning.plan_run(ledger, lambda epoch: False)).to_document()
    assert (idle["plans"], idle["decisions"], idle["revision"]) == ({}, [], None)


def test_an_audit_says_which_epochs_it_compared() -> None:
    scope = Scope(replace(EMPTY, revision=1, frontier=5), (3,))
    audit = choose_all(scope, parse_settings("", "x"), KnownNumbers())[-1]
    assert audit.strategy_of(AuditFacts(checks=1, failed=0, critical=0, epochs=[3, 5])) == audit.strategy == "full: 3 5"


def test_the_sum_of_numbers_lies_between_the_sums_of_their_bounds() -> None:
    assert Number(5, 3, 9) + Number(2, 1, 4) == Number(7, 4, 13)
    for one, other in ((9, None), (None, 4), (None, None)):
        assert (Number(5, 3, one) + Number(2, 1, other)).upper_bound is None
    assert [Number(5, 3, most).is_at_most(9) for most in (8, 9, 10, None)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("frontier", "epochs", "expected"),
    [(None, (), None), (None, (3, 1), 3), (5, (), 5), (5, (3,), 5), (5, (9, 7), 9), (0, (-4,), 0), (-4, (-9,), -4)],
)
def test_the_frontier_never_goes_back(frontier: int | None, epochs: tuple[int, ...], expected: int | None) -> None:
    scope = Scope(replace(EMPTY, revision=4, frontier=frontier), epochs)
    assert (scope.frontier, scope.revision) == (expected, 5)


def test_which_tables_a_run_adds_to() -> None:
    tables = (*LANDED_TABLES, "edges", "trussness")
    kept = {kind: [table for table in tables if Scope(EMPTY, (), kind).appends_to(table)] for kind in RunKind}
    others = {RunKind.RELOAD: [], RunKind.ROLLBACK: [], RunKind.COMPACT: []}
    assert kept == {RunKind.RUN: [*tables], RunKind.REBUILD: [*LANDED_TABLES], **others}


@pytest.mark.parametrize(
    ("bounds", "way", "may"),
    [
        ((0, 0, 0), "broadcast", {"broadcast"}),
        ((BROADCAST_ROWS,) * 3, "broadcast", {"broadcast"}),
        ((BROADCAST_ROWS + 1,) * 3, "shuffle", {"shuffle"}),
        ((BROADCAST_ROWS, 0, BROADCAST_ROWS + 1), "broadcast", {"broadcast", "shuffle"}),
        ((BROADCAST_ROWS + 1, BROADCAST_ROWS, None), "shuffle", {"broadcast", "shuffle"}),
        ((BROADCAST_ROWS + 2, BROADCAST_ROWS + 1, None), "shuffle", {"shuffle"}),
    ],
)
def test_few_touched_pairs_are_sent_to_every_task(bounds: tuple[int, int, int | None], way: str, may: set[str]) -> None:
    decision = EdgesChoice(Number(*bounds))
    assert (decision.strategy, decision.possible_strategies, decision.is_open) == (way, may, len(may) > 1)
    assert decision.describe(str) == ("broadcast the touched pairs" if way == "broadcast" else "shuffle by pair")


@pytest.mark.parametrize("wanted", ["auto", "delta", "bulk", "resume"])
def test_the_ways_of_motifs_are_those_of_the_counts_within_the_bounds(wanted: str) -> None:
    for stored, limit, rules in product(range(9), (4, 9), (1, 2, 3)):
        ways = [MotifsChoice(wanted, limit, rules, ("edges",), stored, Number.exact(n)).strategy for n in range(12)]
        assert (ways[0], {*ways[1:]} & {Strategy.NOTHING}) == (Strategy.NOTHING, set())
        for least, most in ((a, b) for a in range(12) for b in range(a, 12)):
            guess = MotifsChoice(wanted, limit, rules, ("edges",), stored, Number(least, least, most))
            assert guess.possible_strategies == {*ways[least : most + 1]}, (guess, ways)
        for least in range(12):  # from its 11 changes on the way stays
            guess = MotifsChoice(wanted, limit, rules, ("edges",), stored, Number(least, least, None))
            assert guess.possible_strategies == {*ways[least:]}, (guess, ways)


def test_motifs_ask_for_the_tables_of_their_relations() -> None:
    class Each(KnownNumbers):
        def stored_rows(self, table: str) -> int:
            return {"edges": 100, "motif_edges": 7}[table]

        def changed_rows(self, table: str) -> Number:
            return {"edges": Number(10, 0, 30), "motif_edges": Number(1, 1, 3)}[table]

    def asked(motifs: str) -> MotifsChoice:
        found = MotifsChoice.choose(Scope(EMPTY, (3,)), parse_settings(f'{motifs}[values]\nx = "long"\n', "x"), Each())
        assert found is not None
        return found

    plain, kept = asked('[motifs]\nm = "a-b, b-c"\n'), asked('[motifs]\nm = "a-b where x > 1, b-c where x > 1"\n')
    both = asked('[motifs]\nm = "a-b where x > 1, b-c"\n')
    assert (plain.tables, plain.stored_rows, plain.changed_rows) == (("edges",), 100, Number(10, 0, 30))
    assert (kept.tables, kept.stored_rows, kept.changed_rows) == (("motif_edges",), 7, Number(1, 1, 3))
    assert (both.tables, both.stored_rows, both.changed_rows) == (("edges", "motif_edges"), 107, Number(11, 1, 33))


def truss_of(
    numbers: KnownNumbers, epochs: tuple[int, ...] = (5,), text: str = "", **parent: int | None
) -> TrussChoice:
    return TrussChoice.choose(
        Scope(replace(EMPTY, **{"revision": 1, "frontier": 5, **parent}), epochs), parse_settings(text, "x"), numbers
    )


@pytest.mark.parametrize(
    ("epochs", "changed", "first", "expected"),
    [
        ((5,), SOME, 3, 3),
        ((5,), SOME, 5, 5),
        ((5,), SOME, 6, None),  # after the frontier
        ((5,), SOME, None, None),
        ((5,), NOTHING, 3, None),  # nothing changes, whatever is said of the first
        ((8,), NOTHING, 3, 6),  # expiries after the old frontier
        ((8,), SOME, 3, 3),
        ((8,), SOME, 7, 6),
        ((8,), SOME, None, 6),
    ],
)
def test_the_trussness_is_replayed_from_the_first_change(
    epochs: tuple[int, ...], changed: Number, first: int | None, expected: int | None
) -> None:
    truss = truss_of(KnownNumbers(intervals=changed, first=first), epochs)
    assert (truss.first_epoch, truss.last_epoch, truss.expires) == (expected, max(epochs), max(epochs) > 5)
    assert truss.describe(str).startswith(
        f"replay {expected} … {max(epochs)} in one task" if expected else "nothing to"
    )
    assert (truss.strategy is Strategy.NOTHING) == (expected is None)


def test_of_an_empty_state_there_is_no_old_frontier() -> None:
    truss = truss_of(KnownNumbers(), (8,), revision=0, frontier=None)
    assert (truss.first_epoch, truss.last_epoch, truss.expires) == (3, 8, False)
    assert truss_of(KnownNumbers(), (), revision=0, frontier=None).describe(str) == "nothing to replay"


@pytest.mark.parametrize(
    ("bounds", "way", "may"),
    [
        ((10, 1, 20), "task", {"task"}),
        ((10, 1, 21), "task", {"task", "parts"}),
        ((20, 1, None), "task", {"task", "parts"}),
        ((21, 1, None), "parts", {"task", "parts"}),
        ((21, 0, None), "parts", {"task", "parts", "nothing"}),
    ],
)
def test_more_edges_than_a_task_may_hold_are_counted(
    bounds: tuple[int, int, int | None], way: str, may: set[str]
) -> None:
    truss = truss_of(KnownNumbers(intervals=Number(*bounds), there=100), text="[truss]\nlimit_edges = 120\n")
    assert (truss.strategy, truss.possible_strategies, truss.needs_edge_count) == (way, may, way == "parts")
    assert "in partitions beyond 120 edges" in truss.describe(str)


@pytest.mark.parametrize(
    ("state", "bounds", "way", "may", "audit", "audits"),
    [
        (True, (250, 1, 250), "region", {"task", "parts", "region"}, "local", {"local", "full: 5"}),
        (True, (251, 1, 251), "parts", {"task", "parts", "region"}, "full: 5", {"local", "full: 5"}),
        (True, (251, 251, 251), "parts", {"task", "parts"}, "full: 5", {"full: 5"}),
        (False, (250, 1, 250), "parts", {"task", "parts"}, "full: 5", {"full: 5"}),
    ],
)
def test_few_changes_of_what_no_task_can_hold_are_followed_by_region(
    state: bool, bounds: tuple[int, int, int], way: str, may: set[str], audit: str, audits: set[str]
) -> None:
    """300 edges for each that changes: a task may hold 75,000. Both estimates are shown."""
    text, numbers = (
        "[truss]\nlimit_edges = 75000\n",
        KnownNumbers(intervals=Number(*bounds), there=100_000, state=state),
    )
    truss, judged = truss_of(numbers, text=text), audit_of(text, numbers)
    assert (truss.strategy, truss.possible_strategies, judged.strategy, judged.possible_strategies) == (
        way,
        may,
        audit,
        audits,
    )
    words = "by region in one task, with some 75,000 of 100,250 edges (in partitions beyond 75,000)"
    assert (words in truss.describe(str)) == (way == "region")
    for mode, expected in {"full": "full: 5", "rolling 9": "local", "local": "local"}.items():
        asked = audit_of(f'{text}[audit]\nmode = "{mode}"\n', numbers)
        assert asked.strategy == (expected if way == "region" else "full: 5") and not asked.audit_shares


def audited(epochs: str, scope: Scope, published: Collection[int]) -> tuple[int, ...]:
    found = AuditChoice.choose(
        scope, parse_settings(f'[audit]\nepochs = "{epochs}"\n' if epochs else "", "x"), KnownNumbers(epochs=published)
    )
    assert found is not None and found.possible_strategies == {found.strategy} == {
        f"full: {' '.join(map(str, found.epochs))}"
    }
    return found.epochs


def test_a_run_audits_its_last_epoch_the_frontier_and_what_is_asked_for() -> None:
    scope = Scope(replace(EMPTY, revision=1, frontier=20), (8, 4, 7, 6))
    published = range(1, 21)
    assert audited("all", scope, published) == (4, 6, 7, 8, 20)
    assert audited("every 3", scope, published) == (6, 8, 20)
    assert audited("every 2", scope, published) == (4, 6, 8, 20)
    drawn = audited("sample 3", scope, published)
    assert {8, 20} <= {*drawn} <= {*published} and 3 <= len(drawn) <= 5
    assert drawn == audited("sample 3", scope, published)  # in the plan, then in the run
    assert AuditChoice.choose(Scope(EMPTY, ()), parse_settings("", "x"), KnownNumbers()) is None


def test_the_audit_leaves_out_what_a_compaction_has_folded() -> None:
    parent = replace(EMPTY, revision=1, frontier=20, since=7)
    assert audited("all", Scope(parent, (6, 7, 8)), range(20)) == (7, 8, 20)
    assert audited("all", Scope(parent, (), RunKind.REBUILD), range(5, 10)) == (7, 8, 9, 20)
    assert audited("all", Scope(parent, (), RunKind.RELOAD), range(5, 10)) == (5, 6, 7, 8, 9, 20)


@pytest.mark.parametrize(
    ("published", "expected"),
    [(1, [0]), (4, [0, 1, 2, 3]), (9, [*range(9)]), (10, [0, 2, 4, 6, 8, 9]), (25, [0, 5, 10, 15, 20, 24])],
)
def test_a_rebuild_audits_epochs_of_all_its_history(published: int, expected: list[int]) -> None:
    scope = Scope(replace(EMPTY, revision=1, frontier=published - 1), (), RunKind.REBUILD)
    assert audited("every 100", scope, range(published)) == tuple(expected)


def audit_of(text: str, numbers: KnownNumbers, epochs: tuple[int, ...] = (5,)) -> AuditChoice:
    found = AuditChoice.choose(
        Scope(replace(EMPTY, revision=1, frontier=5), epochs), parse_settings(text, "x"), numbers
    )
    assert found is not None
    return found


ROLLING = f"rolling {PARTS}"
MANY = 200_000  # edges, of which a recomputation takes longer than the rest of an audit


@pytest.mark.parametrize(
    ("text", "there", "changed", "way", "may"),
    [
        ("", 100, 10, "full: 5", {"full: 5"}),  # of few edges
        ("", 90_000, 0, "full: 5", {"full: 5"}),  # as long
        ("", 90_001, 0, ROLLING, {ROLLING, "full: 5"}),
        ("", MANY, 10, ROLLING, {ROLLING, "full: 5"}),
        ("", 32 << 16, 0, ROLLING, {ROLLING, "full: 5"}),  # a part has at most so many edges
        ("", (32 << 16) + 1, 0, "rolling 64", {"rolling 64", "full: 5"}),
        ("", 10_000_000, 0, "rolling 256", {"rolling 256", "full: 5"}),
        ('[audit]\nmode = "full"\n', MANY, 10, "full: 5", {"full: 5"}),
        ('[audit]\nmode = "local"\n', 100, 10, "local", {"local", "full: 5"}),
        ('[audit]\nmode = "rolling 7"\n', 100, 10, "rolling 7", {"rolling 7", "full: 5"}),
        ('[audit]\nepochs = "all"\n', MANY, 10, "full: 5", {"full: 5"}),  # it is asked for
        ("[truss]\nlimit_edges = 109\n[audit]\nmode = 'local'\n", 100, 10, "full: 5", {"full: 5"}),
        ("[truss]\nlimit_edges = 110\n[audit]\nmode = 'local'\n", 100, 10, "local", {"local", "full: 5"}),
        (MOTIFS + "[audit]\nmode = 'local'\n", 100, 10, "full: 5", {"full: 5"}),
    ],
)
def test_what_cannot_be_proved_or_costs_little_is_recomputed(
    text: str, there: int, changed: int, way: str, may: set[str]
) -> None:
    text = f"[truss]\nlimit_edges = {100 * MANY}\n{text}" if "limit_edges" not in text else text
    audit = audit_of(text, KnownNumbers(intervals=Number.exact(changed), there=there))
    assert (audit.strategy, audit.possible_strategies) == (way, may)
    assert audit.audit_shares == (int(way.split()[1]) if way.startswith("rolling") else 0)
    rest = f"prove every epoch{f', and recount one in {audit.audit_shares} vertices' if audit.audit_shares else ''}"
    assert audit.describe(str) == ("recompute 1 epoch: 5" if way.startswith("full") else rest)


def test_the_audit_within_the_bounds_of_the_changes() -> None:
    """Every count between the bounds goes one of the ways that were open, on both sides of where the cost changes."""
    for there in (100, 50_000, 89_000, 90_000, 120_000, MANY):
        for most in (0, 10**3, 10**5, 10**6):
            text = f"[truss]\nlimit_edges = {10**9}\n"
            guess = audit_of(text, KnownNumbers(intervals=Number(most // 2, 0, most), there=there))
            counted = {
                audit_of(text, KnownNumbers(intervals=Number.exact(n), there=there)).strategy
                for n in (0, most // 2, most)
            }
            assert guess.possible_strategies == {*counted, "full: 5"}


def test_the_mode_that_an_audit_says_it_took() -> None:
    said = AuditFacts(checks=1, failed=0, critical=0, epochs=[3, 5], mode=ROLLING)
    assert AuditChoice.strategy_of(said) == ROLLING
    assert (
        AuditChoice.strategy_of(replace(said, mode="full"))
        == AuditChoice.strategy_of(replace(said, mode=None))
        == "full: 3 5"
    )


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ((7,), "recompute 1 epoch: 7"),
        ((1, 2), "recompute 2 epochs: 1, 2"),
        ((1, 2, 3, 4), "recompute 4 epochs: 1, 2, 3, 4"),
        ((1, 2, 3, 4, 5), "recompute 5 epochs: 1, 2, …, 5"),
        (tuple(range(1200)), "recompute 1,200 epochs: 0, 1, …, 1199"),
    ],
)
def test_the_audit_in_words(epochs: tuple[int, ...], words: str) -> None:
    choice = AuditChoice(
        epochs=epochs,
        requested_mode="full",
        wants_other_epochs=True,
        provable=True,
        stored_edges=0,
        changed_edges=NOTHING,
    )
    assert choice.describe(str) == words
