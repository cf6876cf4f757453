"""Set-up does each step once, goes on where it stopped, and says what to do about a step that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from altneu.pipeline.errors import AltneuError
from altneu.pipeline.local import compile_kernels, java, setup
from altneu.pipeline.local.setup import Step, set_up


def steps(done: list[str], fail: set[str]) -> list[Step]:
    def work(name: str) -> str:
        if name in fail:
            raise subprocess.CalledProcessError(1, name, stderr="first line\nno network")
        done.append(name)
        return "made"

    return [
        Step(name, f"step {name}", lambda name=name: keys[name], lambda say, name=name: work(name), "check the network")
        for name in keys
    ]


keys = {"one": "1", "two": "1", "three": "1"}


def test_each_step_is_done_once_and_again_when_what_it_depends_on_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(setup, "_setup_steps", lambda assets: steps(done, set()))
    said: list[str] = []
    assert set_up(said.append, tmp_path) == ["one", "two", "three"] == done
    assert any("step two: made" in line for line in said)
    assert set_up(said.append, tmp_path) == []
    monkeypatch.setitem(keys, "two", "2")
    assert set_up(said.append, tmp_path) == ["two"]


def test_an_interrupted_set_up_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fail = {"two"}
    monkeypatch.setattr(setup, "_setup_steps", lambda assets: steps(done, fail))
    with pytest.raises(AltneuError) as raised:
        set_up(lambda text: None, tmp_path)
    assert "step two" in raised.value.what and "no network" in raised.value.what
    assert raised.value.next == "check the network; then: altneu setup"
    fail.clear()
    assert set_up(lambda text: None, tmp_path) == ["two", "three"]
    assert done == ["one", "two", "three"]


def test_what_s3_needs_is_brought_on_demand_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = setup._setup_steps

    def key() -> str:
        return next(step for step in made(tmp_path) if step.name == "jars").key()

    monkeypatch.setattr(setup, "_setup_steps", lambda assets: [])
    before = key()
    set_up(lambda text: None, tmp_path)
    assert key() == before, "60 MB that nobody has asked for"
    set_up(lambda text: None, tmp_path, s3=True)
    asked = key()
    assert asked != before, "the step is done again"
    set_up(lambda text: None, tmp_path)
    assert key() == asked, "and stays done"


@pytest.mark.parametrize(("version", "right"), [("11", False), ("17", True), ("21", True), ("25", False)])
def test_a_java_counts_when_spark_supports_it(tmp_path: Path, version: str, right: bool) -> None:
    command = tmp_path / "java"
    lines = [f"    java.home = {tmp_path}/jdk", f"    java.specification.version = {version}"]
    command.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    command.chmod(0o755)
    assert java.java_home_of(str(command)) == (f"{tmp_path}/jdk" if right else None)
    assert java.java_home_of(str(tmp_path / "none")) is None


@pytest.mark.slow  # infra/setup compiles all of them before the tests
def test_the_groups_of_kernels_leave_compiled_code_for_the_next_process(tmp_path: Path) -> None:
    """The smallest group, with a cache of its own: a second process finds all of it there and compiles nothing."""
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(Path(compile_kernels.__file__).parents[3]),
        "PATH": "",
    }
    code = (
        "import numba.core.event as event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    from altneu.pipeline.local.compile_kernels import GROUPS; GROUPS['views']()\n"
        "print(len(recorder.buffer))"
    )
    compiled = [
        int(
            subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(2)
    ]
    assert compiled[0] > 0 and compiled[1] == 0
