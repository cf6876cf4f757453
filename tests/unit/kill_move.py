"""A move that is killed at its n-th step: started by `test_move.py`.

A step is what can be seen from outside: a file that is copied, written, replaced or deleted, a transaction that ends;
the process is killed before it or after it. For each line of standard input (home, folder, places, n as JSON) a child;
its outcome as a line: how it ended, how many files it copied, how many steps it made.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from altneu.pipeline import report
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import move, move_target
from altneu.pipeline.state import filesystem


def main(home: str, folder: str, to: list[str], at: int) -> dict[str, int]:
    counts = {"steps": 0, "copied": 0}

    def step() -> None:
        counts["steps"] += 1
        if counts["steps"] == at:
            print(json.dumps(["killed", counts]), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def noted(work: Callable[..., Any], count: str | None = None) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            step()
            found = work(*arguments, **named)
            if count:
                counts[count] += 1
            step()
            return found

        return call

    filesystem.copy_file = noted(filesystem.copy_file, "copied")
    filesystem.write_file, filesystem.delete_file = noted(filesystem.write_file), noted(filesystem.delete_file)
    Path.unlink = noted(Path.unlink)  # type: ignore[method-assign]
    os.fsync = noted(os.fsync)
    sa.event.listen(sa.Engine, "commit", lambda connection: step())
    os.sync = lambda: None
    report.refresh_pages = lambda *home: None  # type: ignore[assignment]  # after the end
    move.write_text = noted(move.write_text)  # type: ignore[attr-defined]
    move.move_home(
        Home.open(home), move_target.parse_target(folder, to), lambda text: None, lambda *homes: {1: ["edges"]}
    )
    return counts


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                print(json.dumps(["done", main(*json.loads(line))]), flush=True)
            except Exception as error:
                print(json.dumps([f"{type(error).__name__}: {error}", {}]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    serve()
