"""Each error of `land` and of the settings is followed: what it says to type is accepted, or brings another error. No
error sends to where one comes from."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline import cli

ROWS = "1,2,1082040961\n3,4,1082040999\n"
TIMED = "land raw.csv --columns src,dst,ts --time ts --every 1d"
PLAIN = "land raw.csv --columns src,dst --epoch 1"


@dataclass(frozen=True)
class Case:
    """What is typed in the folder of the files, and how the error begins. `by_hand`: no command can help, only somebody
    who corrects the file."""

    typed: str
    says: str
    text: str = ROWS
    before: tuple[str, ...] = ()  # commands that make the home
    files: dict[str, str] = field(default_factory=dict)
    parquet: dict[str, list[object]] | None = None
    by_hand: bool = False


LAND = [
    Case("land --empty", "--empty needs --epoch"),
    Case("land --epoch 1", "no file is given"),
    Case("land . --columns src,dst --epoch 1", "is a folder"),
    Case("land none.csv --columns src,dst --epoch 1", "no such file", by_hand=True),
    Case("land raw.csv raw.csv --columns src,dst,_ --epoch 1", "is given twice", by_hand=True),
    Case("land raw.csv --columns src,dst,ts", "give either"),
    Case("land raw.csv --columns src,dst,ts --time ts", "--time needs the length"),
    Case("land raw.csv --columns src,dst,ts --time ts --every soon", "--every soon"),
    Case("land raw.csv --columns src,dst,ts --time ts --every 2d", "this home has epochs of 1d", before=(TIMED,)),
    Case("land raw.csv --columns src,dst,_ --epoch 1 --time-unit s", "--time-unit goes with --time"),
    Case("land raw.csv --columns src,dst,_ --epoch 1 --time-format %Y", "--time-format goes with --time"),
    Case(f"{TIMED} --time-unit h", "--time-unit h: it has to be one of"),
    Case(f"{TIMED} --time-unit s --time-format %Y", "give one of them"),
    Case(f"{TIMED} --ids names", "--ids names"),
    Case(f"{TIMED} --ids string", "--ids string", before=(TIMED,)),
    Case("land raw.csv --epoch 1", "--columns is missing"),
    Case("land raw.csv --columns src,to,ts --time ts --every 1d", "dst is missing"),
    Case("land raw.csv --columns src,dst,src --epoch 1", "is there twice"),
    Case("land raw.csv --columns src,dst,ts --time when --every 1d", "no such column"),
    Case("land raw.csv --columns src,dst,ts --time src --every 1d", "that column is not a time"),
    Case("land raw.csv --columns src,dst, --epoch 1", "a column has no name"),
    Case("land raw.csv --columns src,dst,epoch --epoch 1", "column epoch: the name is reserved"),
    Case("land raw.csv --columns src,dst,_a --epoch 1", "column _a: the name is reserved"),
    Case("land raw.csv --columns src,dst,a/b --epoch 1", "column a/b: a name consists of up to 64 letters"),
    Case("land raw.csv --columns src,dst,w,W --epoch 1", "differs only in capital letters", "1,2,3,4\n"),
    Case("land raw.csv --epoch 1", "column epoch: the name is reserved", "src,dst,epoch\n1,2,3\n"),
    Case("land raw.csv --columns src,dst,_ --epoch 1 --header", "looks like a row"),
    Case(TIMED, "neither a number nor an ISO 8601 time", "1,2,15.04.2004\n"),
    Case(TIMED, "neither a number nor an ISO 8601 time", "1,2,04/15/2004 12:30\n"),
    Case(f"{TIMED} --time-unit s", "ts is text", "1,2,2004-04-15\n"),
    Case(TIMED, "outside the years 1900 to 2200", "1,2,99999999999999999999\n"),
    Case(TIMED, "outside the years 1900 to 2200", "1,2,1082040961\n1,2,1082040961000\n"),
    Case(f"{TIMED} --time-unit s", "outside the years 1 to 9999", "1,2,1e12\n"),
    Case(TIMED, "outside the years 1900 to 2200", "1,2,1899-05-15\n1,2,1899-05-16\n"),
    Case(TIMED, "outside the years 1900 to 2200", "1,2,2004-05-15\n1,2,1777-05-16T12:30:00+02:00\n"),
    Case(TIMED, "ts is no ISO 8601 time", "1,2,2004-02-30\n1,2,2004-02-28\n"),
    Case(f"{TIMED} --time-format %Y-%m-%d", "is 1850-05-15: 100 years or more", "1,2,1850-05-15\n"),
    Case(f"{TIMED} --time-format %Y-%m-%d", "ts is a day that there is not", "1,2,2004-02-30\n", by_hand=True),
    Case(f"{TIMED} --time-format %d.%m.%Y", "ts is no time of the form", "1,2,2004-02-20\n"),
    Case(f"{TIMED} --time-format %d.%m.%Y", "ts is no time of the form", "1,2,20. Feb 2004\n", by_hand=True),
    Case(f"{TIMED} --time-format %H:%M", "has no year", "1,2,12:30\n"),
    Case(f"{TIMED} --time-format %Q", "%Q: altneu does not know it", "1,2,2004-04-15\n"),
    Case(f"{TIMED} --time-format %s", "seconds since 1970 are numbers"),
    Case(f"{TIMED} --time-format %Y-%m-%d-%y", "both are the year", "1,2,2004-04-15\n", by_hand=True),
    Case(f"{TIMED} --time-format '%d/%m/%Y %I:%M'", "%I needs %p", "1,2,15/04/2004 10:30\n"),
    Case(f"{TIMED} --time-format '%d/%m/%Y %H:%M %Z'", "in no known zone", "1,2,15/04/2004 10:30 EST\n", by_hand=True),
    *(
        Case(TIMED, "the numbers look like dates", f"1,2,{number}\n")
        for number in ("20040515", "20040515123000", "2004", "200405", "2004051512", "38122.5", "2004.5", "20040515.0")
    ),
    Case(
        "land raw.parquet --time ts --every 1d", "look like dates", parquet={"src": [1], "dst": [2], "ts": [20040515]}
    ),
    Case("land raw.parquet --time ts --every 1d", "look like dates", parquet={"src": [1], "dst": [2], "ts": [2004.0]}),
    Case(
        "land raw.jsonl --time ts --every 1d", "look like dates", files={"raw.jsonl": '{"src":1,"dst":2,"ts":200405}\n'}
    ),
    Case(PLAIN, "no row could be read", ""),
    Case(PLAIN, "not an integer", "ada,bob\ncy,dee\n"),
    Case(
        PLAIN,
        "not an integer",
        "ada,bob\ncy,dee\n",
        before=("land other.csv --columns src,dst --epoch 7",),
        files={"other.csv": "1,2\n"},
    ),
    Case("land raw.jsonl --epoch 1", "no line is a JSON object", files={"raw.jsonl": "7\n"}, by_hand=True),
    Case(
        "land raw.csv.gz --columns src,dst --epoch 1", "cannot be read", files={"raw.csv.gz": "no gzip"}, by_hand=True
    ),
    Case("land raw.parquet --epoch 1", "cannot be read", files={"raw.parquet": "no parquet"}, by_hand=True),
    Case("land raw.csv --columns src,dst,_ --epoch 20240515", "beyond the calendar", before=(TIMED,)),
    Case("land raw.csv --columns src,dst,_ --epoch 99999999", "beyond the calendar", before=(TIMED,)),
    Case("land raw.csv --columns src,dst,_ --epoch soon", "neither an integer nor a date", before=(TIMED,)),
    Case(
        "land raw.csv --columns src,dst,_ --epoch 20240515",
        "100 years or more",
        before=("land raw.csv --columns src,dst,ts --time ts --every 1h",),
    ),
    Case("land raw.csv --columns src,dst,_ --epoch soon", "is not an integer (this home has no", before=("init",)),
    Case("land raw.csv --columns src,dst,_ --epoch 2004-04-15T12", "does not start an interval", before=(TIMED,)),
    Case("status", "is not an altneu home"),
]


class Shell:
    """The command line in a folder of its own."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = place, capsys

    def __call__(self, words: list[str]) -> tuple[int, str, str]:
        """Exit code, what happened, and what to type next."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(self.place / "home"), *words])
        shown = self.capsys.readouterr()
        what, _, then = shown.err.rpartition("altneu: ")[2].partition("\n  next: ")
        return int(ended.value.code or 0), what.strip(), then.strip()


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALTNEU_HOME", raising=False)
    return Shell(tmp_path, capsys)


def follow(typed: list[str], then: str) -> list[str] | None:
    """What somebody types who does as the advice says; None: it names no command and no option."""
    command = then.partition("   (")[0].partition(", or ")[0].strip()
    if command.startswith("altneu "):
        words = shlex.split(command)[1:]
        words = ["raw.csv" if word == "FILE" else word for word in words]
        if words[-1] == "…":
            given = {word for word in words if word.startswith("--")}
            words = [*words[:-1], *(each for each in typed[2:] if each.split("=")[0] not in given)]
        if words[1:2] == ["./*"]:  # which the shell makes of it
            words[1] = "raw.csv"
        if words[0] == "--home":
            words[1] = "another-home"
        return words
    left_out = re.match(r"leave (--[a-z-]+)", command)
    if left_out:
        return without(typed, left_out[1])
    instead = re.fullmatch(r"the same command with (\S+)", command)
    if instead:
        return [*without(typed, "--epoch"), "--epoch", instead[1]]
    found = re.search(r"(?<!\S)(--[a-z-]+)(?: ('[^']*'|[^\s;]+))?", command)
    if found is None:
        return None
    value = [shlex.split(found[2])[0].rstrip(",")] if found[2] else []
    return [*without(typed, found[1]), found[1], *value]


def without(typed: list[str], option: str) -> list[str]:
    """The words without an option and its value."""
    if option not in typed:
        return typed
    at = typed.index(option)
    value = at + 1 < len(typed) and not typed[at + 1].startswith("--") and option not in ("--header", "--yes")
    return typed[:at] + typed[at + 1 + value :]


@pytest.mark.parametrize("case", LAND, ids=lambda case: f"{case.typed}: {case.says}")
def test_the_advice_of_land_leads_on(shell: Shell, case: Case) -> None:
    (shell.place / "raw.csv").write_text(case.text)
    for name, text in case.files.items():
        (shell.place / name).write_text(text)
    if case.parquet:
        pq.write_table(pa.table(case.parquet), shell.place / "raw.parquet")
    for each in case.before:
        assert shell(shlex.split(each))[0] == 0, each
    typed = shlex.split(case.typed)
    code, what, then = shell(typed)
    assert code in (1, 2) and case.says in what, (what, then)
    words = follow(typed, then)
    if case.by_hand:
        assert words is None and (then or "no such file" in what or "twice" in what), (what, then)
        return
    assert words is not None, (what, then)
    again, other, onward = shell(words)
    assert again == 0 or other != what, f"{what} → {then} → the same"
    if again:  # the second advice does not send back
        assert onward and follow(words, onward) != typed, f"{what} → {then} → {other} → {onward}"


SETTINGS = [  # the wrong text, how it is told, and the text that the message asks for
    ('[epochs]\nevry = "1d"', "Did you mean every?", '[epochs]\nevery = "1d"'),
    ('[epoch]\nevery = "1d"', "Did you mean epochs?", '[epochs]\nevery = "1d"'),
    ('[epochs]\nevery = "soon"', '"1d", "12h"', '[epochs]\nevery = "12h"'),
    ('[values]\nw = "int"', "one of long", '[values]\nw = "long"'),
    ('[values]\nepoch = "long"', "the name is reserved", '[values]\nepoch2 = "long"'),
    ("[edges]\nlive_for = 0", "at least 1 epoch", "[edges]\nlive_for = 1"),
    ('[vertices]\nids = "names"', '"integer" or "string"', '[vertices]\nids = "string"'),
    ("[ingest]\nmax_bad_share = 2", "between 0 and 1", "[ingest]\nmax_bad_share = 1"),
    ('[publish]\napprove = "maybe"', '"never"', '[publish]\napprove = "never"'),
    (
        '[publish]\napprove = { when = "triangle > 2" }',
        "there is no number 'triangle' (position 1); the numbers are: moved",
        '[publish]\napprove = { when = "triangles > 2", by = ["ada"] }',
    ),
    ('[publish]\napprove = "moved > 2 %% or"', "is not expected there", '[publish]\napprove = "moved > 2 %"'),
    ('[publish]\napprove = "moved + rows > 2"', "compares these numbers", '[publish]\napprove = "moved > 2"'),
    ('[publish]\napprove = { if = "rows > 2" }', "a table with when", '[publish]\napprove = "rows > 2"'),
    ('[motifs]\na = "x"', "a-b, or a->b", '[motifs]\na = "a-b"'),
    ('[storage]\ndatabase = "oracle://x"', "sqlite:////folder/altneu.db", ""),
    ('[edges]\nwhere = "w > 1"', '[values] w = "long"', '[edges]\nwhere = "w > 1"\n[values]\nw = "long"'),
    ('[edges]\nwhere = "until > 1"', "no value column can have this name", '[edges]\nwhere = "epoch > 1"'),
    ('[edges]\nwhere = "seq > 1"', "no value column can have this name", '[edges]\nwhere = "src > 1"'),
    (
        "[spark]\nconf = { spark.a = 1 }",
        "write a name with dots in quotes",
        '[spark]\nconf = { "spark.driver.memory" = "8g" }',
    ),
]


@pytest.mark.parametrize(("wrong", "says", "right"), SETTINGS)
def test_the_advice_of_the_settings_leads_on(shell: Shell, wrong: str, says: str, right: str) -> None:
    """What a message names is no setting that another message refuses."""
    assert shell(["init"])[0] == 0
    file = shell.place / "home" / "altneu.toml"
    file.write_text(wrong + "\n")
    code, what, then = shell(["status"])
    assert code == 2 and says in what and then == f"edit {file}", (what, then)
    for section, entry in re.findall(r"(\[values\]) (\w+ = \"\w+\")", what):
        file.write_text(f"{section}\n{entry}\n")
        assert shell(["status"])[0] == 0, (what, entry)
    file.write_text(right + "\n")
    assert shell(["status"])[0] == 0


@pytest.mark.parametrize("name", ["epoch", "until", "_hidden", "rating", "my col", "ab/cd"])
def test_a_column_is_declared_only_where_it_can_be(shell: Shell, name: str) -> None:
    """A column of the landing that is not declared: its message names the setting, if there can be one."""
    from altneu.pipeline.landing.row_schema import BrokenFileError, RowSchema, require_known_columns

    with pytest.raises(BrokenFileError) as broken:
        require_known_columns(["src", "dst", name], RowSchema({"src": "long", "dst": "long"}), lambda: {name: "long"})
    declared = re.search(r"\[values\] (.*)", str(broken.value))
    assert (declared is not None) == (name in ("rating", "my col")), broken.value
    if declared is not None:
        assert shell(["init"])[0] == 0
        (shell.place / "home" / "altneu.toml").write_text(f"[values]\n{declared[1]}\n")
        assert shell(["status"])[0] == 0
    else:
        assert "give it another name in the file, or leave it out" in str(broken.value)
