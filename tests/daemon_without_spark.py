"""The process of a daemon with a program that only waits in place of the JVM, for tests of what the daemon itself does.

It is started as the daemon is: with the folder of the home, and `--stay`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from altneu.pipeline.cli import daemon_process
from altneu.pipeline.local import daemon

WAITS = "import sys; sys.stdin.read()"  # ends with the process that started it, as the JVM does


def launch(*_: Any) -> Any:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)
    parameters = SimpleNamespace(port=1, auth_token="none")
    return SimpleNamespace(proc=process, close=lambda: None, java_parameters=parameters)


if __name__ == "__main__":
    changed: Any = daemon
    stands_in = {"_launch_jvm": launch, "_prepare_jvm": lambda home: None, "_import_modules": lambda: None}
    for name, stand_in in stands_in.items():
        assert hasattr(daemon, name)
        setattr(daemon, name, stand_in)
    changed.TICK = 0.2
    changed.STOP_SECONDS = float(os.environ.get("TEST_STOP_SECONDS", changed.STOP_SECONDS))
    changed.LEAST_DISK = int(os.environ.get("TEST_LEAST_DISK", changed.LEAST_DISK))
    if hours := float(os.environ.get("TEST_HOURS_BACK", 0)):  # a clock that is set back again and again
        begun, time_of_day = time.monotonic(), time.time
        changed.time.time = lambda: time_of_day() - 3600 * hours * (time.monotonic() - begun)
    daemon_process.main()
