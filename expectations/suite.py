"""The runner of the suites: it takes frames of rows and returns one result per check, also of those that passed.

A result is a `Check`, with up to 20 offending rows. A check whose frames are not given has no result. Nothing is
written and nothing decided here. `gx_runner.CheckCrashed` is raised if a check could not be evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import (
    degrees,
    edges,
    incremental_versus_full,
    ledger,
    proof,
    quarantine,
    serving_tables,
    triangle_counts,
    trussness,
    upserts,
    volumes,
)
from .frame_builder import FrameBuilder, Frames
from .gx_runner import ROWS, SMALL, ExpectationRunner, plain_row
from .model import Check, Expectation, RuleResult

SUITES = (upserts, quarantine, edges, degrees, triangle_counts, trussness, ledger, volumes)
EXPECTATIONS: list[Expectation] = [expectation for suite in SUITES for expectation in suite.EXPECTATIONS]
ALL_EXPECTATIONS: list[Expectation] = [  # those of rows that callers compare, too
    *EXPECTATIONS,
    *proof.EXPECTATIONS,
    *incremental_versus_full.EXPECTATIONS,
    *incremental_versus_full.QUERY_EXPECTATIONS,
    *serving_tables.EXPECTATIONS,
]


def check_tables(frames: Frames, context: dict[str, Any], small: int = SMALL) -> list[Check]:
    """Return the results of all checks of tables for which `frames` has the rows.

    frames   upserts (rows of this run with diff +1), upserts_net (all rows of the epochs that this run touched, summed
             to `copies`), quarantine, edge_delta, edges_at, degrees_at, triangle_counts_at, trussness_at; and, as
             plain rows, motifs (one per motif), totals (one) and volumes (one per epoch of the run: epoch, rows,
             bad_rows; landed_at, the time of its newest file, and over_at, the end of its interval, if there are
             any). Any may be absent.
    context  epoch, label, value_types; history: earlier epochs as {epoch, rows, bad_rows, edges, triangles}; labels
             (optional): epoch -> label, for remedies at other epochs than `epoch`; rows (optional): no frame has more;
             alone (optional): no two upserts of any epoch that the run touched have the same key and seq, so that each
             is its own net row and has no rival; callers determine this only for many rows.
    small    frames of up to this number of rows are judged in pandas, larger ones in Spark.
    """
    alone = bool(context.get("alone"))
    shop, judge = FrameBuilder(frames, context, context.get("rows", math.inf) <= small, alone), ExpectationRunner(small)
    on: dict[str, list[Expectation]] = {}
    for expectation in EXPECTATIONS:
        if all(need in frames for need in expectation.needs):
            on.setdefault(expectation.frame, []).append(expectation)

    def make_frame(name: str) -> Any:
        frame = shop.get_frame(name)
        return frame if frame is None or shop.is_scanned(name) else judge.fetch_small(frame)

    rule_results: dict[tuple[str, str], RuleResult] = {}
    tables: dict[str, Any] = {}
    try:
        shop.fetch_small_frames()
        with ThreadPoolExecutor(1) as ahead:  # Spark builds the next frame while this one is judged
            for (name, wanted), frame in zip(on.items(), ahead.map(make_frame, on), strict=True):
                if frame is not None:
                    tables[name] = frame
                    judged = judge.judge_frame(name, frame, wanted, scan=shop.is_scanned(name))
                    rule_results |= {(v.expectation.suite, v.expectation.name): v for v in judged}
    finally:
        shop.release_frames()
    labels = {**context.get("labels", {}), context["epoch"]: context.get("label", context["epoch"])}
    checks = []
    for expectation in EXPECTATIONS:
        rule_result = rule_results.get((expectation.suite, expectation.name))
        if rule_result is None:
            continue
        if expectation.per_epoch:
            checks += [
                _check_at_epoch(rule_result, row, labels) for row in tables[expectation.frame].to_dict("records")
            ]
        else:
            checks.append(_make_check(rule_result, context["epoch"], labels))
    return checks


def check_differences(rows: Sequence[Mapping[str, Any]], context: dict[str, Any]) -> list[Check]:
    """Return a check for each audited epoch and kind of difference between the incremental and the full result.

    rows     the first differing rows of each epoch and kind, in order: epoch, what (see `incremental_versus_full`), a,
             b, maintained, recomputed, and `count`: how many there are of the kind at the epoch; why (optional): the
             landed rows from which the row follows, as lines of text.
    context  epochs: the audited ones; labels (optional): epoch -> label; reference: the third party that counted the
             triangles as well, if there is one; motifs: their names, if there are any; kinds: which of `OPTIONAL`
             were compared (names: at the last epoch).
    """
    third_party = context.get("reference")
    motifs, compared = context.get("motifs"), context.get("kinds", ())
    left_out = {kind: kind not in compared for kind in incremental_versus_full.OPTIONAL}
    left_out |= {"third_party": not third_party, "motif_at_vertex": not motifs}
    left_out["motifs"] |= not motifs and not any(row["what"] == "motifs" for row in rows)
    wanted = [e for e in incremental_versus_full.EXPECTATIONS if not left_out.get(e.args["column"])]
    epochs = sorted({*context["epochs"], *(row["epoch"] for row in rows)})
    checks = _none_differs("differences", wanted, rows, epochs, ("names",), context.get("labels", {}))
    by = {"third_party": third_party}
    kinds = {expectation.name: expectation.args["column"] for expectation in wanted}
    for check in checks:
        check["observed"] += f" ({third_party})" if by.get(kinds[check["name"]]) else ""
    return checks


def check_proof(rows: Sequence[Mapping[str, Any]], context: dict[str, Any]) -> list[Check]:
    """Return a check for each epoch of a run and kind of proved result.

    rows     the rows that differ from the proof: epoch, what (see `proof`), a, b, maintained, recomputed, `count`: how
             many there are of the kind at the epoch; why (optional).
    context  epochs: those that the proof covers; labels (optional): epoch -> label; looked_at: the number of edges at
             which the proof looked; part: the part of the vertices that was recounted, as text, if any.
    """
    part = context.get("part")
    wanted = [e for e in proof.EXPECTATIONS if part or e.args["column"] not in proof.OPTIONAL]
    epochs = sorted({*context["epochs"], *(row["epoch"] for row in rows)})
    checks = _none_differs("proof", wanted, rows, epochs, proof.OPTIONAL, context.get("labels", {}))
    kinds = {expectation.name: expectation.args["column"] for expectation in wanted}
    for check in checks:
        if check["passed"] and kinds[check["name"]] == "facts":
            check["observed"] = f"looked at {context['looked_at']:,} edges in the run"
        if kinds[check["name"]] == "part":
            check["observed"] += f" in part {part}"
    return checks


def check_serving_tables(rows: Sequence[Mapping[str, Any]], context: dict[str, Any]) -> list[Check]:
    """Return a check for each epoch of `vertex_history`, and one for each of the other serving tables.

    rows     the differences: epoch, what (the table), a, b, maintained, recomputed, `count`.
    context  tables: those that exist; epochs: those that are checked; labels (optional): epoch -> label.
    """
    wanted = [e for e in serving_tables.EXPECTATIONS if e.args["column"] in context["tables"]]
    epochs = sorted({*context["epochs"], *(row["epoch"] for row in rows)})
    return (
        _none_differs("serving_tables", wanted, rows, epochs, serving_tables.OPTIONAL, context.get("labels", {}))
        if wanted
        else []
    )


def check_queries(rows: Sequence[Mapping[str, Any]], context: dict[str, Any]) -> list[Check]:
    """Return a check for each epoch at which declared queries were recomputed.

    rows     the differences: epoch, what (`query_rows`), a (the query), b (the row), maintained, recomputed, `count`;
             why (optional): the landed rows behind the row, as lines of text.
    context  epochs: those that were recomputed; labels (optional): epoch -> label.
    """
    counts: dict[int, dict[str, int]] = {}
    for row in rows:
        counts.setdefault(row["epoch"], {})[row["a"]] = row["count"]
    rows = [{**row, "count": sum(counts[row["epoch"]].values())} for row in rows]
    wanted, labels = incremental_versus_full.QUERY_EXPECTATIONS, context.get("labels", {})
    checks = _none_differs("queries", wanted, rows, sorted(context["epochs"]), (), labels)
    for check in checks:
        first = next((row for row in rows if row["epoch"] == check["epoch"]), None)
        if first is not None:
            copies = f"{first['maintained']} times, and {first['recomputed']} times when it is recomputed"
            why = "".join(f"; {line}" for line in first.get("why", ())[:3])
            check["observed"] += f"; the first: query {first['a']} has the row ({first['b']}) {copies}{why}"
    return checks


def _none_differs(
    name: str,
    wanted: Sequence[Expectation],
    rows: Sequence[Mapping[str, Any]],
    epochs: list[int],
    at_last: Sequence[str],
    labels: Mapping[int, Any],
) -> list[Check]:
    """Return a check per epoch and kind, where `rows` are the differences; kinds of `at_last` are judged at the last
    epoch.
    """
    import pandas as pd

    kinds = [expectation.args["column"] for expectation in wanted]
    first: dict[tuple[int, str], list[dict[str, Any]]] = {}
    counts: dict[tuple[int, str], int] = {}
    for row in rows:
        if row["what"] not in kinds:
            raise ValueError(f"unknown kind of difference: {row['what']!r}; the kinds are: {', '.join(kinds)}")
        epoch_and_kind = (row["epoch"], row["what"])
        counts[epoch_and_kind] = row["count"]
        key = "-".join(str(row[end]) for end in ("a", "b") if row[end] is not None)
        shown = {"key": key, "maintained": row["maintained"], "recomputed": row["recomputed"]}
        first.setdefault(epoch_and_kind, []).append(plain_row(shown) | ({"why": row["why"]} if "why" in row else {}))
    if not epochs:
        return []
    table = pd.DataFrame({"epoch": epochs} | {kind: [counts.get((e, kind), 0) for e in epochs] for kind in kinds})
    checks = []
    for rule_result in ExpectationRunner().judge_frame(name, table, wanted):
        kind = rule_result.expectation.args["column"]
        # `rows` has only the first ones of many.
        failed = {epoch for epoch in epochs if counts.get((epoch, kind))}
        assert rule_result.passed == (not failed), (kind, failed)
        for epoch in epochs[-1:] if kind in at_last else epochs:
            wrong = counts.get((epoch, kind), 0)
            at_epoch = RuleResult(
                rule_result.expectation, epoch not in failed, wrong, wrong, first.get((epoch, kind), [])[:ROWS]
            )
            check = _make_check(at_epoch, epoch, labels)
            check["observed"] = f"{wrong:,} difference{'' if wrong == 1 else 's'}"
            checks.append(check)
    return sorted(checks, key=lambda check: check["epoch"])


def _make_check(rule_result: RuleResult, epoch: int, labels: Mapping[int, Any]) -> Check:
    expectation = rule_result.expectation
    return {
        "epoch": epoch,
        "suite": expectation.suite,
        "name": expectation.name,
        "severity": expectation.severity,
        "passed": rule_result.passed,
        "meaning": expectation.meaning,
        "remedy": expectation.remedy.replace("{epoch}", str(labels.get(epoch, epoch))),
        "observed": _format_observed(rule_result),
        "rows": rule_result.rows,
    }


def _check_at_epoch(rule_result: RuleResult, row: dict[str, Any], labels: Mapping[int, Any]) -> Check:
    """Return the result of one epoch, from the result on a frame with a row per epoch."""
    epoch = int(row["epoch"])
    here = [counterexample for counterexample in rule_result.rows if counterexample["epoch"] == epoch]
    judged = not rule_result.expectation.unjudged or plain_row(row)[rule_result.expectation.args["column"]] is not None
    return _make_check(RuleResult(rule_result.expectation, not here, len(here), 1, here, judged), epoch, labels)


def _format_observed(rule_result: RuleResult) -> str:
    if not rule_result.judged:
        return rule_result.expectation.unjudged
    if rule_result.total == 1 and rule_result.rows:
        shown, says = rule_result.expectation.show or tuple(rule_result.rows[0]), rule_result.expectation.row_text
        if says:
            return says.format_map(rule_result.rows[0])
        return ", ".join(f"{name.replace('_', ' ')} {rule_result.rows[0][name]}" for name in shown if name != "epoch")
    return f"{rule_result.wrong:,} of {rule_result.total:,} row{'' if rule_result.total == 1 else 's'}"
