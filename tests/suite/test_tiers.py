"""What `infra/test` and `.ci/run` run: each tier's tests, the shares of the rest, and the checks beside them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import tiers

REPO = Path(__file__).resolve().parents[2]
PROGRAM = (
    '#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\ncase " {failing} " in *" $(basename "$0") "*) exit 1 ;; esac\n'
)


def make_program(file: Path, log: Path, failing: str = "") -> None:
    """Write a program that records how it was called."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PROGRAM.format(log=log, failing=failing))
    file.chmod(0o755)


def call_infra_test(folder: Path, *arguments: str, failing: str = "") -> tuple[int, str, list[str]]:
    """Run `infra/test` among programs that do nothing: its exit code, its output, what it has called."""
    log = folder / "log"
    for name in ("infra/setup", *(f".venv/bin/{name}" for name in ("python", "ruff", "mypy", "lint-imports"))):
        make_program(folder / name, log, failing)
    shutil.copy(REPO / "infra" / "test", folder / "infra")
    done = subprocess.run([folder / "infra" / "test", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr, log.read_text().splitlines() if log.exists() else []


DEFAULT = "-m not slow and not backend"
TIERS = {
    (): (DEFAULT, True),
    ("--quick",): (f"{DEFAULT} --quick", True),
    ("--backends",): ("-m backend and not slow", False),
    ("--all",): ("--dist loadgroup", True),
    ("--share", "3/8"): ("-m slow or backend --share 3/8 --minutes 25", False),
    ("tests/laws", "-x"): (f"{DEFAULT} tests/laws -x", True),
    ("--all", "tests/laws"): ("tests/laws", True),
}


@pytest.mark.parametrize("arguments", TIERS)
def test_a_tier_is_what_its_markers_say(arguments: tuple[str, ...], tmp_path: Path) -> None:
    chosen, lint = TIERS[arguments]
    code, _, called = call_infra_test(tmp_path, *arguments)
    (tests,) = [line for line in called if line.startswith("python -m pytest")]
    assert code == 0 and chosen in tests
    assert bool(re.search(r" -n [23] --dist loadgroup", tests)) == ("tests/laws" not in tests)
    assert ("mypy " in called, "ruff check" in called) == (lint, lint)
    assert ("python -m tests.tools" in called) == bool({"--backends", "--all"}.intersection(arguments))


@pytest.mark.parametrize("failing", ["python", "ruff", "mypy", "lint-imports"])
def test_every_check_runs_and_one_that_fails_is_the_exit_code(failing: str, tmp_path: Path) -> None:
    code, output, called = call_infra_test(tmp_path, failing=failing)
    assert code == 1 and len(called) == 6  # set-up, the tests, four checks
    assert ("FAILED" in output) == (failing != "python")


@pytest.mark.parametrize("share", ["", "8", "0/8", "a/b"])
def test_a_share_that_is_none(share: str, tmp_path: Path) -> None:
    code, output, called = call_infra_test(tmp_path, "--share", share)
    assert code == 2 and "--share needs K/N" in output and not [line for line in called if "pytest" in line]


# -- .ci/run ------------------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the script, and an `infra/test` that records how it is called."""
    folder = tmp_path / "repository"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(REPO / ".ci" / "run", folder / ".ci")
    make_program(folder / "infra" / "test", tmp_path / "log")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def call_ci(folder: Path, log: Path) -> tuple[int, list[str]]:
    log.unlink(missing_ok=True)
    done = subprocess.run([folder / ".ci" / "run"], capture_output=True, text=True)
    return done.returncode, log.read_text().splitlines()


@pytest.mark.needs("checkout")
def test_eight_landings_run_all_shares(repository: Path, tmp_path: Path) -> None:
    shares = []
    for number in range(8):
        code, (default, share) = call_ci(repository, tmp_path / "log")
        assert (code, default.strip()) == (0, "test")
        shares.append(share.removeprefix("test --share "))
        git(repository, "commit", "-qm", str(number), "--allow-empty")
    assert sorted(shares) == [f"{share}/8" for share in range(1, 9)]


@pytest.mark.needs("checkout")
def test_a_shallow_clone_has_a_share_too(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-qm", "second", "--allow-empty")
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    code, (_, share) = call_ci(tmp_path / "shallow", tmp_path / "log")
    assert code == 0 and tiers.parse_share(share.removeprefix("test --share "))


@pytest.mark.needs("checkout")
@pytest.mark.parametrize("failing", ["default", "share"])
def test_ci_fails_with_the_default_tests_and_runs_both(failing: str, repository: Path, tmp_path: Path) -> None:
    program = repository / "infra" / "test"
    condition = '[ "$1" = --share ]' if failing == "share" else '[ "$1" != --share ]'
    program.write_text(f'#!/bin/sh\necho "test $*" >>{tmp_path / "log"}\n! {condition}\n')
    code, called = call_ci(repository, tmp_path / "log")
    assert code == (failing == "default") and len(called) == 2


@pytest.mark.needs("checkout")
@pytest.mark.parametrize("again", ["passes", "fails"])
def test_what_fails_in_a_share_runs_once_more_alone(again: str, repository: Path, tmp_path: Path) -> None:
    names = ["tests/a.py::test_a[x y-'z']", "tests/b.py::test_b"]
    program = f"""#!/bin/sh
for argument; do echo "$argument $ALTNEU_FRESH_SEEDS" >>{tmp_path / "log"}; done
case "$1" in
    --share) printf '%s\\n' "{names[0]}" "{names[1]}" >"$ALTNEU_TEST_FAILURES"; exit 1 ;;
    --all) {"true" if again == "passes" else "false"} ;;
esac
"""
    (repository / "infra" / "test").write_text(program)
    code, called = call_ci(repository, tmp_path / "log")
    assert code == 0
    assert [line.rpartition(" ")[0] for line in called] == ["--share", "2/8", "--all", *names]
    assert {line.rpartition(" ")[2] for line in called} == {"2-1"}


def test_what_has_failed_is_listed_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(
        "import pytest, os\n"
        "@pytest.fixture\ndef broken():\n    raise OSError\n"
        "@pytest.mark.parametrize('x', ['a b', 'c@d'])\ndef test_fails(x): assert not x\n"
        "def test_errors(broken): pass\n"
        "def test_passes(): pass\n"
        "def test_dies(): os._exit(1)\n"
    )
    file = tmp_path / "failures"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tiers", "-n", "1", "--max-worker-restart", "0"]
    environment = os.environ | {tiers.FAILURES: str(file), "PYTHONPATH": str(REPO)}
    subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, env=environment)
    names = ["fails[a b]", "fails[c@d]", "errors", "dies"]
    assert set(file.read_text().splitlines()) == {f"test_them.py::test_{name}" for name in names}


@pytest.mark.needs("checkout")
def test_ci_ends_what_hangs_even_if_a_process_outlives_it(repository: Path, tmp_path: Path) -> None:
    limited = tmp_path / "bin" / "timeout"
    limited.parent.mkdir()
    arguments = "--signal INT --kill-after 1 1"  # seconds, in place of the minutes that the script asks for
    limited.write_text(f'#!/bin/sh\nshift 5\nPATH="${{PATH#*:}}" exec timeout {arguments} "$@"\n')
    limited.chmod(0o755)
    (repository / "infra" / "test").write_text("#!/bin/sh\ntrap '' INT\necho begins\nsetsid sleep 45 &\nsleep 60\n")
    environment = {**os.environ, "PATH": f"{limited.parent}:{os.environ['PATH']}"}
    done = subprocess.run([repository / ".ci" / "run"], capture_output=True, text=True, env=environment, timeout=40)
    assert done.returncode == 1 and done.stdout.count("begins") == 2
    assert "This took longer than 40 minutes and was ended: infra/test\n" in done.stdout


# -- the plugin ---------------------------------------------------------------------------------------------------


class Item:
    """A test of a known length, as the plugin sees it."""

    fixturenames = ("spark",)

    def __init__(self, nodeid: str, seconds: float, group: str | None) -> None:
        self.nodeid, self.seconds, self.group = nodeid, seconds, group

    def iter_markers(self, name: str) -> Any:
        return iter(())

    def get_closest_marker(self, name: str) -> None:
        return None


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Some of them stay together."""
    monkeypatch.setattr(tiers, "name_group", lambda item: item.group)
    monkeypatch.setattr(tiers, "estimate_seconds", lambda item: item.seconds)
    return [
        Item(f"tests/{file}.py::test_{n}", n % 7 + 1, "together" if file == "b" else None)
        for file in "abc"
        for n in range(30)
    ]


def test_the_shares_are_all_tests_each_once_and_about_equal(items: list[Any]) -> None:
    shares = [tiers.take_share(items, share, 5) for share in range(1, 6)]
    assert sorted(item.nodeid for share in shares for item in share) == sorted(item.nodeid for item in items)
    assert shares == [tiers.take_share(items, share, 5) for share in range(1, 6)]
    assert sum(any(item.group for item in share) for share in shares) == 1  # they stay together
    sums = [sum(item.seconds for item in share) for share in shares if not any(item.group for item in share)]
    assert max(sums) - min(sums) <= 7


def test_the_longest_units_come_first_and_keep_their_order(items: list[Any]) -> None:
    order = tiers.put_in_order(items)
    assert [item.nodeid for item in order[:30]] == [item.nodeid for item in items if item.group]
    assert [item.seconds for item in order[30:]] == sorted(
        (item.seconds for item in items if not item.group), reverse=True
    )


def test_a_share_whose_time_is_over_begins_nothing_and_says_so(tmp_path: Path) -> None:
    """A real one, of a test that takes no time."""
    test = f"{__file__}::test_a_share_that_is_none"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--minutes", "0", test]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0 and "4 tests were left out for want of time." in done.stdout, done.stdout
    assert "4 skipped" in done.stdout
    assert "  4  tests/suite/test_tiers.py::test_a_share_that_is_none" in done.stdout
