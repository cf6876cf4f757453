"""A disk that fills up in the middle of a run: a clear error, nothing lost, and the same command works afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from altneu.pipeline.run import runner
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.builders import make_clique
from tests.canonical import History
from tests.e2e.conftest import Altneu

pytestmark = pytest.mark.usefixtures("tiny", "unaudited")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "altneu-test", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk(altneu: Altneu, numbers: History, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_disk / "home"
    home, _ = numbers.copy(path)
    before = altneu("show", "totals", "--format", "json", home=path).out
    home_helpers.put(home, 4, make_clique(*range(9)))
    filler = small_disk / "filler"
    real = runner.execute_stage

    def stage(ledger: Ledger, run_id: str, name: str, *rest, **more):  # type: ignore[no-untyped-def]
        if name == "triangles" and not filler.exists():
            descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
            with pytest.raises(OSError, match="No space left"):
                while True:
                    os.write(descriptor, b"x" * 4096)
            os.close(descriptor)
        return real(ledger, run_id, name, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "execute_stage", stage)
        failed = altneu("run", "4", home=path)
    assert failed.code == 1
    assert "full" in failed.err or "No space left" in failed.err, failed.err
    assert "make room on the disk" in failed.err
    assert altneu("show", "totals", "--format", "json", home=path).out == before
    filler.unlink()
    assert altneu("run", "4", home=path).code == 0
    after = json.loads(altneu("show", "totals", "--format", "json", home=path).out)
    assert (after[0]["edges"], after[0]["triangles"], after[0]["max_trussness"]) == (36, 84, 9)
