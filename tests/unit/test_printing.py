"""Files of rows: one after the other, whole or not at all, in the format that their name says."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline.cli import printing
from altneu.pipeline.cli.printing import Format, format_ranges, write_rows
from altneu.pipeline.errors import UsageError

COLUMNS = ("src", "dst", "name")


@pytest.mark.parametrize("format", [Format.csv, Format.json])
def test_a_row_is_written_before_the_next_is_asked_for(format: Format) -> None:
    stream = StringIO()

    def rows() -> Iterator[dict[str, object]]:
        for number in range(100):
            assert number == 0 or f"row {number - 1}" in stream.getvalue()
            yield {"src": number, "dst": number + 1, "name": f"row {number}"}

    printing._write_format(rows(), COLUMNS, format, stream)
    assert "row 99" in stream.getvalue()


def test_parquet_is_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "CHUNK", 10)
    rows = [{"src": number, "dst": -number, "name": "ä"} for number in range(35)]
    assert write_rows(iter(rows), COLUMNS, Format.parquet, tmp_path / "e.parquet") == 35
    written = pq.ParquetFile(tmp_path / "e.parquet")
    assert (written.num_row_groups, written.read().to_pylist()) == (4, rows)


@pytest.mark.parametrize("many", [0, 1, 35])
def test_a_table_is_written_as_its_rows_are(tmp_path: Path, many: int) -> None:
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("name", pa.string())])
    rows = [{"src": n, "dst": -n, "name": None if n % 3 else f"row {n}"} for n in range(many)]
    table = pa.Table.from_pylist(rows, schema=schema)
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    assert write_rows(iter(rows), COLUMNS, Format.parquet, one, schema) == many
    assert write_rows(iter(()), COLUMNS, Format.parquet, other, schema, table) == many  # the rows are not asked for
    assert pq.read_table(one).equals(pq.read_table(other)) and pq.read_schema(one) == pq.read_schema(other)


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, object]]:
        yield {"src": 1, "dst": 2, "name": "a"}
        raise UsageError("no more")

    for format in (Format.csv, Format.json, Format.parquet):
        file = tmp_path / f"e.{format}"
        file.write_text("before")
        with pytest.raises(UsageError):
            write_rows(broken(), COLUMNS, format, file)
        assert file.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.json", "e.parquet"]


def test_nothing_has_its_columns_all_the_same(tmp_path: Path) -> None:
    assert write_rows([], COLUMNS, Format.csv, tmp_path / "e.csv") == 0
    assert (tmp_path / "e.csv").read_text().strip() == "src,dst,name"
    write_rows([], COLUMNS, Format.json, tmp_path / "e.json")
    assert (tmp_path / "e.json").read_text() == "[]\n"
    write_rows([], COLUMNS, Format.parquet, tmp_path / "e.parquet")
    assert pq.read_table(tmp_path / "e.parquet").column_names == list(COLUMNS)


def test_ranges() -> None:
    assert format_ranges([1, 2, 3, 7]) == "1…3, 7" and format_ranges([]) == ""
