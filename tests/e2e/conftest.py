"""`altneu(...)` runs a command in this process; `typed(...)` one that needs no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline import cli


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Altneu = Callable[..., Outcome]


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Altneu:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, home: Path = tmp_path / "home") -> Outcome:
        capsys.readouterr()
        code = 0
        try:
            cli.main(["--home", str(home), *map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def altneu(typed: Altneu, spark: SparkSession) -> Altneu:
    """In the session of the suite, which is there by now."""
    return typed
