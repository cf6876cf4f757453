"""Settings: all problems told at once. Epochs: labels and integers are two names of one thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import Home, parse
from pipeline.errors import UsageError
from pipeline.schedule import Schedule


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


@pytest.mark.parametrize("text", ["[edges\n", "[edges]\nlive_for = true\n", "[ingest]\nmax_bad_share = 1.5\n"])
def test_wrong_settings(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text, "altneu.toml")


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
