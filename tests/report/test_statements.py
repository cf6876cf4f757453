"""Every statement of a document, of the index and of `status` has a source: after random histories each is compared
with what the history itself says (see `world`). A field without a source fails. And no page is out of date.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from altneu.expectations import volumes
from altneu.pipeline import report
from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.report import epoch_document
from altneu.pipeline.report import page_writer as files
from altneu.pipeline.report.check_page import known_checks
from altneu.pipeline.report.epoch_page import describe_epoch
from altneu.pipeline.report.html import render_epoch_page
from altneu.pipeline.report.html.formatting import STATES, format_number, format_signed
from altneu.pipeline.report.page_queries import ReportState
from altneu.pipeline.state import clock
from altneu.pipeline.state.epoch_status import list_epoch_statuses
from altneu.pipeline.state.incidents import STAGES as STAGES_FAIL
from altneu.pipeline.state.incidents import list_incidents
from altneu.pipeline.state.stage_results import from_json, to_json, without_version
from tests.report.seed import DAILY, write
from tests.report.test_pages import unwritten
from tests.report.world import DAY, DAYS, SUMS, Check, ReportWorld, match, positive

STAGES = ("ingest", "edges", "triangles", "truss", "audit")
COMMANDS = {
    "failed": "altneu run {}",
    "running": "altneu run {}",
    "unaudited": "altneu audit {}",
    "empty": "altneu land FILE --columns src,dst --epoch {}",
    "good": None,
    "warning": None,
}


def facts(stage: str) -> dict[str, Any]:
    """What a stage of the seeded runs said."""
    return without_version(to_json(from_json(stage, {"rows": 3})))


def axis(world: ReportWorld) -> list[int]:
    known = {epoch for one in world.tried for epoch in one.epochs}
    known |= {*world.newest.batches, world.newest.frontier} if world.newest else set()
    return list(range(min(known), max(known) + 1)) if known else []


def final(world: ReportWorld, epoch: int) -> bool:
    return world.newest is not None and epoch <= world.newest.frontier


def audited(world: ReportWorld, epoch: int) -> dict[str, Any]:
    _, full, proof = world.newest_checks(epoch)
    since = world.may_have_changed(epoch, 0)
    one, other = (found_of(world, epoch, checks) for checks in (full, proof))
    says = "none"
    if full:
        passed = all(check.row["passed"] for check in full)
        says = ("stale" if one["recomputed"] else "differs") if not passed else "equal" if one["fresh"] else "stale"
    if proof and says in ("none", "stale"):
        says = "proved" if other["fresh"] else "stale"
    if says in ("equal", "proved"):
        assert world.right(epoch), f"it says {says}, and is not"
    return {"says": says, **one, "since": since[-1] if since else None, "proof": other}


def found_of(world: ReportWorld, epoch: int, found: list[Check]) -> dict[str, Any]:
    checks = [world.told(one, epoch) | {"counts": None} for one in found]
    for check in checks:
        check["counts"] = not check["passed"] and not world.recomputed(check["revision"])
    if not found:
        return {"fresh": False, "recomputed": False, "revision": None, "at": None, "checks": []}
    revision = found[0].revision
    fresh, recomputed = not world.may_have_changed(epoch, revision), world.recomputed(revision)
    return {"fresh": fresh, "recomputed": recomputed, "revision": revision, "at": found[0].at, "checks": checks}


def judged(world: ReportWorld, epoch: int) -> str:
    tried, batch, says = world.pending(epoch), world.batch_of(epoch), audited(world, epoch)["says"]
    counting = [world.told(one, epoch) for one in world.newest_checks(epoch)[0]]
    if tried and tried.state == "failed":
        return "failed"
    if batch is None:
        return "running" if tried else "empty"
    if says == "differs":
        return "wrong"
    if any(one["counts"] for one in counting):
        return "warning"
    return "good" if says in ("equal", "proved") else "unaudited"


def graph(world: ReportWorld, epoch: int) -> dict[str, Any] | None:
    if not final(world, epoch):
        return None
    now, then = world.shown(world.newest, epoch), world.shown(world.newest, epoch - 1)
    measures = {
        name: {"value": now[name], "before": then[name], "change": now[name] - then[name]}
        for name in (*SUMS, "max_trussness")
    }
    trusses = []
    for k in range(2, max({1, *now["trusses"], *then["trusses"]}) + 1):
        size, was = (sum(n for at, n in point["trusses"].items() if at >= k) for point in (now, then))
        trusses.append({"k": k, "exactly": now["trusses"].get(k, 0), "size": size, "change": size - was})
    history = [
        {"revision": one.revision, "at": one.at, **one.sums(epoch)}
        for one in world.revisions
        if any(e <= epoch for e in one.diffs)
    ]
    newest = [one.revision for one in world.revisions if any(e <= epoch for e in world.reach(one))]
    nothing: dict[str, Any] = {"motifs": [], "top_vertices": [], "top_edges": [], "entered_core": []}
    return {
        "measures": measures,
        "trusses": trusses,
        "revisions": history[-30:],
        "revision": newest[-1] if newest else 0,
        **nothing,
    }


def landed(world: ReportWorld, epoch: int) -> dict[str, Any] | None:
    batch = world.batch_of(epoch)
    if batch is None or world.newest is None:
        return None
    past = [(e, b) for e, b in sorted(world.newest.batches.items()) if e < epoch]
    band = volumes.usual_rows([(e, len(b.edges)) for e, b in past], epoch, 7)
    assert (band is None) == (len(past) < volumes.LEAST)
    low, high = band.row_bounds if band else (None, None)
    middle = round(math.expm1(band.middle)) if band else None
    history = {"epochs": len(past), "low": low, "high": high, "middle": middle}
    history["uneven"] = band is not None and band.high - band.low > math.log(100)
    mine = [one for one in world.revisions if epoch in one.epochs]
    former = None
    if len(mine) > 1:
        old = mine[-2].batches.get(epoch)
        if (old.digest if old else "") != batch.digest:
            former = {
                "revision": mine[-2].revision,
                "at": mine[-2].at,
                "rows": len(old.edges) if old else 0,
                "quarantined": old.bad if old else 0,
                "taken_back": old is None,
                "by": mine[-1].kind,
            }
    return {
        "files": 1,
        "rows": len(batch.edges),
        "quarantined": batch.bad,
        "share": batch.bad / (len(batch.edges) + batch.bad),
        "history": history | {"quarantined": sum(b.bad for _, b in past)},
        "former": former,
        "moved": expect_later_changes(world, epoch, mine[-1].revision),
        "quarantine_sample": [],
    }


def expect_later_changes(world: ReportWorld, epoch: int, revision: int) -> Any:
    """Return what the page has to say of how a revision has changed the epochs after `epoch`; None: of nothing."""
    one, newest = world.of(revision), world.newest
    assert newest
    until = min(world.of(revision - 1).frontier, newest.frontier) if revision > 1 else epoch
    if until <= epoch:
        return None
    each = {e: one.sums(e) for e in range(epoch + 1, until + 1)}

    def spans(found: list[dict[str, Any]]) -> bool:
        told = {}
        for span in found:
            first = world.seed.home.schedule.parse_epoch(span["first"])
            last = first + span["epochs"] - 1
            assert world.label(last) == span["last"]
            told |= {e: {name: span[name] for name in SUMS} for e in range(first, last + 1)}
        return told == {e: sums for e, sums in each.items() if any(sums.values())}

    return {"revision": revision, "together": len(one.epochs), "spans": spans, "others": 0}


def run_of(world: ReportWorld, epoch: int) -> tuple[Any, Any]:
    """The run that the page shows, and the failed one among them."""
    tried, batch = world.pending(epoch), world.batch_of(epoch)
    attempts = {one["run_id"]: one for one in world.attempts(epoch)}
    failed = None
    if tried and (tried.state == "failed" or batch is None):
        shown = attempts[tried.run_id]
        failed = {**shown, "checks": []} if tried.state == "failed" else None
    elif batch:
        shown = attempts[next(one.run_id for one in reversed(world.revisions) if epoch in one.epochs)]
    else:
        return None, None
    stages = [{"stage": name, "state": "done", "seconds": positive, "facts": facts(name)} for name in STAGES]
    of_run = {one.row["epoch"] for one in world.checks if one.run_id == shown["run_id"]}
    suites = {
        one.row["epoch"]
        for one in world.checks
        if one.run_id == shown["run_id"] and one.row["suite"] not in ("incremental_versus_full", "proof")
    }
    assert suites <= of_run
    return {
        **shown,
        "stages": [] if shown["kind"] == "rollback" else stages,
        "checked_epochs": [world.label(e) for e in sorted(suites)[-3:]],
    }, failed


def expected(world: ReportWorld, epoch: int) -> dict[str, Any]:
    """The document of an epoch, from the history alone."""
    newest, batch, all_ = world.newest, world.batch_of(epoch), axis(world)
    before = [e for e in all_ if e < epoch][-1:]
    after = [e for e in all_ if e > epoch][:1]
    state, seen, (run, failed) = judged(world, epoch), graph(world, epoch), run_of(world, epoch)
    order = ["critical", "warning", "info"]
    checks = [world.told(one, epoch) for one in world.newest_checks(epoch)[0]]
    checks.sort(key=lambda c: (c["passed"], order.index(c["severity"]), c["suite"], c["name"]))
    trend = []
    for e in [e for e in all_ if e <= epoch][-30:]:
        there = world.batch_of(e)
        if final(world, e):
            rows = {"rows": len(there.edges) if there else 0, "bad_rows": there.bad if there else 0}
            point = world.shown(newest, e)
            trend.append({"epoch": e, "label": world.label(e), **rows, **point, "motifs": {}})
    audit, here, tried = audited(world, epoch), landed(world, epoch), world.pending(epoch)

    def headline(said: str) -> bool:
        for says, words in (("equal", "qual to a full recomputation"), ("proved", "roved at this epoch")):
            assert (words in said) == (state in ("good", "warning") and audit["says"] == says), said
        former = here["former"] if here and state != "failed" else None
        told = "" if not former else "Published again" if former["taken_back"] else "Corrected: "
        told = "Rolled back: " if former and former["by"] == "rollback" and not former["taken_back"] else told
        if former and not former["taken_back"] and former["rows"] != here["rows"]:
            told += f"{format_number(former['rows'])} row"
        assert said.startswith(told) and (
            bool(told) == any(w in said for w in ("Corrected:", "Rolled back:", "again af"))
        )
        return {
            "failed": "it ended failed" in said,
            "running": "was interrupted" in said,
            "empty": "Nothing is published" in said,
            "wrong": "Do not use this epoch yet" in said,
            "warning": "warned" in said,
            "unaudited": "Not compared" in said,
            "good": "Loaded well" in said,
        }[state]

    def trust(said: str) -> bool:
        if state == "failed" and here is None:
            return "nothing was published" in said
        start = {"none": "Not compared", "equal": "Yes: recomputed", "proved": "Yes: proved", "differs": "No: "}
        start["stale"] = "It was compared at" if audit["checks"] else "It was proved at"
        passed = sum(1 for c in checks if c["passed"] and c["fresh"])
        counting = sum(1 for c in checks if c["counts"])
        others = f"{format_number(passed)} other check" in said or not passed + counting
        return said.startswith(start[audit["says"]]) and others and (not counting or f"{counting} failed" in said)

    def changed(said: str) -> bool:
        if seen is None:
            return said.startswith("Nothing")
        steps = [(name, seen["measures"][name]["change"]) for name in SUMS]
        top = seen["measures"]["max_trussness"]
        words = {name: {1: one, -1: one} for name, one in zip(SUMS, ("vertex", "edge", "triangle"), strict=True)}
        told = all(
            bool(re.search(rf"{re.escape(format_signed(n))} {words[name].get(n, name)}\b", said)) == bool(n)
            for name, n in steps
        )
        return told and (f"{top['before']} → {top['value']}" in said) == bool(top["change"])

    def loaded(said: str) -> bool:
        if here is None:
            return said.startswith("No: the run failed") if state == "failed" else said == "Nothing is published of it."
        if here["former"] and not here["former"]["taken_back"]:
            assert f"in place of {format_number(here['former']['rows'])} row" in said
        past = here["history"]
        if past["low"] is not None:
            how = "More" if here["rows"] > past["high"] else "Fewer" if here["rows"] < past["low"] else "As many"
            assert f"{how} rows {'as' if how == 'As many' else 'than'} usual" in said
        return f"{format_number(here['rows'])} row" in said and ("none in quarantine" in said) == (
            not here["quarantined"]
        )

    command = COMMANDS.get(state, lambda said: said and said.startswith(("altneu repair", "altneu audit")))
    return {
        "epoch": epoch,
        "label": world.label(epoch),
        "state": state,
        "weekday": f"{world.seed.home.schedule.start_of(epoch):%A}",
        "previous": world.label(before[0]) if before else None,
        "before": world.label(before[0]) if before else None,
        "next": world.label(after[0]) if after else None,
        "revision": batch.revision if batch else None,
        "published_at": world.of(batch.revision).at if batch else None,
        "frontier": world.label(newest.frontier) if newest else None,
        "final": final(world, epoch),
        "written": {"revision": newest.revision if newest else 0, "at": lambda at: at > (newest.at if newest else "")},
        "landed": here,
        "graph": seen,
        "checks": checks,
        "audit": audit,
        "failed_run": failed,
        "interrupted": tried is not None and tried.state == "interrupted",
        "held": None,
        "queries": [],
        "approval": None,
        "run": run,
        "runs": world.attempts(epoch)[-30:],
        "trend": trend,
        "verdict": {
            "headline": headline,
            "command": command.format(world.label(epoch)) if isinstance(command, str) else command,
            "answers": {"loaded": loaded, "changed": changed, "trust": trust, "todo": bool},
        },
    }


def assert_all_documents(world: ReportWorld) -> None:
    """Compare every document, the index, `status` and every page in the reports with what the history says."""
    home, ledger = world.seed.home, world.seed.ledger
    epochs = list(range(DAY - 1, DAY + DAYS + 1))
    state = ReportState(ledger, epochs)  # all at once, as the files are written; and one alone, as on request
    documents = {epoch: describe_epoch(state, epoch, clock.timestamp()) for epoch in epochs}
    alone = epoch_document(ledger, world.dice.choice(epochs))
    assert alone | {"written": None} == documents[alone["epoch"]] | {"written": None}
    for epoch, found in documents.items():
        match(expected(world, epoch), found, world.label(epoch))
    index(world, documents)
    status(world, documents)
    former(world, documents)
    names = {path.name for path in home.reports.glob("epoch=*.html")}
    for epoch, found in documents.items():
        path = home.reports / report.page_name(home, epoch)
        if path.exists():
            path.with_suffix(".now").write_text(
                render_epoch_page(found, names.__contains__, known_checks(world.seed.ledger))
            )
            assert unwritten(path) == unwritten(path.with_suffix(".now")), f"{path.name} is out of date"


def former(world: ReportWorld, documents: dict[int, dict[str, Any]]) -> None:
    """What a revision said of its epochs while it was the newest is what is said of it later."""
    newest = world.newest.revision if world.newest else 0
    tried = any(one.parent == newest for one in world.tried)  # what is said then is of that, not of the revision
    for epoch in world.newest.batches if world.newest else ():
        world.said.pop((newest, epoch), None)
        if not tried:
            world.said[newest, epoch] = {**documents[epoch], "written": None}
    before = [key for key in world.said if key[0] < newest]
    for revision, epoch in world.dice.sample(before, min(len(before), 2)):
        found = epoch_document(world.seed.ledger, epoch, revision)
        assert found.pop("former") == {"revision": revision, "newest": newest}
        assert {**found, "written": None} == world.said[revision, epoch], f"{world.label(epoch)} at {revision}"


def index(world: ReportWorld, documents: dict[int, dict[str, Any]]) -> None:
    home, ledger = world.seed.home, world.seed.ledger
    stand = list_epoch_statuses(ledger, ledger.revisions.get())
    there = files.ReportIndex(ledger, stand, files.PageStore(home))
    every = list_incidents(ledger)
    found = files.index_document(ledger, stand, "now", there.shown_state, {"at": "then", "missing": []}, every)
    by_check = {
        (one.first.suite, one.first.name): one for one in every if one.is_open and one.first.suite != STAGES_FAIL
    }
    assert {key: set(one.epochs) for key, one in by_check.items()} == failing(world)
    broken = {one.run_id for one in every if one.is_open for one in one.open_failures if one.suite == STAGES_FAIL}
    assert broken <= {one.run_id for one in world.tried if one.state == "failed"}
    assert {t.run_id for e in documents if (t := world.pending(e)) and t.state == "failed"} <= broken
    epochs = []
    for epoch in axis(world):
        one = documents[epoch]
        measures = one["graph"]["measures"] if one["graph"] else {}
        needs = STATES[one["state"]].attention
        epochs.append(
            {
                "epoch": epoch,
                "label": one["label"],
                "state": one["state"],
                "audit": one["audit"]["says"],
                "why": bool if needs else None,
                "rows": one["landed"]["rows"] if one["landed"] else None,
                "bad_rows": one["landed"]["quarantined"] if one["landed"] else None,
                "page": "new" if (home.reports / there.page_name(epoch)).exists() else None,
                **{name: measures[name]["value"] if measures else None for name in (*SUMS, "max_trussness")},
            }
        )
    newest, states = world.newest, [entry["state"] for entry in epochs]
    back: dict[int, list[int]] = {}
    for epoch in documents:
        last = [one for one in world.revisions if epoch in one.epochs][-1:]
        if last and last[0].kind == "rollback":
            back.setdefault(last[0].revision, []).append(epoch)
    told = [
        {"revision": r, "epochs": len(e), "first": world.label(min(e)), "last": world.label(max(e))}
        for r, e in sorted(back.items(), reverse=True)
    ]
    everything = {one.run_id: one for one in (*world.revisions, *world.tried)}
    runs = sorted((ledger.runs.get(run_id) for run_id in everything), key=lambda row: row.started_at, reverse=True)[:10]
    match(
        {
            "epochs": epochs,
            "older": 0,
            "counts": {name: states.count(name) for name in STATES if name in states},
            "attention": lambda entries: (
                [e["epoch"] for e in entries] == [e["epoch"] for e in reversed(epochs) if e["why"]]
            ),
            "old_pages": 0,
            "revision": newest.revision if newest else 0,
            "published_at": newest.at if newest else None,
            "frontier": world.label(newest.frontier) if newest else None,
            "seconds": 86_400,
            "starts": {epoch: home.schedule.start_of(epoch) for epoch in axis(world)},
            "headline": lambda said: (
                ("each equal" in said or "each proved" in said)
                == (bool(newest and newest.batches) and not {"failed", "wrong", "warning", "unaudited"} & {*states})
            ),
            "trend": lambda trend: [e["epoch"] for e in trend] == [e for e in axis(world) if final(world, e)],
            "runs": [
                world.attempt(
                    row.run_id,
                    getattr(everything[row.run_id], "state", "published"),
                    getattr(everything[row.run_id], "error", None),
                    0 if row.kind == "rebuild" else len(everything[row.run_id].epochs),
                    getattr(everything[row.run_id], "revision", None),
                    row.kind,
                )
                for row in runs
            ],
            "revisions": [
                {
                    "revision": one.revision,
                    "published_at": one.at,
                    "kind": one.kind,
                    "epochs": 0 if one.kind == "rebuild" else len(one.epochs),
                }
                for one in reversed(world.revisions)
            ],
            "held_back": told,
            "landing": {"at": "then", "missing": []},
            "incidents": lambda listed: (
                [one["incident"] for one in listed] == [one.identifier for one in every if one.is_open]
            ),
            "closed": lambda listed: all(one["state"] == "closed" and one["closed_at"] for one in listed),
            "checks": lambda listed: {(c["suite"], c["name"]) for c in listed if c["fails"]} == {*by_check},
            "written": {"revision": newest.revision if newest else 0, "at": "now"},
        },
        found,
        "index",
    )


def failing(world: ReportWorld) -> dict[tuple[str, str], set[int]]:
    """Check → the epochs at which it fails now."""
    out: dict[tuple[str, str], set[int]] = {}
    for epoch in range(DAY, DAY + DAYS):
        others, full, _ = world.newest_checks(epoch)
        counting = [one for one in others if world.told(one, epoch)["counts"]]
        counting += [one for one in full if not one.row["passed"] and not world.recomputed(one.revision)]
        for one in counting:
            out.setdefault((one.row["suite"], one.row["name"]), set()).add(epoch)
    return out


def status(world: ReportWorld, documents: dict[int, dict[str, Any]]) -> None:
    """What `status` and the page in Airflow list of each published epoch; nothing is landed here."""
    _, rows = list_epoch_rows(world.seed.ledger)
    found = {row["epoch"]: row for row in rows}
    assert {*found} == {*(world.newest.batches if world.newest else ())}
    for epoch, row in found.items():
        one = documents[epoch]
        says = one["audit"]["says"]
        told = None if says == "none" else says
        decides = one["audit"] if one["audit"]["checks"] else one["audit"]["proof"]
        if says in ("stale", "differs") and not decides["fresh"]:
            passed = all(check["passed"] for check in decides["checks"])
            what = "differed" if not passed else "equal" if decides is one["audit"] else "proved"
            told = f"{what} at revision {decides['revision']}, may have changed since"
        match(
            {
                "epoch": epoch,
                "label": one["label"],
                "state": "gone",
                "files": 0,
                "rows": one["landed"]["rows"],
                "revision": one["revision"],
                "audited": {"equal": True, "proved": True, "differs": False}.get(says),
                "audit": told,
                "error": None,
            },
            row,
            f"status {one['label']}",
        )


def history(path: Path, seed: int, steps: int, toml: str = DAILY) -> None:
    world, story = ReportWorld.make(path, seed, toml), []
    try:
        for _ in range(steps):
            story.append(world.step())
            newest = world.tried[-1:] if story[-1].startswith(("fail", "stop", "lose")) else world.revisions[-1:]
            wanted = [epoch for one in newest for epoch in one.epochs]
            write(world.seed.ledger, [e for e in wanted if world.dice.random() < 0.8])
            assert_all_documents(world)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, after {'; '.join(story)}: {error}") from error


@pytest.mark.law(12)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_every_statement_has_a_source(tmp_path: Path, seed: int) -> None:
    history(tmp_path, seed, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_statement_has_a_source_after_long_histories(tmp_path: Path, seed: int) -> None:
    history(tmp_path, seed, 30)


def test_a_field_without_a_source_is_told() -> None:
    with pytest.raises(AssertionError, match=r"'new'.*without a source"):
        match({"old": 1}, {"old": 1, "new": 2})
