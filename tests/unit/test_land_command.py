"""`altneu land` tells what it understood and what it replaces; what is refused changes nothing."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from altneu.pipeline import cli, landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import batch_files
from altneu.pipeline.landing.epoch_states import list_epoch_rows
from altneu.pipeline.state.ledger import Ledger
from tests import seeds


class Land:
    """The command on a home of its own."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.place, self.capsys = place / "home", place, capsys

    def file(self, text: str, name: str = "raw.csv") -> str:
        (self.place / name).write_text(text)
        return str(self.place / name)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(self.home), *arguments])
        shown = self.capsys.readouterr()
        return int(ended.value.code or 0), shown.out + shown.err

    def content(self) -> dict[str, list[str]]:
        found = landing.list_batches(Home.open(self.home)).values()
        return {
            each.label: [line for f in each.files for line in Path(f.location).read_text().splitlines()[1:]]
            for each in found
        }

    def state(self) -> dict[str, bytes]:
        """Every file of the home but locks and the database."""
        files = [path for path in self.home.rglob("*") if path.is_file() and path.name != "lock"]
        return {str(f.relative_to(self.home)): f.read_bytes() for f in files if not f.name.startswith("altneu.db")}


@pytest.fixture
def land(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Land:
    return Land(tmp_path, capsys)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_of_times_is_found_and_told(land: Land, unit: str) -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    days = [datetime(rng.randrange(1990, 2100), 5, 3, tzinfo=UTC) + timedelta(seconds=n) for n in range(20)]
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    rows = "".join(f"{n},{n + 1},{round(day.timestamp()) * ticks}\n" for n, day in enumerate(days))
    code, shown = land("land", land.file(rows), "--columns", "src,dst,ts", "--time", "ts", "--every", "1d")
    words = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    assert code == 0 and f"ts: {words[unit]} since 1970" in shown
    assert set(land.content()) == {f"{day:%Y-%m-%d}" for day in days}
    seq = {int(line.split(",")[2]) for lines in land.content().values() for line in lines}
    assert seq == {round(day.timestamp()) * 10**6 for day in days}


def test_the_unit_is_that_of_most_rows_of_all_files(land: Land) -> None:
    first = land.file("".join(f"1,{n},{1000 + n}\n" for n in range(5)), "a.csv")
    other = land.file("".join(f"2,{n},{1082040961000 + n}\n" for n in range(400)), "b.csv")
    code, shown = land("land", first, other, "--columns", "src,dst,ts", "--time", "ts", "--every", "1d")
    assert code == 0 and "milliseconds" in shown and "5 line(s) could not be read" in shown
    assert "looks like seconds" in shown and list(land.content()) == ["2004-04-15"]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["99999999999999999999"], "outside the years 1900 to 2200"),
        (["1082040961", "1082040961000"], "outside the years"),
        (["20040415", "20040416"], "--time-format %Y%m%d"),
        (["15.04.2004"], "neither a number nor an ISO 8601 time"),
        (["2004-04-15", "1777-01-01"], "outside the years"),
    ],
)
def test_times_that_cannot_be_meant(land: Land, cells: list[str], says: str) -> None:
    rows = "".join(f"1,2,{cell}\n" for cell in cells)
    code, shown = land("land", land.file(rows), "--columns", "src,dst,ts", "--time", "ts", "--every", "1d")
    assert code in (1, 2) and says in shown and not land.home.exists()


def test_a_unit_that_is_named_may_use_the_whole_calendar(land: Land) -> None:
    file = land.file(f"1,2,{250_000_000_000}\n3,4,-62000000000\n")
    words = ["land", file, "--columns", "src,dst,t", "--time", "t", "--time-unit", "s", "--every", "1d"]
    code, shown = land(*words)
    assert (code, land.home.exists()) == (2, False) and "0005-04-19: 100 years or more from today" in shown
    code, shown = land(*words, "--yes")
    assert code == 0, shown
    home = Home.open(land.home)
    for epoch, batch in landing.list_batches(home).items():
        assert home.schedule.parse_epoch(batch.label) == epoch and home.schedule.has_date(epoch)
    code, shown = land("land", land.file("1,2,1e12\n"), "--columns", "src,dst,t", "--time", "t", "--time-unit", "s")
    assert code == 1 and "outside the years 1 to 9999" in shown


# numbers that are no seconds, what is said of the first, and what decides
NUMBERS = [
    (["20040515123000", "20040516000000"], "would be 1970-08-20", "--time-format %Y%m%d%H%M%S", "2004-05-15"),
    (["20040515123000123"], "is 2004-05-15 12:30:00.123000 as %Y", "--time-format %Y%m%d%H%M%S%f", "2004-05-15"),
    (["200405151230"], "would be 1976-05-08", "--time-format %Y%m%d%H%M", "2004-05-15"),
    (["2004051512"], "would be 2033-07-", "--time-format %Y%m%d%H", "2004-05-15"),
    (["20040515", "20040516", "0"] * 7, "would be 1970-08-20", "--time-format %Y%m%d", None),
    (["20040515", "20040516"] * 20 + ["0"], "would be 1970-08-20", "--time-format %Y%m%d", "2004-05-15"),
    (["20040515.0"], "would be 1970-08-20", "--time-format %Y%m%d", "2004-05-15"),
    (["200405"], "would be 1970-01-03", "--time-format %Y%m", "2004-05-01"),
    (["990515"], "is 1999-05-15 00:00:00 as %y%m%d", "--time-format %y%m%d", "1999-05-15"),
    (["2004"], "would be 1970-01-01 00:33:24", "--time-format %Y", "2004-01-01"),
    (["38122.5", "38123"], "is 2004-05-15 12:00:00 as the days of a spreadsheet", "--time-unit s", "1970-01-01"),
    (["2004.37"], "is a day of 2004 as years with a fraction", "--time-unit s", "1970-01-01"),
]


@pytest.mark.parametrize(("cells", "says", "then", "first"), NUMBERS)
def test_dates_as_numbers_are_no_seconds_unless_somebody_says_so(
    land: Land, cells: list[str], says: str, then: str, first: str | None
) -> None:
    words = ["land", land.file("".join(f"1,2,{cell}\n" for cell in cells)), "--time", "ts", "--every", "1d"]
    words += ["--columns", "src,dst,ts"]
    code, shown = land(*words)
    if first is None:  # a third of the numbers is no date: they are what they seem
        assert code == 0 and set(land.content()) == {"1970-08-20", "1970-01-01"}
        return
    assert (code, land.home.exists()) == (2, False) and says in shown and f"next: {then} " in shown, shown
    code, shown = land(*words, *then.split())
    assert code in (0, 1) and (code == 0 or "max_bad_share" in shown), shown
    if code == 0:
        assert min(land.content()) == first


def test_seconds_of_this_century_are_never_dates(land: Land) -> None:
    """And seconds from 0 on, such as those of a simulation, which no date of digits follows for long."""
    for number, start in enumerate((1_082_040_961, 631_152_000, 0, 40_000)):
        rows = "".join(f"1,2,{start + 977 * n}\n" for n in range(300))
        words = ["--columns", "src,dst,ts", "--time", "ts", "--every", "1d"]
        code, shown = land("land", land.file(rows, f"{number}.csv"), *words)
        assert code == 0, shown


def test_an_epoch_far_from_all_others_is_asked_about(land: Land) -> None:
    """20240515 hours after 1970 are the year 4279; and a time of another century among those of this one."""
    one = land.file("1,2\n", "one.csv")
    assert land("land", land.file("1,2,1082040961\n"), "--columns", "src,dst,t", "--time", "t", "--every", "1h")[0] == 0
    before = land.state()
    for more in ([], ["--dry-run"]):
        code, shown = land("land", one, "--columns", "src,dst", "--epoch", "20240515", *more)
        assert code == 2 and land.state() == before
        assert "epoch 20240515 is 4279-" in shown and "next: --epoch 2024-05-15T00 " in shown
    assert land("land", one, "--columns", "src,dst", "--epoch", "2024-05-15T00")[0] == 0
    code, shown = land("land", one, "--columns", "src,dst", "--epoch", "2199-01-01T00")
    assert code == 2 and "next: --yes" in shown
    assert land("land", one, "--columns", "src,dst", "--epoch", "2199-01-01T00", "--yes")[0] == 0
    assert land("land", one, "--columns", "src,dst", "--epoch", "2250-01-01T00")[0] == 0  # near one that is there
    when = land.file("1,2,1082040961\n1,2,-2208988000\n", "when.csv")
    code, shown = land("land", when, "--columns", "src,dst,t", "--time", "t")
    assert code == 2 and "is 1900-01-01T00: 100 years or more" in shown


def test_an_epoch_beyond_the_calendar_that_is_a_date_is_told(land: Land) -> None:
    file = land.file("1,2,1082040961\n")
    assert land("land", file, "--columns", "src,dst,t", "--time", "t", "--every", "1d")[0] == 0
    code, shown = land("land", file, "--columns", "src,dst,_", "--epoch", "20240515")
    assert code == 2 and "beyond the calendar" in shown and "next: --epoch 2024-05-15" in shown
    assert land("land", land.file("1,2\n"), "--columns", "src,dst", "--epoch", "2024-05-15")[0] == 0


def test_years_long_ago_are_taken_by_a_form(land: Land) -> None:
    """1899 is malformed where nobody has said the form; pandas does not know the year 1600."""
    for year in ("1899", "1600", "0005"):
        words = ["land", land.file(f"1,2,{year}-05-15T12:30:00Z\n"), "--columns", "src,dst,t", "--time", "t"]
        code, shown = land(*words, "--every", "1d")
        assert code == 1 and "outside the years 1900 to 2200" in shown
        assert "next: give the form of the times: --time-format '%Y-%m-%dT%H:%M:%S%z'" in shown
        code, shown = land(*words, "--every", "1d", "--time-format", "%Y-%m-%dT%H:%M:%S%z", "--yes")
        assert code == 0 and f"{year}-05-15" in land.content()


def test_iso_times_with_and_without_zone(land: Land) -> None:
    file = land.file(
        "a,b,2004-04-15T00:30:00+02:00\nb,c,2004-04-15 00:30:00\nc,d,2004-04-15T00:30:00.25Z\nd,e,2004-04-16\n"
    )
    code, shown = land("land", file, "--columns", "src,dst,t", "--time", "t", "--every", "1d", "--ids", "string")
    assert code == 0 and "ISO 8601" in shown
    midnight = round(datetime(2004, 4, 15, tzinfo=UTC).timestamp()) * 10**6
    assert land.content() == {
        "2004-04-14": [f'"a","b",{midnight - 5400 * 10**6}'],
        "2004-04-15": [f'"b","c",{midnight + 1800 * 10**6}', f'"c","d",{midnight + 1800250000}'],
        "2004-04-16": [f'"d","e",{midnight + 86400 * 10**6}'],
    }


REFUSED = [
    (["--columns", "src,dst,rating,x", "--time", "when", "--every", "1d"], "no such column"),
    (["--columns", "src,dst,rating,x,y", "--time", "x", "--every", "1d"], "rows cannot be read|no row could be read"),
    (["--columns", "src,dst,rating,src", "--epoch", "1"], "there twice"),
    (["--columns", "src,dst,b,x", "--epoch", "1"], "column b: the name is reserved"),
    (["--columns", "src,dst,_x,x", "--epoch", "1"], "begins with an underscore"),
    (["--columns", "src,dst,rating,x", "--time", "x", "--every", "1w"], "--every 1w"),
    (["--columns", "src,dst,rating,x", "--epoch", "soon"], "not an integer"),
    (["--columns", "src,dst,rating,x", "--epoch", "1", "--header"], "looks like a row"),
    (["--columns", "src,rating,dst,x", "--epoch", "1"], 'ids = "string"'),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED)
@pytest.mark.parametrize("there", [False, True])
def test_what_is_refused_changes_nothing(land: Land, arguments: list[str], says: str, there: bool) -> None:
    import re

    if there:
        assert land("land", land.file("1,2\n", "old.csv"), "--columns", "src,dst", "--epoch", "1")[0] == 0
    before = land.state()
    code, shown = land("land", land.file("1,2,ann,4\n5,6,bob,8\n"), *arguments)
    assert code in (1, 2) and re.search(says, shown), shown
    assert land.state() == before and land.home.exists() == there


def test_a_header_is_found(land: Land) -> None:
    code, shown = land(
        "land",
        land.file("from,to,größe,my col\n1,2,0.5,3\n4,5,1,7\n"),
        "--columns",
        "src,dst,größe,my col",
        "--epoch",
        "1",
    )
    assert code == 0 and "a header" in shown and "größe (double)" in shown
    assert land.content() == {"1": ["1,2,0.5,3", "4,5,1,7"]}
    assert Home.open(land.home).config.values == {"größe": "double", "my col": "long"}


def test_the_columns_are_those_of_the_header(land: Land) -> None:
    code, shown = land("land", land.file("src;dst;x y\n1;2;true\n"), "--epoch", "1")
    assert code == 0 and "semicolons" in shown and Home.open(land.home).config.values == {"x y": "boolean"}
    code, shown = land("land", land.file("1;2\n"), "--epoch", "1")
    assert code == 2 and "--columns is missing" in shown


def test_a_type_is_that_of_all_rows(land: Land) -> None:
    rows = "".join(f"1,{n},{n}\n" for n in range(12_000)) + "2,3,2.5\n"
    assert land("land", land.file(rows), "--columns", "src,dst,w", "--epoch", "1")[0] == 0
    assert Home.open(land.home).config.values == {"w": "double"} and len(land.content()["1"]) == 12_001


def test_what_is_replaced_is_told_and_a_dry_run_changes_nothing(land: Land) -> None:
    land("land", land.file("1,2\n3,4\n"), "--columns", "src,dst", "--epoch", "1")
    before = land.state()
    again = land.file("5,6\n", "again.csv"), "--columns", "src,dst", "--epoch", "1"
    code, shown = land("land", *again, "--dry-run")
    assert code == 0 and "would land 1 rows in 1 epoch(s): 1; replaces 1 landed epoch(s) of 2 rows" in shown
    assert land.state() == before
    code, shown = land("land", *again, "--append")
    assert code == 0 and "adds to 1 landed epoch(s) of 2 rows" in shown
    code, shown = land("land", *again)
    assert code == 0 and "replaces 1 landed epoch(s) of 3 rows" in shown


def test_a_folder_is_not_a_missing_file(land: Land) -> None:
    code, shown = land("land", str(land.place), "--columns", "src,dst", "--epoch", "1")
    assert code == 2 and "is a folder" in shown
    code, shown = land("land", str(land.place / "x.csv"), "--columns", "src,dst", "--epoch", "1")
    assert code == 2 and "no such file" in shown


def states(home: Path) -> dict[str, tuple[str, str]]:
    opened = Home.open(home)
    return {row["label"]: (row["state"], row["error"] or "") for row in list_epoch_rows(Ledger(opened))[1]}


def test_what_is_no_batch_yet(land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    land("land", land.file("1,2\n"), "--columns", "src,dst", "--epoch", "1")
    place = land.home / "landing"
    for name in ("2", "3", "4", "5"):
        (place / f"epoch={name}").mkdir()
    (place / "epoch=3" / "a.csv").write_text("src,dst\n1,2\n")
    (place / "epoch=4" / "a.csv.part").write_text("src,d")
    (place / "epoch=5" / "_EMPTY").touch()
    now = (place / "epoch=3" / "a.csv").stat().st_ctime
    monkeypatch.setattr(batch_files, "clock", lambda: now + 9)
    found = states(land.home)
    assert {label: state for label, (state, _) in found.items()} == {
        "1": "missing",
        "2": "incomplete",
        "3": "incomplete",
        "4": "incomplete",
        "5": "missing",
    }
    assert "empty" in found["2"][1] and "still being written: " in found["3"][1] and "a.csv.part" in found["4"][1]
    code, shown = land("plan")
    assert code == 0 and "epoch 3 is incomplete and is left out: still being written" in shown
    for epoch in ("2", "3", "4"):
        code, shown = land("run", epoch)
        assert code == 2 and "not landed completely" in shown
    monkeypatch.setattr(batch_files, "clock", lambda: now + 10)
    assert states(land.home)["3"][0] == "missing"
    monkeypatch.setattr(batch_files, "clock", lambda: now)
    (place / "epoch=3" / "_SUCCESS").touch()
    assert states(land.home)["3"][0] == "missing"
    complete = (place / "epoch=3" / "_SUCCESS").stat().st_ctime
    for later, state in ((0.004, "missing"), (1, "incomplete")):  # a tick of the clock; a file that was taken away
        os.utime(place / "epoch=3", (complete + later, complete + later))
        assert states(land.home)["3"][0] == state
    (place / "epoch=1" / "more.csv").write_text("src,dst\n3,")  # beside what is sealed
    assert states(land.home)["1"][0] == "incomplete"


def test_an_empty_batch_is_asked_for(land: Land) -> None:
    assert land("land", "--empty", "--epoch", "7")[0] == 0
    assert states(land.home)["7"][0] == "missing"
    land("land", land.file("1,2\n"), "--columns", "src,dst", "--epoch", "7", "--append")
    assert land.content() == {"7": ["1,2"]}
    assert json.loads((land.home / "landing" / "epoch=7" / "_SUCCESS").read_text())["rows"] == 1
