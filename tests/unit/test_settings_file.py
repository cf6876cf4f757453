"""`altneu.toml` as a file: what is written into it keeps the rest to the letter; digests of earlier versions stay."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import SETTINGS, Config
from altneu.pipeline.home.settings_file import extend_settings, parse_settings, settings_template

LAND = {"epochs": {"every": "1d"}, "values": {"my col": "long", "größe": "double"}}
NEW = 'every = "1d"', '"my col" = "long"', '"größe" = "double"'
MINE = """# mine
[ epochs ]   # days
  # as they come

# the columns
[values]
zebra   =  'long'   # first

# what follows is about edges
[edges]
live_for = 3
"""
FILES = {
    "a new home": settings_template(),
    "empty": "",
    "mine": MINE,
    "other line ends": MINE.replace("\n", "\r\n"),
    "mixed line ends": MINE.replace("\n", "\r\n", 4),
    "a byte order mark": "\ufeff" + MINE,
    "no line end": MINE.rstrip(),
    "the section is last": '[values]\nzebra = "long"',
    "in braces": 'values = { zebra = "long" }\nepochs = {}\n',
    "dots": 'values.zebra = "long"\nedges.live_for = 3\n',
    "inner tables": '[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.ui.enabled" = "false"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_new_settings_leave_the_rest_as_it_is(name: str) -> None:
    text = FILES[name]
    new = extend_settings(text, LAND)
    were, are = (tomllib.loads(each.removeprefix("\ufeff")) for each in (text, new))
    for section, entries in LAND.items():
        assert are[section] == were.get(section, {}) | entries
        assert list(are[section]) == [*were.get(section, {}), *entries]  # later columns come last
    assert {key: value for key, value in are.items() if key not in LAND} == {
        key: value for key, value in were.items() if key not in LAND
    }
    if name not in ("in braces", "dots"):
        old, found = text.splitlines(), new.splitlines()
        added = [line for line in found if line.strip() in NEW]
        assert len(added) == 3
        assert [line for line in found if line.strip() not in (*NEW, "", "[values]", "[epochs]")] == [
            line for line in old if line.strip() not in ("", "[values]", "[epochs]")
        ]
    assert new.count("\r\n") == (new.count("\n") if name == "other line ends" else text.count("\r\n"))
    assert new.startswith("\ufeff") == text.startswith("\ufeff")


def test_a_new_setting_is_in_its_section_before_the_blank_line_that_ends_it() -> None:
    new = extend_settings(MINE, {"values": {"hue": "string"}, "edges": {"where": "hue = 'x'"}})
    assert new == MINE.replace("# first\n", '# first\nhue = "string"\n') + "where = \"hue = 'x'\"\n"
    assert extend_settings(MINE, {"edges": {"live_for": 4}}) == MINE.replace("live_for = 3", "live_for = 4")


def test_names_and_texts_of_any_kind_are_quoted() -> None:
    odd = {"ключ": 'a "b" \\ c', "two words": "tab\there", "dash-ed": "x = 'y' # no comment"}
    assert tomllib.loads(extend_settings(MINE, {"motifs": odd}))["motifs"] == odd


def test_the_file_is_replaced_whole_and_stays_private(tmp_path: Path) -> None:
    real, home = tmp_path / "kept.toml", tmp_path / "home"
    home.mkdir()
    real.write_text('[storage]\ndatabase = "postgresql+psycopg://me@host/db"\n')
    real.chmod(0o600)
    (home / "altneu.toml").symlink_to(real)
    Home.open(home).declare_settings(epochs={"every": "1d"})
    assert (home / "altneu.toml").is_symlink() and 'every = "1d"' in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in (*home.iterdir(), *tmp_path.iterdir())} == {"altneu.toml", "home", "kept.toml"}


def test_a_setting_that_cannot_be_is_not_written(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home", create=True)
    before = (home.path / "altneu.toml").read_bytes()
    with pytest.raises(UsageError, match="1w"):
        home.declare_settings(epochs={"every": "1w"})
    assert (home.path / "altneu.toml").read_bytes() == before


def test_the_template_says_every_setting_and_sets_none() -> None:
    assert parse_settings(settings_template(), "x") == Config()
    lines = settings_template().splitlines()
    for setting in SETTINGS:
        for line in setting.about.example.splitlines():
            example = f"# {line}" if setting.key is None else f"# {setting.key} = {line}"
            assert any(found.startswith(example) for found in lines), example
    assert max(map(len, lines)) <= 120
    assert not any("](" in line for line in lines), "a link of the reference, which leads nowhere from a home"
    uncommented = "\n".join(line[2:] if line.startswith("# ") and " = " in line else line for line in lines)
    example = parse_settings(uncommented, "x")
    assert example.values == {"rating": "long"} and example.spark.conf == {"spark.driver.memory": "8g"}


DIGESTS = {  # as published by homes of the first version
    "8debc1dc897a7b56": "",
    "ba4e4ec6abfd78ba": '[epochs]\nevery="1d"\n[vertices]\nids="string"\n[values]\nrating="long"\nw="double"\n'
    '[edges]\nlive_for=3\nwhere="rating > 0"\n[motifs]\nm=["a-b","a->b"]\n',
}


@pytest.mark.parametrize("digest", DIGESTS)
def test_a_home_of_an_earlier_version_has_not_changed_its_meaning(digest: str) -> None:
    assert parse_settings(DIGESTS[digest], "x").semantic_digest() == digest


MISPLACED = {
    "live_for = 3": "live_for = 3 is not in a section. Did you mean [edges] live_for?",
    "[epochs]\nlive_for = 3": "[epochs] live_for is not a setting. Did you mean [edges] live_for?; the settings are",
    "limit_edges = 3": "Did you mean [triangles] limit_edges or [truss] limit_edges?",
    "colour = 3": "colour = 3 is not in a section",
    "[[edges]]\nlive_for = 3": "edges = [{'live_for': 3}]: expected the section [edges]",
    "[edges]\nwhere = 3": "[edges] where = 3: expected text, a condition",
    "[ingest]\nsettle = true": "[ingest] settle = True: expected a number, at least 0 seconds",
    "[spark]\nconf = 3": "[spark] conf = 3: expected a table",
    "[spark]\nconf = { x = [1] }": "[spark] conf, x = [1]: expected text",
    "[values]\nrating = 3": "[values] rating = 3: expected text, one of long, double, string, boolean",
}


@pytest.mark.parametrize("text", MISPLACED)
def test_what_is_said_of_a_setting_in_a_wrong_place_or_form(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(text, "altneu.toml")
    assert "altneu.toml has 1 problem(s)" in caught.value.what
    assert MISPLACED[text] in caught.value.what
    assert caught.value.__context__ is None  # it would hold the file's secrets
