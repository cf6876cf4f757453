"""What a run has stored against what was proved of it, by fingerprints made by hand: no tables, no Spark.

tests/e2e/test_proof.py has whole runs, and tests/laws/test_landed.py the rows whose fingerprints these are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.proof_records import COLLECTIONS, GraphCounts, Proof, ProofScope, ProvedEpoch, UnprovedEdge
from altneu.pipeline.run.stages import proof_verification
from altneu.pipeline.state.fingerprint_sums import Prints, add_fingerprints, subtract_fingerprints
from altneu.pipeline.state.stage_results import TrussFacts

BASE, FIRST, EXPIRY, FRONTIER = 2, 3, 5, 7  # a batch lands at 3 and at 7; at 5 edges expire, and nothing lands
LATER = 9  # when others will
CHANGED = (FIRST, EXPIRY, FRONTIER)
TRIANGLE, EDGE = GraphCounts(3, 3, 3, 1, {3: 3}), GraphCounts(1, 2, 0, 0, {2: 1})


def print_of(number: int) -> Fingerprint:
    """Of something, with carries."""
    return Fingerprint(number * 2**63 % 2**64 + number, -number % 2**64)


def prints_of(number: int) -> dict[str, Fingerprint]:
    """Of each collection another one."""
    return {table: print_of(10 * number + i) for i, table in enumerate(COLLECTIONS)}


def total_diffs(counts: GraphCounts, epoch: int, sign: int = 1) -> list[tuple[str, int, int, int, int]]:
    names = ("edges", "vertices", "wedges", "triangles")
    rows = [(name, 0, epoch, 1, sign * getattr(counts, name)) for name in names]
    return rows + [("truss", k, epoch, 1, sign * n) for k, n in counts.trusses.items()]


@dataclass
class Stored:
    """What the run builds on, what it has written, and its proof: at first all is right."""

    before: Prints = field(default_factory=lambda: {table: {1: each} for table, each in prints_of(1).items()})
    change: Prints = field(
        default_factory=lambda: {table: {e: prints_of(e)[table] for e in (*CHANGED, LATER)} for table in COLLECTIONS}
    )
    totals: list[tuple[str, int, int, int, int]] = field(
        default_factory=lambda: [
            *total_diffs(TRIANGLE, 1),
            *total_diffs(EDGE, FIRST),
            *total_diffs(EDGE, EXPIRY, -1),
            *total_diffs(TRIANGLE, FRONTIER),
        ]
    )
    proof: Proof = field(
        default_factory=lambda: Proof(
            base=prints_of(1),
            counts=TRIANGLE,
            steps=[
                ProvedEpoch(FIRST, prints_of(FIRST), EDGE, 1),
                ProvedEpoch(EXPIRY, prints_of(EXPIRY), GraphCounts(-1, -2, 0, 0, {2: -1}), 1),
                ProvedEpoch(FRONTIER, prints_of(FRONTIER), TRIANGLE, 3),
            ],
            part={},
            looked_at=5,
            wrong=0,
            listed_edges=[],
            scope=ProofScope(),
        )
    )

    def run(self) -> SimpleNamespace:
        published = [row for row in self.totals if row[2] <= BASE]
        outputs = SimpleNamespace(
            total_diffs=lambda revision, first: published,
            get_proof=lambda run_id: self.proof,
            put_fingerprints=lambda run_id, change: None,
        )
        return SimpleNamespace(
            run_id="mine",
            home=SimpleNamespace(config=SimpleNamespace(edges=SimpleNamespace(live_for=None))),
            ledger=SimpleNamespace(outputs=outputs),
            get_result=lambda kind: TrussFacts(rows=1, first_epoch=FIRST, epochs=3),
            frontier=FRONTIER,
            epochs=[FIRST, FRONTIER],
            fingerprinted_tables=set(self.before),
            known_fingerprints_since=lambda first: self.before,
            published_batches=[1],
            parent=SimpleNamespace(revision=1, frontier=BASE, since=None),
            total_diffs=lambda first: self.totals,
            appends_to=lambda table: True,
        )


def judge(stored: Stored) -> dict[tuple[str, str | int | None], set[int]]:
    """What differs, and at which epochs."""
    after = {table: add_fingerprints(stored.before[table], stored.change[table]) for table in COLLECTIONS}
    rows = proof_verification._compare_stored(
        stored.run(), stored.proof, FIRST, stored.before, after, FIRST, [FIRST, FRONTIER]  # type: ignore[arg-type]
    )  # fmt: skip
    found: dict[tuple[str, str | int | None], set[int]] = {}
    for row in rows:
        found.setdefault((row["what"], row["a"]), set()).add(row["epoch"])
    return found


def test_what_is_proved_is_stored() -> None:
    assert judge(Stored()) == {}


def test_a_region_is_proved_on_what_the_runs_before_have_proved() -> None:
    stored = Stored()
    stored.proof.base = {}
    stored.proof.counts = GraphCounts()
    assert judge(stored) == {}


def change_by(stored: Stored, table: str, epoch: int, number: int) -> None:
    stored.change[table] = add_fingerprints(stored.change[table], {epoch: print_of(number)})


def move(stored: Stored, table: str, epoch: int, to: int) -> None:
    """All that changes at an epoch changes at another one."""
    moved = stored.change[table][epoch]
    stored.change[table] = add_fingerprints(subtract_fingerprints(stored.change[table], {epoch: moved}), {to: moved})


# what is damaged → what differs from the epoch on, or at it alone
DAMAGES: dict[str, tuple[Callable[[Stored, str], None], set[int]]] = {
    "a row more": (lambda s, table: change_by(s, table, FIRST, 7), {FIRST, EXPIRY, FRONTIER}),
    "a row where nothing changes": (lambda s, table: change_by(s, table, 4, 7), {4, EXPIRY, FRONTIER}),
    "a row at an epoch without a batch": (lambda s, table: change_by(s, table, EXPIRY, -7), {EXPIRY, FRONTIER}),
    "a row of the newest epoch": (lambda s, table: change_by(s, table, FRONTIER, 7), {FRONTIER}),
    "an epoch late": (lambda s, table: move(s, table, EXPIRY, EXPIRY + 1), {EXPIRY}),
    "an epoch early": (lambda s, table: move(s, table, EXPIRY, EXPIRY - 1), {EXPIRY - 1}),
    "dated into the state before": (lambda s, table: move(s, table, FIRST, BASE), {FIRST}),
    "of an epoch to come": (lambda s, table: change_by(s, table, LATER, 7), set()),  # nothing is said of it yet
    "a row of the state before": (lambda s, table: change_by(s, table, BASE, 7), {FIRST, EXPIRY, FRONTIER}),
}


@pytest.mark.law(10)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", COLLECTIONS)
def test_rows_that_are_not_those_that_are_proved_are_named(table: str, damage: str) -> None:
    spoil, wrong = DAMAGES[damage]
    stored = Stored()
    spoil(stored, table)
    assert judge(stored) == ({("stored", f"the rows of {table}"): wrong} if wrong else {})


@pytest.mark.law(10)
@pytest.mark.parametrize("name", ["edges", "vertices", "wedges", "triangles"])
@pytest.mark.parametrize(("epoch", "wrong"), [(FIRST, {*CHANGED}), (EXPIRY, {EXPIRY, FRONTIER}), (LATER, set())])
def test_totals_that_are_not_those_that_are_proved_are_named(name: str, epoch: int, wrong: set[int]) -> None:
    stored = Stored()
    stored.totals.append((name, 0, epoch, 2, 1))
    assert judge(stored) == ({("totals", name): wrong} if wrong else {})


def test_numbers_of_edges_of_a_trussness_are_named() -> None:
    stored = Stored()
    stored.totals += [("truss", 3, FRONTIER, 2, -6), ("truss", 4, FRONTIER, 2, 6)]
    assert judge(stored) == {("totals", f"edges of trussness {k}"): {FRONTIER} for k in (3, 4)}
    shown = {"edges": 6, "vertices": 3, "wedges": 3, "triangles": 2, "trusses": {4: 6}}
    proved = GraphCounts(6, 3, 3, 2, {3: 6})
    assert [*proof_verification._unequal_totals(shown, proved)] == [
        ("edges of trussness 3", (0, 6)),
        ("edges of trussness 4", (6, 0)),
    ]
    run = stored.run()
    assert proof_verification.published_counts(run, BASE) == TRIANGLE  # type: ignore[arg-type]


def prove(
    monkeypatch: pytest.MonkeyPatch, stored: Stored, run: Any = None, looked: list[Any] | None = None
) -> proof_verification.ProofResult | None:
    """`proved`, of fingerprints that were made by hand; the landed rows are as they should be. `looked`: what is asked
    of them."""

    def landed(run: Any, *asked: Any, whole: bool, part: Any, held: Any) -> list[dict[str, Any]]:
        if looked is not None:
            looked.append((*asked, whole, part))
        return []

    monkeypatch.setattr(proof_verification, "run_fingerprints", lambda run, held: (stored.before, stored.change))
    monkeypatch.setattr(proof_verification, "_compare_landed", landed)
    return proof_verification.verify_proof(run or stored.run(), SimpleNamespace(parts=0))  # type: ignore[arg-type]


def test_a_proof_speaks_of_every_batch_that_the_run_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, staged = Stored(), []
    run = stored.run()
    run.ledger.outputs.put_fingerprints = lambda run_id, change: staged.append((run_id, change))
    found = prove(monkeypatch, stored, run)
    assert found == proof_verification.ProofResult([FIRST, FRONTIER], [], None, 5)
    assert staged == [("mine", stored.change)]


def test_before_what_is_replayed_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrected batch changes nothing at its epoch, and a later one does."""
    stored = Stored()
    stored.before = {table: {1: print_of(3) + each, BASE: -print_of(3)} for table, each in prints_of(1).items()}
    run = stored.run()
    run.epochs = [1, FRONTIER]
    found = prove(monkeypatch, stored, run)
    assert found == proof_verification.ProofResult([1, FRONTIER], [], None, 5)
    stored.totals += [("triangles", 0, 1, 2, 4), ("triangles", 0, BASE, 2, -4)]  # of this run
    for epoch, number in ((1, 7), (BASE, -7)):
        change_by(stored, "degrees", epoch, number)
    run = stored.run()
    run.epochs, run.ledger.outputs.total_diffs = [1, FRONTIER], lambda revision, first: total_diffs(TRIANGLE, 1)
    found = prove(monkeypatch, stored, run)
    assert found is not None
    assert [(row["epoch"], row["what"], row["a"]) for row in found.rows] == [
        (1, "stored", "the rows of degrees"),
        (1, "totals", "triangles"),
    ]


def test_what_expires_after_the_newest_epoch_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a window everything ends, so that a wrong row of an epoch to come shows at once."""
    stored, tables = Stored(), ("degrees", "triangle_counts", "motif_counts")
    run = stored.run()
    for table in tables:
        rows = [*stored.before.get(table, {}).values(), *stored.change.setdefault(table, {}).values()]
        stored.change[table] = add_fingerprints(stored.change[table], {LATER: -Fingerprint.sum_all(rows)})
    run.home.config.edges.live_for = LATER - FRONTIER
    found = prove(monkeypatch, stored, run)
    assert found is not None and not found.rows
    for table in tables:
        change_by(stored, table, LATER, 7)
    found = prove(monkeypatch, stored, run)
    assert found is not None
    assert [(row["epoch"], row["what"], row["a"]) for row in found.rows] == [
        (FRONTIER, "stored", f"the rows of {table}, once all edges have expired") for table in tables
    ]
    run.home.config.edges.live_for = None  # what is there at the newest epoch stays
    found = prove(monkeypatch, stored, run)
    assert found is not None and not found.rows


def test_a_table_that_the_run_has_no_more_need_not_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fingerprints are still known where a rebuild has given up the motifs."""
    stored = Stored()
    run = stored.run()
    for table in ("degrees", "triangle_counts"):
        rows = [*stored.before.get(table, {}).values(), *stored.change.setdefault(table, {}).values()]
        stored.change[table] = add_fingerprints(stored.change[table], {LATER: -Fingerprint.sum_all(rows)})
    stored.before["motif_counts"] = {1: prints_of(1)["edges"]}
    run.home.config.edges.live_for = LATER - FRONTIER
    found = prove(monkeypatch, stored, run)
    assert found is not None and not found.rows


@pytest.mark.parametrize(("asked", "known"), [(ProofScope(8, 3), True), (ProofScope(), True), (ProofScope(), False)])
def test_landed_rows_are_looked_at_and_the_part_that_was_recounted(
    monkeypatch: pytest.MonkeyPatch, asked: ProofScope, *, known: bool
) -> None:
    """Of all pairs where nothing is known of the state before."""
    stored, looked = Stored(), list[Any]()
    stored.proof.scope = asked
    if not known:
        stored.before = {table: each for table, each in stored.before.items() if table != "edges"}
        stored.change["edges"] = add_fingerprints({1: prints_of(1)["edges"]}, stored.change["edges"])
    found = prove(monkeypatch, stored, looked=looked)
    assert found is not None and found.part == (asked if asked.parts else None) and not found.rows
    assert looked == [(FIRST, [FIRST, FRONTIER], not known, stored.proof if asked.parts else None)]


def test_edges_that_are_not_proved_are_shown_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    stored.proof = replace(stored.proof, wrong=30, listed_edges=[UnprovedEdge(100, 101, 4, "too low")])
    run = stored.run()
    run.epochs = [FIRST, 4, FRONTIER]
    found = prove(monkeypatch, stored, run)
    assert found is not None
    (row,) = found.rows
    assert (row["epoch"], row["what"], row["a"], row["maintained"], row["why"]) == (
        FRONTIER, "facts", "100-101", 4, "too low",
    )  # fmt: skip
    assert row["count"] == 30


def test_edges_that_are_not_proved_are_shown_at_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of which no epoch is known at the last one."""
    stored = Stored()
    shown = [UnprovedEdge(100, 101, 4, "too low", FIRST), UnprovedEdge(100, 102, 4, "too low")]
    step, *others = stored.proof.steps
    assert step.epoch == FIRST
    stored.proof = replace(stored.proof, wrong=9, listed_edges=shown, steps=[replace(step, wrong=7), *others])
    found = prove(monkeypatch, stored)
    assert found is not None
    assert [(row["epoch"], row["a"], row["count"]) for row in found.rows] == [
        (FIRST, "100-101", 7),
        (FRONTIER, "100-102", 2),
    ]


def test_where_nothing_was_replayed_nothing_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    run = stored.run()
    run.ledger.outputs.get_proof = lambda run_id: None
    run.get_result = lambda kind: TrussFacts(rows=0, first_epoch=None, epochs=0)
    stored.change = {table: {FIRST: print_of(1)} if table == "degrees" else {} for table in COLLECTIONS}
    found = prove(monkeypatch, stored, run)
    assert found is not None
    names = ("epoch", "what", "a", "maintained", "recomputed")
    assert [tuple(row[name] for name in names) for row in found.rows] == [(FIRST, "stored", "degrees", 0, 1)]


def known_of(*tables: str) -> Prints:
    return {table: {} for table in tables}


@pytest.mark.parametrize(
    ("has_proof", "has_base", "known", "replayed", "why"),
    [
        (True, True, known_of(), 3, None),
        (True, True, known_of(*COLLECTIONS), 3, None),
        (True, False, known_of(*COLLECTIONS), 3, None),
        (True, False, known_of("edges", "degrees"), 3, "nothing changes, and nothing is known of the state before"),
        (False, False, known_of(*COLLECTIONS), 3, "the graph was too large for one task"),
        (False, False, known_of(*COLLECTIONS), 0, None),
        (False, False, known_of(), 0, "nothing changes, and nothing is known of the state before"),
    ],
)
def test_why_there_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, has_proof: bool, has_base: bool, known: Prints, replayed: int, why: str | None
) -> None:
    """Of a home without fingerprints, as an earlier version has left it, all is proved from its next change on."""
    stored = Stored()
    run = stored.run()
    proof = stored.proof if has_base else replace(stored.proof, base={})
    run.ledger.outputs.get_proof = lambda run_id: proof if has_proof else None
    run.fingerprinted_tables = set(known)
    run.get_result = lambda kind: TrussFacts(rows=1, first_epoch=FIRST, epochs=replayed)
    assert proof_verification.unprovable_reason(run) == why  # type: ignore[arg-type]
    if why is not None:
        assert prove(monkeypatch, stored, run) is None


@pytest.mark.parametrize("keeps", [True, False])
def test_fingerprints_are_read_of_what_is_new_or_of_all(monkeypatch: pytest.MonkeyPatch, *, keeps: bool) -> None:
    """Of a table that the run adds to and whose fingerprint is known: of its new rows. Else of all rows."""
    known = {"edges": {1: print_of(1), 2: print_of(2)}, "degrees": {1: print_of(3)}}
    run = Stored().run()
    run.known_fingerprints, run.known_fingerprints_since = known, lambda first: known
    run.appends_to = lambda table: keeps or table == "upserts"
    run.warehouse = SimpleNamespace(collections=["edges", "degrees", "trussness"])
    run.read_delta, run.read_after = (lambda table: f"new {table}"), (lambda table: f"all {table}")
    read: list[str] = []

    def take(reads: Callable[[str], str], warehouse: Any, tables: list[str]) -> Prints:
        read.extend(map(reads, tables))
        return {table: {2: print_of(2)} for table in tables}

    monkeypatch.setattr(proof_verification.table_fingerprints, "table_fingerprints", take)
    before, change = proof_verification.run_fingerprints(run)  # type: ignore[arg-type]
    new = {2: print_of(2)}
    if keeps:
        assert read == ["new edges", "new degrees", "all trussness"]
        assert (before, change) == (known, {"edges": new, "degrees": new, "trussness": new})
    else:
        assert read == ["all edges", "all degrees", "all trussness"]
        assert before == {**known, "trussness": {}}
        assert change == {
            "edges": {1: -print_of(1)}, "degrees": {1: -print_of(3), 2: print_of(2)}, "trussness": new,
        }  # fmt: skip
