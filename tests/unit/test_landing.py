"""Landing: raw files split into epochs, batches replaced or added to, nothing lost; digests follow the content."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings_file import settings_template
from altneu.pipeline.run import planning
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.state.ledger import Ledger


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home", create=True)


def raw(tmp_path: Path, text: str, name: str = "raw.txt") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def take(home: Home, files: list[Path], columns: list[str], **options: object) -> landing.LandReport:
    return landing.land(home, files, landing.LandOptions(tuple(columns), **options))  # type: ignore[arg-type]


def content(home: Home) -> dict[str, list[str]]:
    return {
        landed.label: sorted(line for file in landed.files for line in Path(file.location).read_text().splitlines()[1:])
        for landed in landing.list_batches(home).values()
    }


def test_by_time(home: Home, tmp_path: Path) -> None:
    home = home.declare_settings(epochs={"every": "1d"}, ingest={"max_bad_share": 0.5})
    path = raw(tmp_path, "1 2 0\n3 4 86399.5\n5 6 86400\n7 8 soon\n9 10 -1\n")
    report = take(home, [path], ["src", "dst", "ts"], time_column="ts")
    assert content(home) == {
        "1969-12-31": ["9,10,-1000000"],
        "1970-01-01": ["1,2,0", "3,4,86399500000"],
        "1970-01-02": ["5,6,86400000000"],
    }
    assert [(line, reason) for _, line, reason, _ in report.rejected] == [(4, "ts is 'soon', not a number")]
    assert report.rejected_file is not None and "soon" in report.rejected_file.read_text()


def test_one_epoch_replaced_and_added_to(home: Home, tmp_path: Path) -> None:
    first, second = raw(tmp_path, "1,2\n", "a.csv"), raw(tmp_path, "3,4\n", "b.csv")
    take(home, [first], ["src", "dst"], epoch=7)
    take(home, [second], ["src", "dst"], epoch=7, append=True)
    take(home, [second], ["src", "dst"], epoch=7, append=True)  # the same name again: a second file
    assert content(home) == {"7": ["1,2", "3,4", "3,4"]}
    take(home, [second], ["src", "dst"], epoch=7)
    assert content(home) == {"7": ["3,4"]}


def test_too_many_bad_rows_land_nothing(home: Home, tmp_path: Path) -> None:
    take(home, [raw(tmp_path, "1,2\n")], ["src", "dst"], epoch=1)
    with pytest.raises(AltneuError, match="line 2: dst is 'x', not an integer"):
        take(home, [raw(tmp_path, "1,2\n1,x\n")], ["src", "dst"], epoch=1)
    assert content(home) == {"1": ["1,2"]}
    with pytest.raises(AltneuError, match="no row could be read"):
        take(home, [raw(tmp_path, "# nothing\n")], ["src", "dst"], epoch=1)
    assert content(home) == {"1": ["1,2"]}


def test_wrong_columns(home: Home, tmp_path: Path) -> None:
    path = raw(tmp_path, "1,2,3\n")
    with pytest.raises(UsageError, match="dst is missing"):
        take(home, [path], ["src", "_", "_"], epoch=1)
    with pytest.raises(UsageError, match="no such column"):
        take(home, [path], ["src", "dst", "_"], time_column="ts", every="1d")
    assert (home.path / "altneu.toml").read_text() == settings_template() and not content(home)


def test_digests_follow_content(home: Home, tmp_path: Path) -> None:
    ledger = Ledger(home)
    path = home.landing / "epoch=3" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_text("src,dst\n1,2\n")

    def now() -> str:
        return landing.digest_batches(ledger, landing.list_batches(home).values())[3]

    first = now()
    path.rename(path.with_name("b.csv"))
    assert now() == first  # the name does not matter
    old = path.with_name("b.csv")
    old.write_text("src,dst\n1,3\n")
    os.utime(old, ns=(1, 1))
    second = now()
    assert second != first
    old.write_text("src,dst\n1,4\n")  # as long, and its clock goes back to the same time
    os.utime(old, ns=(1, 1))
    assert now() not in (first, second)
    old.unlink()
    assert now() == landing.EMPTY_DIGEST


def test_folders_that_are_no_epochs(home: Home) -> None:
    (home.landing / "epoch=tomorrow").mkdir(parents=True)
    with pytest.raises(AltneuError, match="tomorrow"):
        landing.list_batches(home)
    (home.landing / "epoch=tomorrow").rename(home.landing / "epoch=4")
    (home.landing / "epoch=4" / "notes.doc").touch()
    with pytest.raises(AltneuError, match=r"notes\.doc"):
        landing.list_batches(home)


BROKEN = {
    "rows.csv.gz": gzip.compress(b"src,dst\n" + b"1,2\n" * 5000)[:-30],
    "other.csv.gz": b"src,dst\n1,2\n",
    "rows.parquet": b"no parquet file at all",
    "rows.csv": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_stops_neither_an_estimate_nor_its_replacement(home: Home, tmp_path: Path, name: str) -> None:
    """Only a run reads it, and names it."""
    folder = home.landing / "epoch=7"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(BROKEN[name])
    ledger = Ledger(home)
    planned = forecast_run(ledger, planning.plan_epochs(ledger, [7]))
    assert 0 <= planned.rows < 100
    report = take(home, [raw(tmp_path, "1,2\n", "a.csv")], ["src", "dst"], epoch=7)
    assert (report.rows, report.replaced_epochs, content(home)) == (1, 1, {"7": ["1,2"]})
