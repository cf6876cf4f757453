"""docs/reference.md says what the code says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.home.settings import SETTINGS
from altneu.pipeline.reading.query_model import view_table
from altneu.pipeline.run.semantic_settings import changed_meaning
from altneu.pipeline.state.ledger import Ledger
from tests.docs.pages import REPO, read


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_generator", REPO / "infra" / "reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_generator_prints(generator: ModuleType) -> None:
    same = read("docs/reference.md") == generator.page()
    assert same, f"docs/reference.md is out of date; renew it: {generator.RENEW}"


def test_what_the_generator_says_by_itself_is_about_things_that_exist(generator: ModuleType) -> None:
    from altneu.pipeline.state import schema
    from altneu.pipeline.state.records import SERVING_TABLES
    from altneu.pipeline.storage import table_schemas

    declared = table_schemas.TABLES | table_schemas.MOTIFS | table_schemas.QUERY_INPUTS | generator.QUERY_COLUMNS
    assert set(generator.TABLES) == set(declared)
    assert set(generator.SERVING_TABLES) == set(SERVING_TABLES)
    assert set(generator.DATABASE) == set(schema.metadata.tables)


OTHERWISE = {  # settings that decide what history means, with another value than that of a home of RATED
    "every": '[epochs]\nevery = "7d"',
    "ids": '[vertices]\nids = "string"',
    "values": '[values]\nrating = "double"',
    "live_for": "[edges]\nlive_for = 7",
    "where": '[edges]\nwhere = "src < dst"',
    "motifs": '[motifs]\nloop = "a->b, b->a"',
}
RATED = '[values]\nrating = "long"\n'


def test_a_setting_that_decides_what_history_means_needs_what_a_run_asks_for(tmp_path: Path) -> None:
    restating = {setting.name: setting.about.restates for setting in SETTINGS if setting.about.restates}
    assert set(restating) == set(OTHERWISE)
    for name, toml in OTHERWISE.items():
        (tmp_path / name).mkdir()
        file = tmp_path / name / "altneu.toml"
        file.write_text(RATED)
        home = Home.open(file.parent)
        ledger = Ledger(home)
        ledger.runs.create("r", 0, epochs=[1], config=home.config.semantic_settings())
        ledger.publish_revision("r", 0, frontier=1, snapshots={}, digest=home.config.semantic_digest(), mark=None)
        assert changed_meaning(ledger) == ([], "run")
        file.write_text(toml if name == "values" else RATED + toml)
        words, needs = changed_meaning(Ledger(Home.open(file.parent)))
        assert needs == restating[name] and len(words) == 1 and name in words[0]


def test_the_documented_views_are_those_of_the_table() -> None:
    page = read("docs/reference.md")
    for title, about, options in view_table():
        line = f"| `{title}` | {about} | {' '.join(f'`{option}`' for option in options.split())} |"
        assert line.replace("|  |", "| |") in page, f"docs/reference.md has to have the line\n{line}"
