"""Times of a given form are those of Python's `datetime.strptime`, row by row: forms made at random, cells that are
made by them, and cells that are nearly of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.landing.time_forms import read_form
from altneu.pipeline.landing.timestamps import Clock
from tests import seeds

START = datetime(1970, 1, 1)
DAYS = [
    "%d{0}%m{0}%Y",
    "%Y{0}%m{0}%d",
    "%m{0}%d{0}%y",
    "%d{0}%b{0}%Y",
    "%B %d, %Y",
    "%a{0}%d{0}%b{0}%Y",
    "%Y{0}%j",
    "%Y{0}%m",
]
HOURS = ["", " %H:%M", "T%H:%M:%S", " %I:%M %p", " %H:%M:%S.%f", " %Hh%M", "%H%M%S", " %M:%H"]
ZONES = ["", "%z", " %z"]


def read_by_python(form: str, cell: str) -> int | None:
    """Microseconds since 1970 UTC by Python; None: it is no time of the form. A day of the year that the year does not
    have is none, which Python takes for one of the next year."""
    try:
        when = datetime.strptime(cell, form)
        start = START if when.tzinfo is None else START.replace(tzinfo=UTC)
        since = (when - start) // timedelta(microseconds=1)
        inside = 1 <= (START + timedelta(microseconds=since)).year < 9999
    except (ValueError, OverflowError):
        return None
    rolled = "%j" in form and when.year != int(cell[:4])
    return since if inside and not rolled else None


def read_times(form: str, cells: list[str]) -> list[int | None]:
    since, reasons = Clock("ts", text=True, form=form, is_given=True).to_microseconds(
        pa.chunked_array([cells], pa.string())
    )
    broken = np.logical_or.reduce(list(reasons.values()))
    return [None if wrong else int(each) for wrong, each in zip(broken, since, strict=True)]


def made_form(rng: random.Random) -> str:
    day = rng.choice(DAYS).format(rng.choice(["/", "-", ".", " ", "", "  ", "+"]))
    form = day + (rng.choice(HOURS) if "%d" in day or "%j" in day else "")
    return form + (rng.choice(ZONES) if "%H" in form else "")


def made_cell(rng: random.Random, form: str) -> str:
    """A time as the form writes it, or as a person does, or with something wrong in it."""
    when = datetime(1, 1, 1) + timedelta(seconds=rng.randrange(9998 * 31_556_952))
    when = when.replace(microsecond=rng.randrange(10**6))
    offset = timedelta(minutes=rng.randrange(-1439, 1440)) if rng.random() < 0.5 else timedelta()
    cell = when.replace(tzinfo=UTC).astimezone(ZoneInfo("UTC")).strftime(form.replace("%Y", f"{when.year:04d}"))
    cell = cell.replace(
        "+0000", rng.choice(["Z", "z", "+0000", "+00:00", f"{offset_text(offset)}", "+25:00", "+01:61"])
    )
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        at = rng.randrange(len(cell) + 1)
        cell = rng.choice(
            [
                cell.replace("0", "", 1),
                cell[:at] + rng.choice(" 0123456789:/-.Z") + cell[at:],
                cell[:at] + rng.choice("0123456789 ") + cell[at + 1 :],
                cell[:at] + cell[at + 1 :],
                cell.upper(),
                cell.lower(),
                cell.replace(" ", "\t"),
                cell.replace("28", "31").replace("27", "30"),
                cell + " ",
                "",
            ]
        )
    return cell


def offset_text(offset: timedelta) -> str:
    minutes = round(abs(offset).total_seconds()) // 60
    return f"{'-' if offset < timedelta() else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def test_each_row_is_what_python_reads() -> None:
    seed = seeds.one()
    rng = random.Random(seed)
    fine = 0
    for _ in range(120):
        form = made_form(rng)
        cells = [made_cell(rng, form) for _ in range(100)]
        expected = [read_by_python(form, cell) for cell in cells]
        # a form of digits alone reads 20040515.0, too, which none of these cells is meant to be
        pairs = zip(cells, expected, read_times(form, cells), strict=True)
        wrong = [each for each in pairs if each[1] != each[2] and not each[0].endswith(".0")]
        assert not wrong, (seed, form, wrong[:5])
        fine += sum(each is not None for each in expected)
    assert fine > 3_000, (seed, "too few of the cells are times")


@pytest.mark.parametrize(
    ("form", "cell", "reason"),
    [
        ("%Y-%m-%d", "2023-02-29", "is a day that there is not"),
        ("%d.%m.%Y", "31.04.2023", "is a day that there is not"),
        ("%Y-%j", "2023-366", "is a day that there is not"),
        ("%Y-%m-%d", "0000-02-20", "is a day that there is not"),
        ("%H:%M:%S %d.%m.%Y", "10:00:61 1.4.2023", "has a second beyond 59"),
        ("%H:%M:%S %d.%m.%Y", "25:00:00 1.4.2023", "is no time of the form %H:%M:%S %d.%m.%Y"),
        ("%Y-%m-%d %H:%M %Z", "2023-04-01 10:00 EST", "is in no known zone"),
        ("%Y-%m-%d %H:%M %Z", "2023-04-01 10:00 Europe/Nowhere", "is in no known zone"),
        ("%Y-%m-%d %H:%M %Z", "2023-04-01 10:00 ../../etc/passwd", "is no time of the form"),
        ("%Y-%m-%d %H:%M %Z", "2023-03-26 02:30 Europe/Berlin", "an hour that its zone has twice or not at all"),
        ("%Y-%m-%d %H:%M %Z", "2023-10-29 02:30 Europe/Berlin", "an hour that its zone has twice or not at all"),
        ("%Y-%m-%dT%H:%M%z", "2023-04-01T10:00+24:00", "is in no known zone"),
        ("%Y-%m-%dT%H:%M%z", "9999-12-31T23:59-00:01", "outside the years 1 to 9999"),
    ],
)
def test_a_row_is_refused_for_its_reason(form: str, cell: str, reason: str) -> None:
    _, reasons = Clock("ts", text=True, form=form, is_given=True).to_microseconds(pa.chunked_array([[cell]]))
    assert [text for text, broken in reasons.items() if broken[0]] == [text for text in reasons if reason in text]


def test_zones_are_those_of_the_world() -> None:
    """At any second of a century in which a zone's clock shows it once."""
    seed = seeds.one()
    rng = random.Random(seed)
    names = ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC", "GMT", "z"]
    shown = [
        (datetime(1950, 1, 1) + timedelta(seconds=rng.randrange(100 * 31_556_952)), rng.choice(names))
        for _ in range(900)
    ]
    shown += [(datetime(2024, 10, 27) + timedelta(minutes=n), "Europe/Berlin") for n in range(0, 300, 7)]
    expected: list[int | None] = []
    for when, name in shown:
        zone = ZoneInfo(name if "/" in name else "UTC")
        first, second = (when.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        expected.append((first - START.replace(tzinfo=UTC)) // timedelta(microseconds=1) if first == second else None)
    cells = [f"{when:%Y-%m-%d %H:%M:%S} {name}" for when, name in shown]
    assert read_times("%Y-%m-%d %H:%M:%S %Z", cells) == expected, seed
    assert None in expected


@pytest.mark.parametrize("form", ["%Y%m%d%H%M%S", "%Y%m%d", "%Y%m", "%Y"])
def test_digits_may_come_as_the_numbers_of_another_program(form: str) -> None:
    whole = datetime(2004, 5, 15, 12, 30).strftime(form)
    assert read_times(form, [f"{whole}.0", f"{whole}.000", f"{whole}.5", f"{whole}."])[2:] == [None, None]
    assert read_times(form, [f"{whole}.0", f"{whole}.000"]) == read_times(form, [whole, whole]) != [None, None]
    assert read_times("%d.%m.%Y", ["15.05.2004.0"]) == [None]


@pytest.mark.parametrize("form", ["%F %T", "%D %R", "%e %h %Y"])
def test_short_directives_are_what_they_are_short_for(form: str) -> None:
    long = {"%F %T": "%Y-%m-%d %H:%M:%S", "%D %R": "%m/%d/%y %H:%M", "%e %h %Y": "%d %b %Y"}[form]
    cell = datetime(2004, 5, 6, 12, 30, 7).strftime(long)
    assert read_times(form, [cell]) == [read_by_python(long, cell)] != [None]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("%H:%M", "has no year"),
        ("%d.%m.", "has no year"),
        ("%Y %d", "has no month"),
        ("%Y-%m %H:%M", "has no day"),
        ("%Y-%m-%d %M", "has no hour"),
        ("%Y-%m-%d %H.%f", "has no minute"),
        ("%Y-%m-%d %I:%M", "%I needs %p"),
        ("%Y-%m-%d %H:%M %p", "%p needs %I"),
        ("%Y-%m-%d %y", "%Y and %y both are the year"),
        ("%Y-%j-%d", "%j is the month and the day already"),
        ("%Y-%m-%d %Q", "%Q: altneu does not know it"),
        ("%-d.%m.%Y", "%-: altneu does not know it"),
        ("%Y-W%W-%w", "%W: altneu does not know it"),
        ("%c", "%c: it depends on the language"),
        ("%s", "%s: seconds since 1970 are numbers: --time-unit s"),
        ("%Y-%m-%d %", "%: altneu does not know it"),
        ("", "has no year"),
    ],
)
def test_a_form_that_leaves_something_open_is_refused_by_name(form: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_form(form)
    assert says in refused.value.what and "Nothing was landed" in refused.value.what and refused.value.next
