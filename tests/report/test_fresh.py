"""Pages do not go on saying what is not true any more: after corrections, rollbacks, audits, rebuilds and failed runs
the pages of all epochs that changed are written, and no others; and every place says the same of an epoch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from altneu.pipeline import report
from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.report import epoch_document, page_writer
from tests.report.seed import DAY, Seed, Totals, audit, check, write
from tests.report.test_pages import Reader

ONE: Totals = {DAY: {"edges": 3, "triangles": 1}, DAY + 1: {"edges": 2}, DAY + 2: {"edges": 2}}
ALL = [DAY, DAY + 1, DAY + 2]


def three(seed: Seed) -> None:
    """Three days, published and audited one by one, with their pages."""
    for day in ALL:
        seed.run({day: (10, 0)}, {day: ONE[day]}, audit(day))
        write(seed.ledger, [day])


def text(seed: Seed, day: int) -> str:
    return Reader((seed.home.reports / f"epoch={seed.home.schedule.format_label(day)}.html").read_text()).text


def touched(seed: Seed) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in seed.home.reports.glob("epoch=*.html")}


def test_a_correction_of_the_first_epoch_rewrites_the_later_ones(seed: Seed) -> None:
    three(seed)
    assert all("Equal to a full recomputation" in text(seed, day) for day in ALL)
    seed.run({DAY: (7, 0)}, {DAY: {"edges": -1}}, audit(DAY))
    write(seed.ledger, [DAY])
    for day, edges in zip(ALL, (2, 4, 6), strict=True):
        found = epoch_document(seed.ledger, day)
        assert found["graph"]["measures"]["edges"]["value"] == edges
        assert found["state"] == ("good" if day == DAY else "unaudited")
        assert ("Equal to a full" in text(seed, day)) == (day == DAY)
        assert "at revision 4, from the database" in text(seed, day)
    assert "It was compared at revision 2 and was equal then; revision 4 may have changed it since." in text(
        seed, DAY + 1
    )
    seed.audit([*audit(DAY + 1), *audit(DAY + 2, "edge totals equal")])
    report.refresh_pages(seed.ledger)
    assert "Equal to a full recomputation" in text(seed, DAY + 1)


def test_a_rollback_rewrites_what_it_takes_back_and_what_comes_after(seed: Seed) -> None:
    three(seed)
    seed.run({DAY: (7, 0)}, {DAY: {"edges": -1}}, audit(DAY))
    write(seed.ledger, [DAY])
    seed.rollback(3)
    for day, edges in zip(ALL, (3, 5, 7), strict=True):
        assert epoch_document(seed.ledger, day)["graph"]["measures"]["edges"]["value"] == edges
        assert "at revision 5, from the database" in text(seed, day) and "Equal to a full" not in text(seed, day)
    assert "Rolled back: 7 rows became 10." in text(seed, DAY)
    index = Reader((seed.home.reports / "index.html").read_text()).text
    assert "Revision 5, a rollback, holds back the batches of 1 epoch (2004-07-01)" in index
    seed.rollback(1)
    assert epoch_document(seed.ledger, DAY + 1)["state"] == "empty"
    assert "Nothing is published for this epoch." in text(seed, DAY + 1)


def test_a_rebuild_makes_every_comparison_stale_and_a_difference_too(seed: Seed) -> None:
    three(seed)
    seed.audit(audit(DAY + 1, "edge totals"))
    report.refresh_pages(seed.ledger)
    assert "Do not use this epoch yet" in text(seed, DAY + 1) and "Equal to a full" in text(seed, DAY)
    seed.run({}, {}, audit(DAY + 2), kind="rebuild")
    write(seed.ledger, ALL)
    assert [epoch_document(seed.ledger, day)["state"] for day in ALL] == ["unaudited", "unaudited", "good"]
    assert "It was compared at revision 3 and differed then; revision 4 has computed it again since." in text(
        seed, DAY + 1
    )


def test_a_difference_counts_until_it_is_compared_again(seed: Seed) -> None:
    three(seed)
    seed.audit(audit(DAY + 1, "edge totals"))
    seed.run({DAY: (7, 0)}, {DAY: {"edges": -1}})
    found = epoch_document(seed.ledger, DAY + 1)
    assert found["state"] == "wrong" and not found["audit"]["fresh"]
    assert "at revision 3, and was not repeated since: edge totals equal" in found["verdict"]["headline"]
    seed.audit(audit(DAY + 1))
    assert epoch_document(seed.ledger, DAY + 1)["state"] == "good"


def test_only_pages_that_changed_are_written(seed: Seed) -> None:
    seed.good_days(40)
    write(seed.ledger, list(range(DAY, DAY + 40)))
    before = touched(seed)
    write(seed.ledger, [])
    assert touched(seed) == before
    seed.run({DAY + 37: (9, 0)}, {DAY + 37: {"edges": 1}}, audit(DAY + 37))
    write(seed.ledger, [DAY + 37])
    after = touched(seed)
    later = {f"epoch={seed.home.schedule.format_label(DAY + n)}.html" for n in (37, 38, 39)}
    assert {name for name in after if after[name] != before[name]} == later
    seed.audit(audit(DAY + 3))
    report.refresh_pages(seed.ledger)
    assert {name for name, at in touched(seed).items() if at != after[name]} == {"epoch=2004-07-04.html"}


def test_of_too_many_pages_the_older_ones_say_that_they_are_out_of_date(seed: Seed) -> None:
    seed.good_days(30)
    days = list(range(DAY, DAY + 30))
    write(seed.ledger, days)
    seed.run({DAY: (9, 0)}, {DAY: {"edges": 1}})
    write(seed.ledger, [DAY], limit=5)
    assert not any("Equal to a full recomputation. Nothing" in text(seed, day) for day in days)
    assert "altneu report 2004-07-01" in text(seed, DAY) and "out of date at revision 2" in text(seed, DAY)
    index = (seed.home.reports / "index.html").read_text()
    assert index.count(' old" href=') == 25 and "25 pages (dotted) are out of date" in index
    write(seed.ledger, days, limit=None)
    assert "pages (dotted)" not in (seed.home.reports / "index.html").read_text()
    assert "Not compared with a full recomputation since revision 2" in text(seed, DAY + 3)


def test_a_page_of_another_writer_or_version_is_written_anew(seed: Seed) -> None:
    three(seed)
    stale = seed.home.reports / "epoch=2004-07-02.html"
    good = stale.read_text()
    stale.write_text("<p>Yes: equal")
    os.utime(stale, ns=(1, 1))
    report.refresh_pages(seed.ledger)
    assert Reader(stale.read_text()).text.split("Written")[0] == Reader(good).text.split("Written")[0]
    (seed.home.reports / page_writer.MANIFEST).write_text("[no json")
    write(seed.ledger, [])
    assert "Equal to a full" in text(seed, DAY)


def test_a_page_that_cannot_be_written_stops_nothing(seed: Seed) -> None:
    seed.good_days(2)
    seed.home.reports.write_text("a file in its place")
    assert "NotADirectoryError" in (report.refresh_pages(seed.ledger, [DAY]) or "")


def test_a_warning_does_not_vanish_with_a_correction_of_an_earlier_epoch(seed: Seed) -> None:
    """Of the batch of an epoch itself it stays true; of the graph it is shown as of its revision."""
    rows = check(DAY + 2, "as many rows as usual", False, suite="volumes", severity="warning")
    grown = check(DAY + 2, "the edges grow as usual", False, suite="volumes", severity="warning")
    seed.run({day: (10, 0) for day in ALL}, ONE, [rows, *audit(DAY + 2)])
    again = check(DAY + 2, "the triangles grow as usual", suite="volumes", severity="warning")
    seed.run({DAY: (7, 0)}, {DAY: {"edges": -1}}, [again])
    found = epoch_document(seed.ledger, DAY + 2)
    kept = {one["name"]: one for one in found["checks"]}["as many rows as usual"]
    assert found["state"] == "warning" and kept["fresh"] and kept["counts"]
    index = Reader(write(seed.ledger, ALL)[0].read_text()).text
    assert "as many rows as usual: 3 of 10 rows" in index[: index.index("The graph over time")]

    seed.run({DAY + 2: (11, 0)}, {}, [grown])
    found = epoch_document(seed.ledger, DAY + 2)
    states = {one["name"]: (one["passed"], one["fresh"], one["counts"]) for one in found["checks"]}
    assert states["as many rows as usual"] == (False, False, False)  # of a batch that is not there any more
    seed.run({DAY: (8, 0)}, {DAY: {"edges": 1}})
    found = epoch_document(seed.ledger, DAY + 2)
    states = {one["name"]: (one["passed"], one["fresh"], one["counts"]) for one in found["checks"]}
    assert states["the edges grow as usual"] == (False, False, True) and found["state"] == "warning"
    write(seed.ledger, [])
    assert "(at revision 3, about what was published then)" in text(seed, DAY + 2)


def test_status_page_and_index_say_the_same(seed: Seed) -> None:
    three(seed)
    seed.audit(audit(DAY + 1, "edge totals"))
    seed.run({DAY + 2: (7, 0)}, {DAY + 2: {"edges": -1}})
    _, rows = list_epoch_rows(seed.ledger)
    assert [(row["audited"], row["audit"]) for row in rows] == [
        (True, "equal"),
        (False, "differs"),
        (None, "equal at revision 3, may have changed since"),
    ]
    for row in rows:
        says = epoch_document(seed.ledger, row["epoch"])["audit"]["says"]
        assert {"equal": True, "differs": False, "stale": None}[says] == row["audited"]


def test_a_run_that_others_overtook_makes_nothing_red(seed: Seed) -> None:
    three(seed)
    seed.run({DAY: (9, 0)}, {}, error="superseded by revision 4", state="superseded")
    assert epoch_document(seed.ledger, DAY)["state"] == "good"
    run_id = "late"  # it began on revision 3, another one published the epoch, and then it failed
    seed.ledger.runs.create(run_id, 3, epochs=[DAY], config={})
    seed.run({DAY: (9, 0)}, {}, audit(DAY))
    seed.ledger.runs.finish(run_id, "failed", "it lost")
    assert epoch_document(seed.ledger, DAY)["state"] == "good"
    seed.run({DAY: (5, 0)}, {}, error="interrupted during truss", state="interrupted")
    assert epoch_document(seed.ledger, DAY)["state"] == "good"
    seed.run({DAY + 3: (5, 0)}, {}, error="interrupted during truss", state="interrupted")
    found = epoch_document(seed.ledger, DAY + 3)
    assert found["state"] == "running" and "was interrupted" in found["verdict"]["headline"]
    seed.run({DAY: (5, 0)}, {}, error="ingest: no space")
    assert epoch_document(seed.ledger, DAY)["state"] == "failed"


def test_a_correction_is_looked_at_as_one(seed: Seed) -> None:
    seed.good_days(10)
    seed.run({DAY + 4: (7, 2)}, {DAY + 4: {"edges": -6, "triangles": -1}, DAY + 7: {"edges": 6}}, audit(DAY + 4))
    found = epoch_document(seed.ledger, DAY + 4)
    was = 20 + (DAY + 4) % 5
    assert found["verdict"]["headline"].startswith(f"Corrected: {was} rows became 7. Loaded well.")
    assert f"in place of {was} rows of revision 1" in found["verdict"]["answers"]["loaded"]
    assert found["landed"]["moved"] == {
        "revision": 2,
        "together": 1,
        "spans": [
            {"first": "2004-07-06", "last": "2004-07-07", "epochs": 2, "vertices": 0, "edges": -6, "triangles": -1},
            {"first": "2004-07-08", "last": "2004-07-10", "epochs": 3, "vertices": 0, "edges": 0, "triangles": -1},
        ],
        "others": 0,
    }
    page = Reader(write(seed.ledger, [DAY + 4])[1].read_text()).text
    assert "Later epochs that it changed" in page and "2004-07-06 to 2004-07-07" in page


@pytest.mark.parametrize("epoch", [12_523_000_000, -10_000_000, 3_000_000_000_000])
def test_epochs_beyond_the_calendar_are_drawn(seed: Seed, epoch: int) -> None:
    seed.run({DAY: (3, 0), epoch: (3, 0)}, {min(DAY, epoch): {"edges": 3, "truss2": 3}}, audit(epoch))
    index, *rest = write(seed.ledger, [DAY, epoch])
    assert all(
        "Equal to a full" in Reader(path.read_text()).text
        for path in rest
        if seed.home.schedule.format_label(epoch) in path.name
    )
    assert seed.home.schedule.format_label(epoch) in index.read_text()


def test_the_newest_runs_have_kind_and_time_and_the_landing_is_looked_at(seed: Seed, tmp_path: Path) -> None:
    seed.good_days(2)
    folder = seed.home.landing / "epoch=2004-08-01"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text("src,dst\n1,2\n")
    text = Reader(write(seed.ledger, [])[0].read_text()).text
    runs = text[text.index("The newest runs") :]
    assert "Kind" in runs and "run0001" in runs and " s" in runs
    assert "1 epoch not published yet: 2004-08-01." in text
    assert "2 epochs published, and not in the landing any more: 2004-07-01, 2004-07-02." in text
    assert "The landing was looked at" in text


def test_a_rollback_to_the_empty_state_leaves_pages_that_say_so(seed: Seed) -> None:
    three(seed)
    rollback.roll_back(seed.ledger, 0)
    for day in ALL:
        assert epoch_document(seed.ledger, day)["state"] == "empty"
        assert "Nothing is published for this epoch." in text(seed, day)
    assert "Nothing is published." in Reader((seed.home.reports / "index.html").read_text()).text
