"""The algebra's cases are tiny and many."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _tiny(request: pytest.FixtureRequest) -> None:
    if "spark" in request.fixturenames:
        request.getfixturevalue("tiny")
