"""A file that cannot be read is named, with its reason, by a reader, by `land`, and in the landing; nothing crashes."""

from __future__ import annotations

import errno
import gzip
import io
import random
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from altneu.pipeline import landing
from altneu.pipeline.errors import AltneuError, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.file_reader import read_blocks
from altneu.pipeline.landing.row_schema import BrokenFileError, RowSchema
from altneu.pipeline.state import filesystem
from altneu.pipeline.state.ledger import Ledger
from tests import seeds

LAYOUT = RowSchema({"src": "long", "dst": "long"})
ROWS = "src,dst\n" + "".join(f"{n},{n * 7 % 501}\n" for n in range(500))
PACKED = gzip.compress(ROWS.encode())


def flip_bit(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]


def pack_parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"src": range(500), "dst": range(500)}), stream, write_page_checksum=True)
    return stream.getvalue()


PARQUET = pack_parquet()
DAMAGED = {
    "a flipped bit": ("a.csv.gz", flip_bit(PACKED, 100), "gzip stream is damaged|CRC check failed"),
    "a flipped checksum": ("a.csv.gz", flip_bit(PACKED, len(PACKED) - 6), "CRC check failed"),
    "a truncated stream": ("a.csv.gz", PACKED[:-30], "gzip stream is truncated"),
    "no gzip": ("a.csv.gz", ROWS.encode(), "[Nn]ot a gzipped file"),
    "gzip without its name": ("a.csv", PACKED, "packed by gzip: let its name end with .gz"),
    "truncated JSON": ("a.jsonl.gz", gzip.compress(b'{"src": 1, "dst": 2}\n' * 500)[:-30], "truncated"),
    "no Parquet": ("a.parquet", ROWS.encode(), "it cannot be read: .*[Pp]arquet"),
    "a broken footer": ("a.parquet", flip_bit(PARQUET, len(PARQUET) - 7), "it cannot be read: "),
    "a truncated Parquet": ("a.parquet", PARQUET[:-100], "it cannot be read: "),
    "a broken page": ("a.parquet", flip_bit(PARQUET, 200), "it cannot be read: .*could not verify page|corrupt"),
    "Parquet without its name": ("a.csv", PARQUET, "it is Parquet"),
    "UTF-16": ("a.csv", ROWS.encode("utf-16"), "it is UTF-16"),
    "UTF-16 in JSON": ("a.jsonl", '{"src": 1}'.encode("utf-16"), "it is UTF-16"),
    "UTF-32": ("a.csv", ROWS.encode("utf-32"), "it is UTF-32"),
    "a header in Latin-1": ("a.csv", "src,dst,größe\n1,2,3\n".encode("latin-1"), "header is not UTF-8"),
    "a spreadsheet": ("a.csv", b"PK\x03\x04\x14\0\x06\0\x08\0", "ZIP archive or a spreadsheet"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_named_with_its_reason(what: str, tmp_path: Path) -> None:
    name, content, says = DAMAGED[what]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BrokenFileError, match=says):
        list(read_blocks(path, LAYOUT))
    home = Home.open(tmp_path / "home", create=True)
    if what == "gzip without its name":  # that `land` looks into a file is its own matter
        return
    with pytest.raises(AltneuError) as raised:
        landing.land(home, [path], landing.LandOptions(("src", "dst"), header=".csv" in name or None, epoch=1))
    assert str(path) in raised.value.what and "Nothing was landed" in raised.value.what and raised.value.next
    assert not landing.list_batches(home)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet"])
def test_a_file_that_may_not_be_read_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read every file, so that the opener says what it would say to others."""
    home = Home.open(tmp_path / "home", create=True)
    folder = home.landing / "epoch=1"
    folder.mkdir(parents=True)
    path = folder / name
    content = {"a.csv": ROWS.encode(), "a.csv.gz": PACKED, "a.jsonl": b'{"src": 1, "dst": 2}\n', "a.parquet": PARQUET}
    path.write_bytes(content[name])
    (folder / "_SUCCESS").touch()

    def refuse(*args: object, **kwargs: object) -> IO[bytes]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    assert list(read_blocks(path, LAYOUT))
    before = landing.digest_batches(Ledger(home), landing.list_batches(home).values(), remember=False)
    monkeypatch.setattr(filesystem, "open_stream", refuse)
    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(BrokenFileError, match="it cannot be read: Permission denied"):
        list(read_blocks(path, LAYOUT))
    ledger = Ledger(home)
    now = landing.digest_batches(ledger, landing.list_batches(home).values())
    assert now != before and not ledger.digests.read()  # another content, so that a run reads it, and says why not


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home", create=True)
    for name in ("a.csv", "b.csv.gz", "c.parquet", "d.jsonl"):
        (home.landing / "epoch=1" / name).mkdir(parents=True)
        with pytest.raises(BrokenFileError, match=r"it cannot be read: .*([Ii]s a directory|path is a directory)"):
            list(read_blocks(home.landing / "epoch=1" / name, LAYOUT))
    assert landing.digest_batches(Ledger(home), landing.list_batches(home).values())
    with pytest.raises(UsageError, match="is a folder"):
        landing.land(home, [home.landing / "epoch=1" / "a.csv"], landing.LandOptions(("src", "dst"), epoch=1))


@pytest.mark.parametrize("cases", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_damage_anywhere_is_found_or_leaves_the_rows_as_they_were(cases: int, tmp_path: Path) -> None:
    """One flipped bit is found by the checksum, or it is one that holds no rows, in the header or after the last block.

    Python's gzip says which these are.
    """
    rng = random.Random(seeds.one())
    expected = [(n, n * 7 % 501) for n in range(500)]
    path = tmp_path / "a.csv.gz"
    for _ in range(cases):
        content = bytearray(PACKED)
        at = rng.randrange(len(content))
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content[: rng.choice([len(content), len(content), rng.randrange(1, len(content))])])
        try:
            rows = [(row["src"], row["dst"]) for block in read_blocks(path, LAYOUT) for row in block.rows.to_pylist()]
        except BrokenFileError:
            continue
        assert rows == expected and gzip.decompress(path.read_bytes()) == ROWS.encode(), at
