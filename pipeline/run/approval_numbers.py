"""The numbers by which a rule of `[publish] approve` decides, of what a run would change, from the SQL database alone.

They are those of the difference that `altneu diff` shows. `altneu.pipeline.home.approval_rule` says what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..home.approval_rule import named_numbers, parse_rule
from ..reading.revision_diff import DiffSide, RevisionDiff
from ..state.fingerprint_sums import RunningFingerprint
from ..state.ledger import Ledger
from ..state.records import Revision, RunKind, RunRecord, is_landed
from ..state.stage_results import AuditFacts
from ..state.totals import MEASURES, EpochTotals, totals_at, truss_sizes
from .choices.plan_choice import Scope


def diff_held_run(ledger: Ledger, run: RunRecord) -> RevisionDiff:
    """Return the difference between a held run's parent and what the run would publish."""
    after = DiffSide(ledger, unpublished_revision(ledger, run), run)
    return RevisionDiff(DiffSide(ledger, ledger.runs.get_parent(run)), after)


def unpublished_revision(ledger: Ledger, run: RunRecord) -> Revision:
    """Return the revision that a held run would be if it were published now, with the snapshots that its audit saw."""
    parent = ledger.runs.get_parent(run)
    return replace(
        parent,
        revision=run.parent + 1,
        parent=run.parent,
        run_id=run.run_id,
        frontier=Scope(parent, run.epochs, run.kind).frontier,
        snapshots={**parent.snapshots, **ledger.stages.recorded_snapshots(run.run_id)},
        since=None if run.kind is RunKind.RELOAD else parent.since,
    )


def explain_rule(ledger: Ledger, run: RunRecord, rule: str) -> str | None:
    """Return a rule with the numbers of a run for which it holds, or None where it does not hold."""
    numbers = count_rule_numbers(ledger, run)
    used = {name: numbers.get(name, 0.0) for name in named_numbers(rule)}
    if not is_true(rule, used):
        return None
    shown = (f"{name} = {f'{value:.2%}' if name == 'moved' else f'{value:,.0f}'}" for name, value in used.items())
    return f"{', '.join(shown)}, and [publish] approve when {rule}"


def is_true(rule: str, numbers: Mapping[str, float]) -> bool:
    """Tell whether a rule holds for these numbers.

    >>> is_true("moved > 0.5 % or warnings > 0", {"moved": 0.004, "warnings": 0})
    False
    """
    import duckdb

    from ..storage.duckdb_predicates import translate_to_duckdb

    condition = translate_to_duckdb(parse_rule(rule), dict.fromkeys(numbers, "double"))
    columns = ", ".join(f'?::DOUBLE AS "{name}"' for name in numbers)
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT {condition} FROM (SELECT {columns})", [*numbers.values()]).fetchall()
    return bool(rows[0][0])


def count_rule_numbers(ledger: Ledger, run: RunRecord) -> dict[str, float]:
    """Return the numbers of a run whose checks are done. A k-truss that is not there has none."""
    difference = diff_held_run(ledger, run)
    numbers: dict[str, float] = dict.fromkeys((*MEASURES, "moved"), 0.0)
    published = difference.before.row.frontier
    for epoch, name, before, after in _list_steps(difference):
        numbers[name] = max(numbers.get(name, 0.0), abs(after - before))
        if published is not None and epoch <= published:
            numbers["moved"] = max(numbers["moved"], abs(after - before) / before if before else 1.0)
    staged = ledger.outputs.staged_batches(run.run_id)
    return numbers | {
        "restated": _count_restated(ledger, run, published),
        "epochs": len(run.epochs),
        "rows": sum(batch.rows for batch in staged),
        "quarantined": sum(batch.bad_rows for batch in staged),
        "warnings": ledger.stages.get_facts(run.run_id, AuditFacts).failed,
    }


def _list_steps(difference: RevisionDiff) -> Iterator[tuple[int, str, int, int]]:
    """Yield (epoch, number, before, after) of the totals that differ."""
    old, new = difference.before.epoch_totals, difference.after.epoch_totals
    epochs = sorted({*old, *new})
    was, now = totals_at(old, epochs), totals_at(new, epochs)
    for epoch in epochs:
        before, after = _name_totals(was[epoch]), _name_totals(now[epoch])
        for name in {**before, **after}:
            step = before.get(name, 0), after.get(name, 0)
            if step[0] != step[1]:
                yield epoch, name, *step


def _name_totals(point: EpochTotals) -> dict[str, int]:
    totals: dict[str, int] = {name: point[name] for name in MEASURES}
    return totals | {f"truss_{k}": edges for k, edges in truss_sizes(point["trusses"]).items()}


def _count_restated(ledger: Ledger, run: RunRecord, published: int | None) -> int:
    """Count the published epochs whose graph a run changes, by the fingerprints of what it changes."""
    if published is None:
        return 0
    epochs = sorted(epoch for epoch in ledger.outputs.published_batches(run.parent) if epoch <= published)
    prints = ledger.outputs.staged_fingerprints(run.run_id)
    moved = [RunningFingerprint(by_epoch) for table, by_epoch in prints.items() if not is_landed(table)]
    return sum(any([bool(each.advance_to(epoch)) for each in moved]) for epoch in epochs)
