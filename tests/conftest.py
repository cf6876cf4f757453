"""The plugins of the suite, and what holds for every test."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from altneu.pipeline.landing import batch_files
from tests import seeds

if TYPE_CHECKING:
    from tests.ledger_only import LedgerOnly

settings.register_profile("same examples in each run", derandomize=True)
if not seeds.is_fresh():
    settings.load_profile("same examples in each run")

PLUGINS = "scratch", "tools", "canonical", "tiers", "costs", "session", "browser", "postgres", "rest", "s3"
pytest_plugins = [f"tests.{name}" for name in PLUGINS]

gc.disable()  # what is imported and collected stays: to look through it again and again takes a fifth of the collection


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test puts into a landing by hand counts at once: the clock that asks is an hour ahead."""
    monkeypatch.setattr(batch_files, "clock", lambda: time.time() + 3600)


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """The handlers that a command adds to write its log lines to a test's standard error end with the test."""
    root, own = logging.getLogger(), logging.getLogger("altneu")
    before, level = root.handlers[:], root.level
    own_before, own_level = own.handlers[:], own.level
    yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
    root.setLevel(level)
    own.handlers = own_before
    own.setLevel(own_level)


@pytest.fixture
def unaudited(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Runs of this process that record their fingerprints, without the rest of the audit stage, half of a tiny run: for
    tests that compare with plain Python, or audit what is published themselves. They write no pages, but with the
    fixture `pages`."""
    import altneu.pipeline.run.stages.audit
    from tests.fingerprint_helpers import stage
    from tests.short_runs import skip_pages

    monkeypatch.setattr(altneu.pipeline.run.stages.audit, "audit_run", stage)
    if "pages" not in request.fixturenames:
        skip_pages(monkeypatch)


@pytest.fixture
def ledger_only(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[LedgerOnly]:
    """The runs of a test without Spark, and without pages but with the fixture `pages`."""
    from tests.ledger_only import run_without_spark
    from tests.short_runs import skip_pages

    with run_without_spark(monkeypatch) as homes:
        if "pages" not in request.fixturenames:
            skip_pages(monkeypatch)
        yield homes


@pytest.fixture
def pages() -> None:
    """Let the runs of a test that are short otherwise write their pages: for a test that looks at them."""
