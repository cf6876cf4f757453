"""What nobody expected: one line, and a file with the rest that holds no password; wrong settings are no incident."""

from __future__ import annotations

from pathlib import Path

import pytest

import altneu.pipeline.landing.epoch_states
from altneu.pipeline import cli
from altneu.pipeline.cli import crash_report
from altneu.pipeline.errors import AltneuError, RunFailed, UsageError


def command(home: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--home", str(home), *words])
    return int(ended.value.code or 0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    (path / "altneu.toml").write_text("# password = hunter2\n")
    return path


def test_one_line_and_a_file(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise KeyError("postgresql://me:hunter2@host/db")

    monkeypatch.setattr(altneu.pipeline.landing.epoch_states, "list_epoch_rows", broken)
    assert command(home, "status") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and "KeyError" in said[0] and "Traceback" not in "".join(said)
    (log,) = (home / "logs").iterdir()
    assert str(log) in said[2]
    kept = log.read_text()
    assert "Traceback" in kept and "in broken" in kept and "== versions" in kept
    assert "hunter2" not in kept


def test_a_failed_stage_has_its_cause_in_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        try:
            raise ZeroDivisionError("deep inside")
        except ZeroDivisionError as error:
            raise RunFailed("stage truss failed.", "run it again") from error

    monkeypatch.setattr(altneu.pipeline.landing.epoch_states, "list_epoch_rows", broken)
    assert command(home, "status") == 1
    assert "stage truss failed." in capsys.readouterr().err
    (log,) = (home / "logs").iterdir()
    assert "deep inside" in log.read_text()


def test_what_was_expected_is_told_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "altneu.toml").write_text("[spark]\nmaster = 'nonsense'\n")
    assert command(home, "status") == 2
    assert "[spark] master = 'nonsense'" in capsys.readouterr().err
    assert not (home / "logs").exists()
    assert not crash_report.is_unexpected(UsageError("x"))
    inner = AltneuError("y")
    inner.__cause__ = UsageError("x")
    assert not crash_report.is_unexpected(inner)


def test_where_the_home_is_not_there_the_file_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    log = crash_report.write_crash_report(tmp_path / "none", ValueError("odd"))
    assert log is not None and log.parent == tmp_path and "ValueError: odd" in log.read_text()


def test_a_wrong_master_in_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from altneu.pipeline.home.home import Home
    from altneu.pipeline.storage.session import master_of

    monkeypatch.setenv("ALTNEU_MASTER", "nonsense")
    with pytest.raises(UsageError, match="ALTNEU_MASTER = 'nonsense': expected \"local"):
        master_of(Home.open(home))
