"""A land that fails, is interrupted or killed at any of its file-system calls leaves the old batches and settings; the
next land restores what a killed one moved; two at once do not disturb each other."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from altneu.pipeline import landing
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import atomic_placement
from tests import seeds
from tests.unit import kill_land

State = tuple[dict[str, list[str]], str]


class Server:
    """Forks a land for each order: what a land needs is imported once."""

    def __init__(self) -> None:
        words = [sys.executable, str(Path(kill_land.__file__))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(
        self, home: Path, file: Path, options: dict[str, object], mode: str = "", at: int = 0
    ) -> tuple[int, str]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([str(home), str(file), json.dumps(options), mode, at]) + "\n")
        self.process.stdin.flush()
        code, said = json.loads(self.process.stdout.readline())
        return code, said


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.process.stdin.close()  # type: ignore[union-attr]
    found.process.wait()


def state(home: Path) -> State:
    """Epoch → its rows, as the folders have them; the settings."""
    rows = {}
    for folder in sorted((home / "landing").glob("epoch=*")):
        files = [file for file in sorted(folder.glob("*.csv"))]
        rows[folder.name] = sorted(line for file in files for line in file.read_text().splitlines()[1:])
    toml = home / "altneu.toml"
    return rows, toml.read_text() if toml.exists() else ""


def moves(server: Server, home: Path, file: Path, options: dict[str, object]) -> list[int]:
    """The numbers of the calls that rename something within the landing, and of the last ones."""
    return [int(word) for word in server(home, file, options, "trace")[1].split()[2:]]


@pytest.fixture
def before(tmp_path: Path, server: Server) -> tuple[Path, Path, State]:
    """A home with epochs 1970-01-01 and 02, and a file that replaces the second, adds a third, declares a column."""
    home, old, new = tmp_path / "home", tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("1,2,100\n3,4,90000\n")
    new.write_text("5,6,90001,7\n7,8,180000,8\n")
    code, said = server(home, old, {"columns": ["src", "dst", "ts"], "time_column": "ts", "every": "1d"})
    assert code == 0, said
    return home, new, state(home)


NEW = {"columns": ["src", "dst", "ts", "rating"], "time_column": "ts"}


def restored(home: Path) -> State:
    with atomic_placement.landing_lock(home / "landing"):
        atomic_placement.recover_landing(home / "landing")
    return state(home)


QUICK = (7, "kill", False), (7, "kill", True), (7, "signal", True), (7, "once", False), (7, "full", True)


@pytest.mark.parametrize(
    ("stride", "mode", "append"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in itertools.product([7, 1], ["kill", "signal", "once", "full"], [False, True])
    ],
)
def test_every_step(
    before: tuple[Path, Path, State], tmp_path: Path, server: Server, mode: str, append: bool, stride: int
) -> None:
    """With a stride, the moves themselves and every so many of the other calls."""
    home, file, old = before
    begin = random.Random(seeds.one()).randrange(1, stride + 1)
    options = NEW | {"append": append}
    code, said = server(shutil.copytree(home, tmp_path / "whole"), file, options)
    assert code == 0, said
    calls, new = int(said.split()[1]), state(tmp_path / "whole")
    assert calls > 20 and new != old
    reached = {"old": 0, "new": 0, "later": 0}
    for at in sorted(
        {
            calls,
            *range(begin, calls + 1, stride),
            *moves(server, shutil.copytree(home, tmp_path / "traced"), file, options),
        }
    ):
        place = shutil.copytree(home, tmp_path / f"{at}")
        code, said = server(place, file, options, mode, at)
        after = state(place)
        if mode == "kill":
            assert code == -9, (at, said)
        elif mode == "signal":  # nothing is half moved, and what is said is so
            assert code == 0 and (after in (old, new)), (at, said)
            told = "nothing was landed" if after == old else "everything is landed"
            assert told in said or (at == calls and after == new and "interrupted" not in said), (at, said)
        else:
            assert code == 0 or "No space left" in said or "new batches could not be placed" in said, (at, said)
            if code == 0:
                assert after == new, at
        opened = Home.open(place)
        unread = {landed.label for landed in landing.list_batches(opened).values() if landed.incomplete}
        if after not in (old, new):  # half moved: no run reads it, and the next land restores it
            assert unread, at
            reached["later"] += 1
        now = restored(place)
        assert now in (old, new) and (now == after or unread), at
        assert not [path for path in (place / "landing" / "_work").iterdir() if path.name != "lock"], at
        reached["new" if now == new else "old"] += 1
        if at % 5 == 0:
            assert server(place, file, NEW)[0] == 0 and state(place)[0].keys() == new[0].keys(), at
        shutil.rmtree(place)
    assert reached["old"] and (mode != "kill" or (reached["new"] and reached["later"])), reached


def test_a_restoration_that_is_killed_too(before: tuple[Path, Path, State], tmp_path: Path, server: Server) -> None:
    home, file, old = before
    seed = seeds.one()
    rng = random.Random(seed)
    assert server(shutil.copytree(home, tmp_path / "whole"), file, NEW)[0] == 0
    new = state(tmp_path / "whole")
    half = 0
    for at in moves(server, shutil.copytree(home, tmp_path / "traced"), file, NEW):
        place = shutil.copytree(home, tmp_path / f"{at}")
        server(place, file, NEW, "kill", at)
        half += state(place) not in (old, new)
        for _ in range(3):
            server(place, file, NEW, "kill", rng.randrange(1, 12))
        assert restored(place) in (old, new), (seed, at)
        shutil.rmtree(place)
    assert half


def test_a_first_land_that_fails_leaves_no_home(tmp_path: Path, server: Server) -> None:
    file = tmp_path / "new.csv"
    file.write_text("5,6,90001\n")
    options = {"columns": ["src", "dst", "ts"], "time_column": "ts", "every": "1d"}
    calls = int(server(tmp_path / "whole", file, options)[1].split()[1])
    for at in range(1, calls - 2, 3):
        code, said = server(tmp_path / "home", file, options, "once", at)
        if code == 0:  # a call that may fail, such as one that tidies up
            shutil.rmtree(tmp_path / "home")
        assert not (tmp_path / "home" / "altneu.toml").exists(), (at, said)
    assert server(tmp_path / "home", file, options)[0] == 0


def test_two_at_once(before: tuple[Path, Path, State], tmp_path: Path) -> None:
    """Each waits for the other's moves, and both batches are there in the end."""
    home, _, _ = before
    failures: list[BaseException] = []

    def lands(number: int) -> None:
        try:
            for epoch in range(8):
                file = tmp_path / f"{number}-{epoch}.csv"
                file.write_text(f"{number},{epoch + 100}\n")
                options = landing.LandOptions(("src", "dst"), epoch=f"1970-01-{epoch + 1:02d}", append=True)
                landing.land(Home.open(home), [file], options)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=lands, args=(number,)) for number in (11, 12, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for epoch, number in itertools.product(range(8), (11, 12, 13)):
        rows = state(home)[0][f"epoch=1970-01-{epoch + 1:02d}"]
        assert [line for line in rows if line.startswith(f"{number},{epoch + 100}")], (epoch, number, rows)


def test_one_that_waits_says_so_and_one_that_works_keeps_its_folder(before: tuple[Path, Path, State]) -> None:
    home, file, _ = before
    place = home / "landing"
    draft = atomic_placement.Draft(place)
    (draft.new / "1970-01-02").mkdir()
    (draft.new / "1970-01-02" / "mine.csv").write_text("src,dst,seq\n9,9,9\n")
    said: list[str] = []
    landing.land(
        Home.open(home), [file], landing.LandOptions(("src", "dst", "ts", "rating"), time_column="ts"), said.append
    )
    with atomic_placement.landing_lock(place):
        assert (draft.new / "1970-01-02" / "mine.csv").exists()
        draft.place_batches(["1970-01-02"], None, [])
    draft.close()
    assert state(home)[0]["epoch=1970-01-02"] == ["9,9,9"]

    with atomic_placement.landing_lock(place):
        waits = threading.Thread(target=lambda: atomic_placement.Draft(place, said.append).close())
        waits.start()
        while not any("waiting for another altneu land" in text for text in said):
            os.sched_yield()
    waits.join()


def test_status_and_run_say_that_a_land_was_interrupted(
    before: tuple[Path, Path, State], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    from altneu.pipeline import cli

    home, file, old = before
    for at in moves(server, shutil.copytree(home, home.with_name("traced")), file, NEW):
        server(home, file, NEW, "kill", at)
        if state(home) != old:
            break
    for command, says in (
        (["status"], "altneu land was interrupted"),
        (["run", "1970-01-02"], "altneu land was interrupted"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["--home", str(home), *command])
        shown = capsys.readouterr()
        assert says in shown.out + shown.err
    with pytest.raises(SystemExit):
        cli.main(["--home", str(home), "land", "--empty", "--epoch", "1970-05-05"])
    assert "are as they were before it" in capsys.readouterr().err
    found = state(home)[0]
    assert found.pop("epoch=1970-05-05") == [] and found == old[0]
