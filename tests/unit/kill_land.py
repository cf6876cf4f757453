"""A `land` that dies, is interrupted, or meets a full disk, at its n-th file-system call: started by
`test_landing_journal.py`.

Arguments: home, file, epochs' option words as JSON, mode (kill, signal, once, full), n. Prints how many calls there
were, or what the interrupted one says.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from altneu.pipeline import landing
from altneu.pipeline.cli.land import describe_outcome, landing_state
from altneu.pipeline.home.home import Home
from altneu.pipeline.interrupt import Interrupted, handle_signals

CALLS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}
NEEDS_SPACE = {"open", "os.mkdir", "os.link", "os.rename"}


def main(home: str, file: str, options: str, mode: str, at: int) -> str:
    """How many calls on the home's files were made; with `trace`, which of them renamed something."""
    count, active, renames = 0, True, []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if not active or event not in CALLS or not str(arguments[0]).startswith(home):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        count += 1
        if event == "os.rename":
            renames.append(count)
        if mode == "kill" and count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "signal" and count == at:
            os.kill(os.getpid(), signal.SIGINT)
        if (mode == "once" and count == at) or (mode == "full" and count >= at and event in NEEDS_SPACE):
            raise OSError(errno.ENOSPC, "No space left on device", str(arguments[0]))

    draft = Home.draft_home(home)
    before = landing_state(draft)
    sys.addaudithook(hook)
    try:
        with handle_signals():
            landing.land(draft, [Path(file)], landing.LandOptions(**json.loads(options)))
    except Interrupted:
        return f"interrupted: {describe_outcome(draft, before)}"
    finally:
        active = False
    return " ".join(map(str, [count, *(renames if mode == "trace" else ())]))


def import_what_a_land_needs() -> None:
    """Land once: its children would else import pandas and more, each again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        file.write_text("1,2,100\n")
        options = {"columns": ["src", "dst", "ts"], "time_column": "ts", "every": "1d"}
        main(f"{folder}/home", str(file), json.dumps(options), "", 0)


def serve() -> None:
    """A child for each line of standard input (home, file, options, mode, n as JSON); its outcome as a line."""
    import_what_a_land_needs()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code, said = 0, ""
            try:
                said = f"calls {main(*json.loads(line))}"
            except Exception as error:
                code, said = 1, f"{type(error).__name__}: {error}"
            print(json.dumps([code, said]), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(json.dumps([-os.WTERMSIG(status), "killed"]), flush=True)


if __name__ == "__main__":
    serve()
