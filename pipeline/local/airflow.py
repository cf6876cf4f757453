"""The command `altneu airflow`: a local Airflow with the DAGs, the page and the pool, on one home. Ctrl-C stops it.

All of its files are in `HOME/airflow`: settings, database, logs, password. Settings of the environment (another
database, a port, an executor) stay. It is for one machine, not for production, and listens only on this machine.
`altneu airflow exec` runs an `airflow` command with the same settings.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NoReturn

import psutil

from .. import landing
from ..errors import RunFailed, UsageError
from ..home.home import Home
from ..home.uris import sqlite_uri
from ..optional_dependencies import require_extras
from ..scheduling.dag_paths import dags_folder, plugins_folder
from ..storage.daemon_client import daemon_command
from ..storage.network import is_listening
from ..storage.session import PORT, REMOTE, may_have_daemon
from ..tasks.base import POOL

REPO = Path(__file__).absolute().parents[3]  # it has altneu, through whose links a clone imports
AIRFLOW = str(Path(sys.executable).with_name("airflow"))
KEY = "AIRFLOW__CORE__FERNET_KEY"
OWN_PREFIXES = ("AIRFLOW", "ALTNEU", "PYTHONPATH", "PATH")  # the prefixes of the variables that Airflow and altneu read
START_SECONDS = 300  # a first start makes the database; on a busy machine that takes minutes
LASTS_SECONDS = 60  # a part that ends by itself before this time is not started again
STALE_EPOCHS = 30  # a landing whose newest epoch is older than this number of epochs is history, not a feed

_PREPARE = f"""
from airflow.utils import db
from airflow.models.pool import Pool
db.initdb()
Pool.create_or_update_pool({POOL!r}, slots=1, description="altneu: one run computes at a time", include_deferred=False)
"""

# The scheduler's workers are forked from it, and the tasks from them, so that no task has to import what it has
# imported. Measured: one second for Spark's client, three for Great Expectations, one for the stages.
_LOCAL_SETTINGS = """\
import sys

from altneu.pipeline.scheduling.sqlite_savepoints import lock_at_savepoints

lock_at_savepoints()

if "scheduler" in sys.argv:
    import altneu.expectations.suite
    import great_expectations
    import altneu.pipeline.report
    import altneu.pipeline.run.runner
    import altneu.pipeline.run.stages
    import altneu.pipeline.scheduling.approval
    import altneu.pipeline.scheduling.landing_sensor
    import altneu.pipeline.scheduling.plan_operator
    import altneu.pipeline.scheduling.epoch_events
    import altneu.pipeline.storage.spark_connect_client
    import altneu.pipeline.storage.duckdb_tables
    import altneu.pipeline.storage.session
    import pyspark.sql.connect.session

    for stage in altneu.pipeline.run.stages.STAGES:
        stage.load_module()
"""


def run_standalone(path: Path, *, port: int = 8080, connect: bool = False, say: Callable[[str], None] = print) -> None:
    """Start Airflow, print its address and password, wait for Ctrl-C (or SIGTERM), and stop it.

    A home without any landed epoch gets the messages of the demo.

    Args:
        path: The folder of the home; it is made if it does not exist.
        port: The port of the web page.
        connect: Let all tasks share one Spark, a Spark Connect server, instead of one for each.
        say: A function that gets lines for the user.

    Raises:
        UsageError: The port is taken.
        RunFailed: Airflow does not come up.
    """
    require_extras("a local Airflow", "airflow", "quality")
    home = Home.open(path, create=True)
    if not landing.list_batches(home):
        home = _land_demo_messages(home, say)
    if is_listening("127.0.0.1", port):
        raise UsageError(f"port {port} is taken.", f"altneu airflow --port {port + 1}")
    environment = airflow_environment(home, port, datetime.now(UTC))
    if connect:
        environment["ALTNEU_MASTER"] = f"{REMOTE}127.0.0.1:{_free_port(PORT)}"
    folder = Path(environment["AIRFLOW_HOME"])
    (folder / "config").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)
    _keep_environment(home, environment)
    log = folder / "standalone.log"
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # background jobs of a shell ignore Ctrl-C, and so would their children
        signal.signal(number, _raise_interrupt)
    with log.open("w") as stream:
        say(f"starting Airflow (log: {log})")
        parts: dict[str, AirflowProcess] = {}
        try:
            _prepare_database(environment, stream, log)
            for name, command in _part_commands(home, environment, connect=connect).items():
                parts[name] = AirflowProcess(name, command, environment, stream)
            _wait_until_healthy(parts, port, log)
            _print_addresses(home, environment, folder, port, say)
            while True:
                time.sleep(1)
                for part in parts.values():
                    part.restart_if_ended(say, log)
        except KeyboardInterrupt:
            say("stopping Airflow")
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C would leave a part running
                signal.signal(number, signal.SIG_IGN)
            stop_sessions([part.process.pid for part in parts.values()])
            say("Airflow has stopped; what was published stays")


def exec_airflow(path: Path, arguments: list[str]) -> NoReturn:
    """Replace this process by an `airflow` command with the settings with which the home's Airflow was last started."""
    require_extras("a local Airflow", "airflow")
    home = Home.open(path)
    kept = _kept_environment(home)
    if not kept.is_file():
        raise UsageError(f"no Airflow was started on {home.path} yet ({kept} is missing).", "altneu airflow")
    command = ["airflow", *arguments[arguments[:1] == ["airflow"] :]]
    os.execve(AIRFLOW, command, dict(os.environ) | json.loads(kept.read_text()))


def _kept_environment(home: Home) -> Path:
    return home.path / "airflow" / "environment.json"


def _keep_environment(home: Home, environment: dict[str, str]) -> None:
    """Store the variables that Airflow reads, for `exec_airflow`.

    Only the owner may read the file, because the URI of a database has a password.
    """
    own_variables = {name: value for name, value in environment.items() if name.startswith(OWN_PREFIXES)}
    _kept_environment(home).parent.mkdir(exist_ok=True)  # AIRFLOW_HOME may be another folder
    new = _kept_environment(home).with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(0o600)
    new.write_text(json.dumps(own_variables, indent=1))
    new.replace(_kept_environment(home))  # the key exists at every moment


def _encryption_key(home: Home, folder: Path) -> dict[str, str]:
    """Return the key with which all parts of Airflow encrypt values in its database.

    At a first start some parts would find the key that Airflow writes and others an empty one, and a triggerer that
    cannot read a trigger ends. An Airflow that was started before has its own key in `airflow.cfg`.
    """
    if _kept_environment(home).is_file():
        known = json.loads(_kept_environment(home).read_text()).get(KEY)
        if known:
            return {KEY: known}
    if (folder / "airflow.cfg").is_file():
        return {}
    return {KEY: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}


class AirflowProcess:
    """A process of Airflow, which is started again if it ends by itself, unless it does so at once."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], stream: IO[str]) -> None:
        self.name, self.command, self.environment, self.stream = name, command, environment, stream
        self.start_process()

    def start_process(self) -> None:
        self.since = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=self.stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def restart_if_ended(self, say: Callable[[str], None], log: Path) -> None:
        """Start the process again if it has ended. Raise `RunFailed` if it has ended too soon."""
        if self.process.poll() is None:
            return
        if time.monotonic() - self.since < LASTS_SECONDS:
            raise RunFailed(f"Airflow's {self.name} has ended by itself:\n{_tail_log(log)}", f"less {log}")
        say(f"{self.name} has ended by itself; starting it again. Its tasks are tried again")
        stop_sessions([self.process.pid])  # its children may still be running
        self.start_process()


def _part_commands(home: Home, environment: dict[str, str], *, connect: bool) -> dict[str, list[str]]:
    """Return the commands of the parts of a local Airflow, as `airflow standalone` has them, without its log servers.

    Log servers would listen on all interfaces at fixed ports, and here all parts read the files. The tasks work in the
    Spark of a daemon, or of a Connect server, which is a part, too.
    """
    commands = {
        "api-server": [AIRFLOW, "api-server"],
        "scheduler": [AIRFLOW, "scheduler", "--skip-serve-logs"],
        "dag-processor": [AIRFLOW, "dag-processor"],
        "triggerer": [AIRFLOW, "triggerer", "--skip-serve-logs"],
    }
    if not connect and may_have_daemon(home):
        commands["daemon"] = [*daemon_command(home.path), "--stay"]
    if connect:
        port = environment["ALTNEU_MASTER"].rpartition(":")[2]
        altneu = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path)]
        commands["Spark"] = [*altneu, "connect", "--port", port]
    return commands


def _free_port(port: int) -> int:
    """Return the port, or any free one if it is taken."""
    if not is_listening("127.0.0.1", port):
        return port
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def airflow_environment(home: Home, port: int, now: datetime) -> dict[str, str]:
    """Return the environment of every part of the Airflow of a home."""
    folder = home.path.resolve() / "airflow"
    file = Path(os.environ.get("AIRFLOW_HOME", folder)).resolve() / "airflow.db"  # Airflow's own name for it
    address = f"http://localhost:{port}"
    # the stages take turns in the pool; the other tasks mostly wait
    parallel = max(4, min(8, os.cpu_count() or 4))
    defaults = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # in a busy moment a writer may wait for longer than SQLite's default of 5 seconds
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": sqlite_uri(file, "timeout=60"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder()),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins_folder()),
        "AIRFLOW__CORE__PARALLELISM": str(parallel),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        # the parts of Airflow share these secrets; otherwise each process would make its own
        "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",  # a run has nine tasks, one after the other
        # after this number of seconds without a heartbeat, a task whose worker died with its scheduler is tried again
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
        # the seconds within which a worker notices that its task has ended: with 5, a backfill took twice as long
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        # after a restart the scheduler is up before the API server: a worker waits for the server, sometimes minutes
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "12",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        **_encryption_key(home, file.parent),
        **_catchup_bounds(home, now),
    }
    database = os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "")
    if database.startswith("postgresql+psycopg:"):  # one driver for both, since Airflow would look for asyncpg
        defaults["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] = database
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    bin_ = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return defaults | dict(os.environ) | {"ALTNEU_HOME": str(home.path.resolve()), "PYTHONPATH": path, "PATH": bin_}


def _catchup_bounds(home: Home, now: datetime) -> dict[str, str]:
    """Return the bounds of the schedule: a landing that is history is caught up, a feed goes on from now."""
    epochs, schedule = sorted(landing.list_batches(home)), home.schedule
    if not epochs or schedule.seconds is None:
        return {}
    try:
        first, last, stale = (schedule.start_of(e) for e in (epochs[0], epochs[-1], epochs[-1] + 1 + STALE_EPOCHS))
    except OverflowError:  # epochs beyond the calendar
        return {}
    return {} if stale > now else {"ALTNEU_START": first.isoformat(), "ALTNEU_END": last.isoformat()}


def _land_demo_messages(home: Home, say: Callable[[str], None]) -> Home:
    from .demo import land_messages, with_daily_epochs

    home = with_daily_epochs(home)
    landed = land_messages(home)
    say(f"nothing was landed in {home.path}: landed the demo's {landed.rows:,} messages in {len(landed.epochs)} epochs")
    return home


def _prepare_database(environment: dict[str, str], stream: object, log: Path) -> None:
    """Create the database of Airflow and the pool."""
    done = subprocess.run([sys.executable, "-c", _PREPARE], env=environment, stdout=stream, stderr=subprocess.STDOUT)  # type: ignore[call-overload]
    if done.returncode:
        raise RunFailed(f"Airflow's database could not be made:\n{_tail_log(log)}", f"less {log}")


def _wait_until_healthy(parts: dict[str, AirflowProcess], port: int, log: Path) -> None:
    """Wait until every part of Airflow is healthy."""
    deadline = time.monotonic() + START_SECONDS
    missing = ["api-server"]
    while time.monotonic() < deadline:
        for part in parts.values():
            if part.process.poll() is not None:
                raise RunFailed(f"Airflow's {part.name} has not started:\n{_tail_log(log)}", f"less {log}")
        with suppress(urllib.error.URLError, OSError, ValueError):
            # the tasks' part of the server is made at its first request, for seconds, while the other parts start
            urllib.request.urlopen(f"http://127.0.0.1:{port}/execution/health", timeout=60).close()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=5) as answer:
                health = json.load(answer)
            needed = ("metadatabase", "scheduler", "dag_processor", "triggerer")
            missing = [name for name in needed if (health.get(name) or {}).get("status") != "healthy"]
            if not missing:
                return
        time.sleep(1)
    raise RunFailed(f"Airflow was not healthy after {START_SECONDS} s ({', '.join(missing)}).", f"less {log}")


def _print_addresses(
    home: Home, environment: dict[str, str], folder: Path, port: int, say: Callable[[str], None]
) -> None:
    say(f"Airflow is ready: http://localhost:{port}")
    passwords = folder / "simple_auth_manager_passwords.json.generated"
    with suppress(OSError, ValueError):
        for user, password in json.loads(passwords.read_text()).items():
            say(f"user {user}, password {password}")
    if "ALTNEU_MASTER" in environment:
        say(f"the tasks share one Spark: {environment['ALTNEU_MASTER']}")
    elif may_have_daemon(home):
        say("the tasks work in the Spark of this home's daemon (altneu daemon)")
    if environment.get("ALTNEU_START"):
        first, last = (environment.get(name, "")[:10] for name in ("ALTNEU_START", "ALTNEU_END"))
        say(f"switch on altneu_epoch to catch up from {first} to {last or 'now'}, one epoch per run;")
        say("or trigger altneu_backfill: all of it in one pass")
    else:
        say("switch on altneu_epoch for future epochs; for the landed ones, trigger altneu_backfill")
    say("Ctrl-C stops it")


def stop_sessions(sessions: list[int]) -> None:
    """End the processes of these sessions and their descendants: first as Ctrl-C does, then by force.

    A running task is killed: Airflow tries it again, and nothing half done is published.
    """
    for number, seconds in ((signal.SIGINT, 3), (signal.SIGTERM, 2), (signal.SIGKILL, 10)):
        for process in (family := _list_processes(sessions)):
            with suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(family, timeout=seconds)


def _list_processes(sessions: list[int]) -> list[psutil.Process]:
    """Return the living processes of these sessions, and their descendants in other sessions."""
    by_pid: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                by_pid |= {member.pid: member for member in (process, *process.children(recursive=True))}
    return list(by_pid.values())


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _tail_log(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
