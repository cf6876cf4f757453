"""`altneu status`: what it says of epochs of which the same is to be said."""

from __future__ import annotations

import pytest

from altneu.pipeline.cli.status import list_errors

ROWS: dict[str, tuple[list[str | None], list[str]]] = {
    "nothing is wrong": ([None, None], []),
    "one is": ([None, "no rows", None], ["2: no rows"]),
    "a run of three": (["x", "x", "x", None], ["1 … 3 (3 epochs): x"]),
    "apart": (["x", None, "x"], ["1: x", "3: x"]),
    "two reasons": (["x", "x", "y"], ["1 … 2 (2 epochs): x", "3: y"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_one_line_for_epochs_in_a_row_that_went_wrong_alike(name: str) -> None:
    found, said = ROWS[name]
    assert list(list_errors([{"label": str(i), "error": error} for i, error in enumerate(found, 1)])) == said
