"""What a daemon does itself: whom it serves, how its commands end, when it ends. The commands here need no Spark."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from altneu.pipeline.storage import daemon_client
from tests import seeds
from tests.daemon_places import SECONDS, Place, await_truth

COMMANDS = [
    ["status"],
    ["status", "--format", "json"],
    ["show", "totals"],
    ["show", "totals", "--format", "csv", "--output", "totals.csv"],
    ["plan", "--log-format", "json"],
    ["report"],
    ["status", "--failed", "--all"],
    ["show", "nothing"],
    ["run"],
    ["incidents", "-v"],
    ["--version"],
]


def without_daemon(text: str) -> str:
    """What `altneu status` says but for the daemon, which only one of two homes has."""
    text = re.sub(r"^daemon: (.|\n)*?(?=^(nothing is landed|epoch |held ))", "", text, flags=re.MULTILINE)
    return re.sub(r'"daemon": (null|\{(.|\n)*?\n \})', "", text)


def test_status_says_that_a_daemon_is_there(place: Place) -> None:
    assert json.loads(place.run("status", "--format", "json")[1])["daemon"] is None
    _, status = place.serve_and_wait()
    found = json.loads(place.run("status", "--format", "json")[1])["daemon"]
    assert (found["pid"], found["idle_minutes"]) == (status.pid, status.idle_minutes)
    assert f"daemon: process {status.pid}, since" in place.run("status")[1].replace("\n", " ")


def test_commands_by_daemon_are_those_of_processes(place: Place, tmp_path: Path) -> None:
    """Each twice and shuffled: output, exit code, and the files that are written, with their modes."""
    alone = Place(tmp_path / "alone" / "home", place.environment)
    shutil.copytree(place.path, alone.path)
    _, status = place.serve_and_wait()
    options = [
        {"env": place.environment | {"COLUMNS": str(60 + 40 * (number % 3))}, "umask": 0o077 if number % 2 else 0o022}
        for number in range(len(COMMANDS))
    ]
    expected = [alone.run(*words, **how) for words, how in zip(COMMANDS, options, strict=True)]
    chosen = [*range(len(COMMANDS))] * 2
    random.Random(seeds.one()).shuffle(chosen)
    for number in chosen:
        found = place.run(*COMMANDS[number], **options[number])
        mine = tuple(str(part).replace(str(alone.path), str(place.path)) for part in expected[number])
        assert tuple(without_daemon(str(part)) for part in found) == tuple(map(without_daemon, mine)), COMMANDS[number]
    file = Path("totals.csv")
    assert (place.path / file).read_bytes() == (alone.path / file).read_bytes()
    assert stat.S_IMODE((place.path / file).stat().st_mode) == stat.S_IMODE((alone.path / file).stat().st_mode)
    again = place.ready()
    assert again is not None and again.pid == status.pid
    assert "swordfish" not in place.log


def read_terminal(place: Place, *words: str) -> bytes:
    """What a command shows in a terminal of 50 columns, which its standard streams are."""
    main, side = pty.openpty()
    environment = place.environment | {"TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(place.path), *words]
    process = subprocess.Popen(line, env=environment, stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    shown = b""
    while select.select([main], [], [], SECONDS)[0]:
        try:
            shown += os.read(main, 1 << 12)
        except OSError:  # the last process has closed the terminal
            break
    process.wait(SECONDS)
    os.close(main)
    return shown


def test_a_terminal_shows_the_same(place: Place) -> None:
    place.serve_and_wait()
    by_daemon, alone = (read_terminal(place, "status", "--last", "x", *more) for more in ([], ["--no-daemon"]))
    assert by_daemon == alone and b"\x1b[" in alone


def awaiting_input(place: Place) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A command that reads its standard input, and the process that executes it."""
    client = place.start("land", "-", "--columns", "src,dst", "--epoch", "5", stdin=subprocess.PIPE)
    status = place.ready()
    assert status is not None
    daemon = psutil.Process(status.pid)

    def command() -> psutil.Process | None:
        forks = [each for each in daemon.children() if each.cmdline() == daemon.cmdline()]
        return forks[0] if forks and os.path.exists(f"{place.path}/landing") else None

    return client, await_truth(command)


def test_standard_input_reaches_the_command(place: Place) -> None:
    place.serve_and_wait()
    client, _ = awaiting_input(place)
    out, err = client.communicate("src,dst\n1,2\n", timeout=SECONDS)
    assert client.returncode == 0, err
    assert (
        out.startswith("landed 1 rows in 1 epoch(s): 1970-01-06") and (place.path / "landing/epoch=1970-01-06").is_dir()
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_of_the_client_ends_the_command_and_the_daemon_lives(place: Place, number: signal.Signals) -> None:
    place.serve_and_wait()
    client, command = awaiting_input(place)
    await_truth(lambda: catches(command, number))
    client.send_signal(number)
    client.wait(timeout=SECONDS)  # the end of standard input, which `communicate` brings, would end the command as well
    _, err = client.communicate()
    assert (client.returncode, err.count("interrupted during")) == (130, 1), err
    assert not command.is_running() and place.run("status")[0] == 0 and place.ready()


def test_a_command_that_does_not_end_at_a_signal_is_killed(place: Place) -> None:
    place.environment["TEST_STOP_SECONDS"] = "1"
    place.serve_and_wait()
    client, command = awaiting_input(place)
    command.suspend()
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=SECONDS)
    assert client.returncode == 130 and not command.is_running() and place.run("status")[0] == 0 and place.ready()


def catches(process: psutil.Process, number: signal.Signals) -> bool:
    """Does the process have a handler for the signal?"""
    text = Path(f"/proc/{process.pid}/status").read_text()
    mask = next(line for line in text.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def test_a_client_that_vanishes_ends_its_command(place: Place) -> None:
    place.serve_and_wait()
    client, command = awaiting_input(place)
    await_truth(lambda: catches(command, signal.SIGTERM))
    client.kill()
    await_truth(lambda: not command.is_running())
    assert place.run("status")[0] == 0 and place.ready()


def test_a_killed_command_ends_its_client_in_the_same_way(place: Place) -> None:
    place.serve_and_wait()
    client, command = awaiting_input(place)
    command.kill()
    assert client.wait(SECONDS) == -signal.SIGKILL
    assert place.run("status")[0] == 0 and place.ready()


def test_a_killed_daemon_takes_its_commands_along_and_another_one_takes_its_place(place: Place) -> None:
    daemon, _ = place.serve_and_wait()
    client, command = awaiting_input(place)
    daemon.kill()
    _, err = client.communicate(timeout=SECONDS)
    assert client.returncode == 1 and "the daemon has ended" in err
    await_truth(lambda: not command.is_running())
    assert (place.path / "daemon" / "socket").exists()  # nobody listens at it
    assert place.run("status") == place.run("status", "--no-daemon")
    place.serve_and_wait()
    assert place.run("daemon", "stop")[:2] == (0, "the daemon has ended\n")
    assert not (place.path / "daemon" / "socket").exists()


def test_of_two_daemons_that_start_at_once_one_serves(place: Place) -> None:
    started = [place.serve() for _ in range(3)]
    status = await_truth(place.ready)
    others = [each for each in started if each.pid != status.pid]
    assert [each.wait(SECONDS) for each in others] == [1, 1]
    assert place.log.count("another daemon of this home is running") == 2
    assert place.run("daemon", "start")[1].startswith("the daemon of this home runs already")


def test_one_that_stays_waits_for_the_other_to_end(place: Place) -> None:
    first, status = place.serve_and_wait()
    second = place.serve("--stay")
    assert place.run("daemon", "stop")[0] == 0 and first.wait(SECONDS) == 0
    after = await_truth(place.ready)
    assert after.pid == second.pid != status.pid and after.idle_minutes is None


def test_nobody_else_may_connect(place: Place) -> None:
    _, status = place.serve_and_wait()
    socket = Path(status.socket)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600 and stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    socket.parent.chmod(0o755)
    assert daemon_client.connect(place.path) is None  # who knows who listens there


def test_a_home_that_takes_no_socket_has_it_in_the_runtime_folder(place: Place, runtime_folder: Path) -> None:
    (place.path / "daemon" / "socket").mkdir(parents=True)
    daemon, status = place.serve_and_wait()
    assert Path(status.socket).parent == runtime_folder / "altneu" and status.pid == daemon.pid
    assert "no socket at" in place.log
    assert place.run("daemon", "stop")[0] == 0


def test_a_path_that_is_too_long_for_a_socket_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, outside = daemon_client.socket_paths(Path("/home"))
    assert inside == Path("/home/daemon/socket")
    (only,) = daemon_client.socket_paths(Path("/home") / ("x" * 100))
    assert only.parent == outside.parent and only.name != outside.name
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/" + "x" * 60)
    (instead,) = daemon_client.socket_paths(Path("/home") / ("x" * 100))
    assert instead.parent == Path(tempfile.gettempdir()) / f"altneu-{os.getuid()}" and instead.name == only.name


def test_other_settings_of_spark_bring_a_fresh_daemon(place: Place) -> None:
    _, status = place.serve_and_wait()
    toml = place.path / "altneu.toml"
    toml.write_text(toml.read_text() + "\n[checks]\n")
    code, out, err = place.run("status")
    same = place.ready()
    assert (code, err) == (0, "") and same is not None and same.pid == status.pid
    environment = place.environment | {"TZ": "Asia/Tokyo"}
    code, _, err = place.run("status", env=environment)
    assert code == 0 and err == "the daemon of this home has another $TZ; this command runs without it\n"
    toml.write_text(toml.read_text() + '\n[spark]\nconf = { "spark.driver.memory" = "1g" }\n')
    code, again, err = place.run("status")
    assert (code, without_daemon(again)) == (0, without_daemon(out))
    assert err == (
        "the daemon of this home has other settings of [spark], and a fresh one takes its place; "
        "this command runs without it\n"
    )
    assert not place.run("status", "-q", env=environment)[2]


def test_the_same_python_by_another_path_is_the_same(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daemon_client.read_needs(place.path)
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(link))
    monkeypatch.setattr(sys, "executable", str(link / "bin" / "python"))
    assert daemon_client.read_needs(place.path) == before
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = daemon_client.describe_differences(before, daemon_client.read_needs(place.path))
    assert found == ("has another Python, and has other jars", True)


def test_a_moved_home_is_not_served_by_its_old_daemon(place: Place, tmp_path: Path) -> None:
    daemon, _ = place.serve_and_wait()
    moved = Place(tmp_path / "moved", place.environment)
    place.path.rename(moved.path)
    try:
        code, _, err = moved.run("daemon", "status")
        assert code == 0, err
        assert daemon.wait(SECONDS) == 0
    finally:
        moved.path.rename(place.path)
    assert "the daemon ends: the home has gone" in place.log


def test_it_ends_when_nobody_needs_it(place: Place) -> None:
    (place.path / "altneu.toml").write_text("[spark]\nidle_minutes = 0.02\n")
    daemon, _ = place.serve_and_wait()
    assert daemon.wait(SECONDS) == 0
    assert "the daemon ends: no command for" in place.log


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_neither_ends_nor_keeps_it(place: Place, hours: int) -> None:
    """The clock is set back, or forwards, by an hour in each second; commands by daemon have that clock, too."""
    place.environment["TEST_HOURS_BACK"] = str(hours)
    toml = place.path / "altneu.toml"
    toml.write_text(toml.read_text() + "\n[spark]\nidle_minutes = 0.05\n")
    daemon, status = place.serve_and_wait()
    assert 0 <= status.seconds < SECONDS and status.idle_seconds < SECONDS
    assert place.run("status")[0] == 0 and place.run("show", "totals")[0] == 0
    assert daemon.wait(SECONDS) == 0
    assert "the daemon ends: no command for" in place.log


def test_it_ends_on_a_full_disk(place: Place) -> None:
    place.environment["TEST_LEAST_DISK"] = str(1 << 60)
    assert place.serve().wait(SECONDS) == 0
    assert "the daemon ends: the disk is full" in place.log


@pytest.mark.parametrize("setting", ["daemon = false", 'master = "sc://localhost"'])
def test_a_home_that_has_no_use_for_it_gets_none(place: Place, setting: str) -> None:
    (place.path / "altneu.toml").write_text(f"[spark]\n{setting}\n")
    code, _, err = place.run("daemon", "start")
    assert code == 2 and setting.split()[0] in err
