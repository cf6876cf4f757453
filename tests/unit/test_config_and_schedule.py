"""Settings: all problems told at once. Epochs: labels and integers are two names of one thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.config import Home, parse
from pipeline.errors import UsageError
from pipeline.ledger import EMPTY
from pipeline.schedule import Schedule
from pipeline.stages import Run, _audited


def test_all_problems_at_once() -> None:
    text = """
[epochs]
every = "1w"
[edges]
live_for = 0
wher = "x > 1"
[values]
src = "long"
rating = "int"
[surprise]
"""
    with pytest.raises(UsageError) as caught:
        parse(text, "altneu.toml")
    for part in ("1w", "live_for = 0", "wher", "rating", "src", "[surprise]", "6 problem(s)"):
        assert part in caught.value.what


@pytest.mark.parametrize(
    "text",
    [
        "[edges\n",
        "[edges]\nlive_for = true\n",
        "[ingest]\nmax_bad_share = 1.5\n",
        "[audit]\nepochs = 'some'\n",
        "[values]\n_mine = 'long'\n",
        "[values]\nCopies = 'long'\n",
    ],
)
def test_wrong_settings(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text, "altneu.toml")


@pytest.mark.parametrize(
    ("audit", "kind", "chosen"),
    [
        ("frontier", "run", {6, 9}),
        ("all", "run", {4, 5, 6, 9}),
        ("every 2", "run", {4, 6, 9}),
        ("frontier", "rebuild", {2, 3, 4, 5, 6, 8, 9}),
        ("all", "rebuild", {2, 3, 4, 5, 6, 8, 9}),
    ],
)
def test_which_epochs_a_run_recomputes(audit: str, kind: str, chosen: set[int]) -> None:
    """Epochs 4 to 6 are run; 0 to 3, 8 and 9 are published, and a compaction has folded what was before 2."""
    parent = replace(EMPTY, revision=1, frontier=9, since=2)
    books = SimpleNamespace(batches=lambda revision: dict.fromkeys((0, 1, 2, 3, 8, 9)))
    home = SimpleNamespace(config=parse(f"[audit]\nepochs = '{audit}'\n", "x"))
    run = Run(home, books, None, "r", parent, [4, 5, 6], kind=kind)  # type: ignore[arg-type]
    assert set(_audited(run)) == chosen


def test_a_sample_of_epochs_to_recompute_has_the_frontier() -> None:
    books = SimpleNamespace(batches=lambda revision: dict.fromkeys(range(50)))
    home = SimpleNamespace(config=parse("[audit]\nepochs = 'sample 7'\n", "x"))
    run = Run(home, books, None, "r", replace(EMPTY, revision=1, frontier=49), [20])  # type: ignore[arg-type]
    assert {20, 49} <= set(_audited(run)) <= set(range(50)) and 7 <= len(_audited(run)) <= 8


def test_motifs() -> None:
    config = parse('[motifs]\nwedge = "a-b, b-c"\nloops = ["a->b, b->c, c->a", "a->b, b->a, a-c"]\n', "x")
    assert {name: len(found) for name, found in config.patterns().items()} == {"wedge": 1, "loops": 2}
    assert config.digest() != parse("", "x").digest()
    wrong = '[motifs]\ntriangles = "a-b"\n"a b" = "a-b"\nx = "a-a"\nY = 3\ny = "a-b, c-d"\n'
    with pytest.raises(UsageError) as caught:
        parse(wrong, "altneu.toml")
    for part in ("triangles: a name", "a b: a name", "x = 'a-a'", "Y = 3", "not connected", "capitals", "6 problem(s)"):
        assert part in caught.value.what


def test_a_setting_where_a_section_stands() -> None:
    with pytest.raises(UsageError, match=r"motifs = 3: expected the section \[motifs\]"):
        parse("motifs = 3\n", "altneu.toml")


def test_the_digest_follows_the_meaning_only() -> None:
    base = parse("", "x").digest()
    assert parse("[spark]\nmaster = 'local[1]'\n", "x").digest() == base
    assert parse("[edges]\nlive_for = 3\n", "x").digest() != base
    one, two = "[values]\nx='long'\ny='long'\n", "[values]\ny='long'\nx='long'\n"
    assert parse(one, "x").digest() != parse(two, "x").digest()  # their order decides which value is greater


def test_a_home_is_made_and_declared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no altneu home"):
        Home.open(tmp_path / "none")
    home = Home.open(tmp_path / "new", create=True)
    home = home.declare(every="1d", live_for=30, values={"rating": "long"})
    again = Home.open(tmp_path / "new")
    assert again.config == home.config
    assert (again.config.every, again.config.live_for, again.config.values) == ("1d", 30, {"rating": "long"})
    again.declare(values={"hue": "string"})
    assert list(Home.open(tmp_path / "new").config.values) == ["hue", "rating"]


@pytest.mark.parametrize("every", ["1d", "7d", "12h", "1h", "15m", None])
@pytest.mark.parametrize("epoch", [-3, 0, 1, 12_523])
def test_label_and_epoch_are_inverse(every: str | None, epoch: int) -> None:
    schedule = Schedule.parse(every)
    assert schedule.epoch(schedule.label(epoch)) == epoch
    assert schedule.epoch(str(epoch)) == epoch


def test_labels() -> None:
    assert Schedule.parse("1d").label(12_523) == "2004-04-15"
    assert Schedule.parse("12h").label(25_047) == "2004-04-15T12"
    assert Schedule.parse("1d").epoch("2004-04-15") == 12_523
    for text in ("2004-04-15T12", "tomorrow"):
        with pytest.raises(UsageError):
            Schedule.parse("1d").epoch(text)
    with pytest.raises(UsageError):
        Schedule.parse(None).epoch("2004-04-15")
