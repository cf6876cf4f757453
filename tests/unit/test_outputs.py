"""Where an output goes: a file is replaced as a whole through its links, a pipe or a device is written into."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from altneu.pipeline.cli.printing import Format, output_format, write_rows
from altneu.pipeline.errors import UsageError
from altneu.pipeline.home import whole_files
from altneu.pipeline.home.whole_files import open_whole_file
from altneu.pipeline.interrupt import Interrupted
from tests.report.seed import DAY, Seed

ROWS = [{"src": 1, "dst": 2}, {"src": 3, "dst": 4}]
CSV = b"src,dst\r\n1,2\r\n3,4\r\n"


def write(path: Path, format: Format | None = None) -> None:
    """As a command does, in a folder of which nothing else is left."""
    assert write_rows(iter(ROWS), ("src", "dst"), output_format(format, path), path) == 2
    if path.parent.is_dir():
        assert not [each for each in path.parent.iterdir() if each.name.startswith(".altneu")]


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path: Path) -> None:
    """Also a chain of links, relative ones, and one whose file is not there yet."""
    (tmp_path / "data").mkdir()
    real, link, chain = tmp_path / "data" / "real.csv", tmp_path / "link.csv", tmp_path / "chain.csv"
    link.symlink_to("data/real.csv")
    chain.symlink_to(link)
    for each in (link, chain):
        real.unlink(missing_ok=True)  # so the link dangles
        write(each)
        assert link.is_symlink() and chain.is_symlink() and not real.is_symlink()
        assert real.read_bytes() == CSV and list(real.parent.iterdir()) == [real]
        real.write_text("before")
        write(each)
        assert link.is_symlink() and chain.is_symlink() and real.read_bytes() == CSV


def test_a_link_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    with pytest.raises(UsageError, match="a link that points to itself"):
        write(tmp_path / "a.csv")
    lost = tmp_path / "lost.csv"
    lost.symlink_to("away/rows.csv")
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path}/away"):
        write(lost)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("before")
    file.chmod(mode)
    write(file)
    assert file.stat().st_mode & 0o7777 == mode
    fresh = tmp_path / "fresh.csv"
    write(fresh)
    umask = os.umask(0)
    os.umask(umask)
    assert fresh.stat().st_mode & 0o777 == 0o666 & ~umask


def test_another_name_of_a_file_keeps_what_it_had(tmp_path: Path) -> None:
    file, other = tmp_path / "rows.csv", tmp_path / "other.csv"
    file.write_text("before")
    other.hardlink_to(file)
    write(file)
    assert (file.read_bytes(), other.read_text()) == (CSV, "before")


@pytest.mark.parametrize("format", [Format.csv, Format.json, Format.parquet, Format.table, None])
def test_a_named_pipe_is_written_into(tmp_path: Path, format: Format | None) -> None:
    pipe, got = tmp_path / "pipe", BytesIO()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.write(pipe.read_bytes()))
    reader.start()
    write(pipe, format)
    reader.join(60)
    assert pipe.is_fifo()
    if format is Format.parquet:
        assert pq.read_table(got).to_pylist() == ROWS
    elif format is Format.json:
        assert json.loads(got.getvalue()) == ROWS
    else:
        assert got.getvalue() == (b"src  dst\n  1    2\n  3    4\n" if format is Format.table else CSV)


def test_devices_and_descriptors_stay_what_they_are(tmp_path: Path) -> None:
    write(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    file = tmp_path / "appended"
    with file.open("wb", buffering=0) as stream:
        stream.write(b"before\n")
        for name in (f"/dev/fd/{stream.fileno()}", f"/proc/self/fd/{stream.fileno()}"):
            write(Path(name))
        (tmp_path / "link").symlink_to(f"/dev/fd/{stream.fileno()}")
        write(tmp_path / "link")
    assert file.read_bytes() == b"before\n" + 3 * CSV


def test_what_cannot_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        output_format(None, tmp_path / "folder.csv")
    for closed, says in (("", "cannot be written"), ("rows.csv", "you have no permission to write this file")):
        (tmp_path / "rows.csv").touch()
        refused = str(tmp_path / closed) if closed else str(tmp_path)
        with monkeypatch.context() as patch:  # root may write everywhere
            patch.setattr(os, "access", lambda path, mode, refused=refused: str(path) != refused)
            with pytest.raises(UsageError, match=says):
                output_format(None, tmp_path / "rows.csv")
            output_format(None, Path("/dev/null"))


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), Interrupted(), UsageError("query")]
)
@pytest.mark.parametrize("format", [Format.csv, Format.json, Format.parquet])
def test_what_stops_the_rows_leaves_the_former_file(tmp_path: Path, error: BaseException, format: Format) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise error

    for before in ("before", None):
        file = tmp_path / f"rows.{format}"
        file.unlink(missing_ok=True)
        if before:
            file.write_text(before)
        with pytest.raises(type(error)):
            write_rows(rows(), ("src", "dst"), format, file)
        assert {each.name: each.read_text() for each in tmp_path.iterdir()} == ({file.name: before} if before else {})


def test_a_full_disk_that_shows_when_the_file_is_synced_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("before")

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(whole_files.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"), open_whole_file(file) as stream:
        stream.write(b"after")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    seed = Seed(tmp_path_factory.mktemp("home"))
    seed.run({DAY: (9, 0)}, {DAY: {"vertices": 4, "edges": 6, "triangles": 4, "truss4": 6}})
    return seed.home.path


def show(home: Path, *options: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), "show", "trusses", *options]
    return subprocess.run(command, stderr=subprocess.PIPE, check=False, **how)


@pytest.mark.parametrize("output", ["-", "/dev/fd/1", pytest.param("/dev/stdout", marks=pytest.mark.slow)])
def test_standard_output_has_the_rows_and_nothing_else(home: Path, tmp_path: Path, output: str) -> None:
    rows = b"epoch,label,k,edges,exactly\r\n" + b"".join(b"12600,2004-07-01,%d,6,%d\r\n" % each for each in SIZES)
    done = show(home, "--output", output, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, rows), done.stderr
    assert b"3 row(s) written" in done.stderr
    appended = tmp_path / "log"
    appended.write_bytes(b"before\n")
    with appended.open("ab") as stream:  # as a shell's >> does
        done = show(home, "--output", output, stdout=stream)
    assert done.returncode == 0, done.stderr.decode()
    assert appended.read_bytes() == b"before\n" + rows


def test_standard_output_has_rows_of_other_formats(home: Path) -> None:
    parquet = show(home, "--output", "-", "--format", "parquet", stdout=subprocess.PIPE).stdout
    assert [(row["k"], row["exactly"]) for row in pq.read_table(BytesIO(parquet)).to_pylist()] == list(SIZES)
    listed = json.loads(show(home, "--output", "-", "--format", "json", stdout=subprocess.PIPE).stdout)
    assert [(row["k"], row["exactly"]) for row in listed] == list(SIZES)


SIZES = ((4, 6), (3, 0), (2, 0))
