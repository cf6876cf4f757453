"""Vertices and epochs below zero are arguments, wherever options stand: nobody has to know what -- does."""

from __future__ import annotations

from pathlib import Path

import pytest

from altneu.pipeline import cli


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("plan -3 -1", 0, "1 missing"),
        ("plan -1 -1 --format json", 0, '"label": "-1"'),
        ("plan --format json -- -1 -1", 0, '"label": "-1"'),
        ("run -3", 2, "epoch -3 is not landed"),
        ("run -q -3 --hold", 2, "epoch -3 is not landed"),
        ("explain edge -5 7", 1, "nothing is published yet"),
        ("explain edge -5 --as-of -1 -7", 1, "nothing is published yet"),
        ("explain vertex -5x", 1, "nothing is published yet"),
        ("status --since -2", 0, "missing"),
        ("rollback -1", 2, "there is no revision -1"),
        ("run -1 --nonsense", 2, "No such option: --nonsense"),
        ("run -x", 2, "No such option: -x"),
    ],
)
def test_a_number_below_zero_is_no_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, says: str
) -> None:
    (tmp_path / "one.csv").write_text("-5,7\n")

    def call(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(tmp_path / "home"), *arguments])
        return int(ended.value.code or 0)

    assert call("land", str(tmp_path / "one.csv"), "--columns", "src,dst", "--epoch", "-1") == 0
    capsys.readouterr()
    found = call(*words.split())
    shown = capsys.readouterr()
    assert (found, says in shown.out + shown.err) == (code, True), shown
