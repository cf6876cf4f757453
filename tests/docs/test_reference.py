"""docs/reference.md says what the code says."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from pipeline.reading.questions import table
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
    from pipeline.home import settings
    from pipeline.state import schema
    from pipeline.storage import warehouse

    assert set(generator.TABLES) == set(warehouse.TABLES | warehouse.MOTIFS)
    assert set(generator.DATABASE) == set(schema.metadata.tables)
    semantic = {"every", "ids", "live_for", "where"}
    assert set(generator.NEEDS) == set(settings.PLACES) - semantic


def test_a_setting_that_decides_what_history_means_needs_what_a_run_asks_for(generator: ModuleType) -> None:
    assert generator.needs("every") == generator.needs("ids") == "another home"
    assert generator.needs("live_for").startswith("`altneu rebuild`")
    assert generator.needs("values") == "`altneu rebuild --from-landing`"
    assert generator.needs("audit") == generator.NOTHING


def test_the_documented_views_are_those_of_the_table() -> None:
    page = read("docs/reference.md")
    for title, about, options in table():
        line = f"| `{title}` | {about} | {' '.join(f'`{option}`' for option in options.split())} |"
        assert line.replace("|  |", "| |") in page, f"docs/reference.md has to have the line\n{line}"
