"""A browser for tests of pages: `browser` starts it, `Visit` is one page in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tools

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(
    scope="module"
)  # while it is open, this thread has an event loop, which other modules' tests may not have
def browser() -> Iterator[Any]:
    program = tools.require("browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """One page in a fresh context, with the requests and the console errors that it made."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(file.as_uri())

    def quiet(self) -> None:
        assert not self.errors
        assert len(self.requests) == 1 and self.requests[0].startswith("file:")
        self.context.close()

    def require_accessible(self) -> None:
        """Raise when axe-core finds that something keeps a reader out."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        assert not found.response["violations"], found.generate_report()
