"""A zip on the path is read again when it has changed, and else is not."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

import altneu.algorithms.zipimport_patch  # noqa: F401


def test_a_zip_is_read_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[str]()
    read = zipimport._read_directory  # type: ignore[attr-defined]

    def counted(archive: str) -> object:
        reads.append(archive)
        return read(archive)

    monkeypatch.setattr(zipimport, "_read_directory", counted)
    path = str(tmp_path / "some.zip")
    monkeypatch.syspath_prepend(path)
    for number in range(2):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"zipped_{number}.py", f"number = {number}")
        for _ in range(3):
            importlib.invalidate_caches()
        assert importlib.import_module(f"zipped_{number}").number == number
        importlib.invalidate_caches()  # the first after the import looks at it once
        first = reads.count(path)
        for _ in range(5):
            importlib.invalidate_caches()
        importlib.import_module(f"zipped_{number}")
        assert reads.count(path) == first
        monkeypatch.delitem(sys.modules, f"zipped_{number}")
