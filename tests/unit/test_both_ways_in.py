"""A file gives the same rows whether `altneu land` takes it or it is put into the landing, in every format."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.row_schema import RowSchema
from tests import seeds
from tests.unit.test_parquet_values import FORMATS, TYPES, write_texts
from tests.unit.test_reading_both_ways import NUMBERS, WORDS

VALUES = {"weight": "double", "on": "boolean", "kind": "string"}
LAYOUT = RowSchema(TYPES | {"dst": "string"}, frozenset(VALUES))


def rows_of(path: Path) -> list[str]:
    """The rows of a file, without their lines; told apart are also nan, -0.0 and no value."""
    rows = [row for block in read_blocks(path, LAYOUT) for row in block.rows.to_pylist()]
    assert all(row.pop("line") for row in rows)
    return list(map(repr, rows))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cases", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_a_file_that_is_landed_has_the_rows_that_it_has_in_the_landing(cases: int, form: str, tmp_path: Path) -> None:
    rng = random.Random(seeds.one())
    home = Home.open(tmp_path / "home", create=True)
    home = home.declare_settings(vertices={"ids": "string"}, values=VALUES, ingest={"max_bad_share": 0.99})
    plain = {"src": ["a", "b"], "dst": ["c", "1"], "weight": ["0.5", "-0"], "on": ["true", "0"], "kind": ["x", "y"]}
    for _ in range(cases):
        table: list[list[str | None]] = [["first", "row", "1.5", "true", "z"]]
        for _ in range(rng.randrange(1, 12)):
            row: list[str | None] = [rng.choice(plain[name]) for name in TYPES]
            for _ in range(rng.choice([0, 1, 1, 2])):
                row[rng.randrange(len(row))] = rng.choice([*NUMBERS, *WORDS, None, "a\nb", " \r\n", '",'])
            table.append(row)
        path = write_texts(tmp_path / "x", form, list(TYPES), table)
        columns = tuple(TYPES)
        landing.land(home, [path], landing.LandOptions(columns, header=True if form == "csv" else None, epoch=1))
        (file,) = landing.list_batches(home)[1].files
        assert rows_of(Path(file.location)) == rows_of(path), table
