"""A site is one home as this Airflow schedules it. Each site has its own DAGs, from the same files.

The files of `dags/` make the DAGs of `current_site()`: the home of the environment, with ids that begin with `altneu`.
`make_dags` runs the same files for another home, from a file of your own in Airflow's `dags_folder`:

    # airflow: the DAGs calls_epoch, calls_backfill, …
    from altneu.pipeline.scheduling.sites import make_dags
    make_dags("calls", home="/data/calls", start="2004-04-15")
    make_dags("mails", connection="altneu_mails")

The comment is needed: Airflow reads only files that hold the words airflow and dag. The settings are those of the
environment without `ALTNEU_` and in small letters, here or in the extra of an Airflow connection, such as {"home":
"/data/mails", "submit": "cluster"}.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import runpy
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from airflow.sdk import Asset, BaseHook, get_current_context

from ..errors import UsageError
from ..home.periods import PeriodUnit
from ..home.queries import is_query_name, list_query_files
from ..tasks import base, dag_epochs
from .dag_paths import dags_folder

log = logging.getLogger("altneu.tasks")
# altneu_<name>.py makes the DAG <prefix>_<name>
FILES = ("epoch", "backfill", "full_audit", "landing", "maintenance", "relanded")
TABLES = ("edges", "degrees", "triangle_counts", "trussness", "quarantine")  # assets, on which other DAGs may depend
SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
HOURS = ("wait_hours", "approval_hours", "late_hours")


@dataclass(frozen=True)
class Site:
    """A home, the prefix of its DAGs, and their settings; a text has the same form as in the environment."""

    home: str
    prefix: str = base.PREFIX
    start: str | None = None  # ISO dates: the schedule catches up from `start` to `end`
    end: str | None = None
    wait_hours: float = 24
    approval_hours: float = 72
    late_hours: float | None = None  # the hours after its interval at which an unpublished epoch is late
    submit: str | None = None  # the id of an Airflow connection of type Spark
    pool: str = base.POOL
    watch: bool = False  # published epochs that land again are run without a person
    periods: str = ""  # the kinds of periods whose changes are emitted, separated by commas

    @classmethod
    def from_settings(cls, prefix: str, settings: dict[str, Any], where: str) -> Self:
        """Return a site from settings by name.

        Args:
            prefix: The prefix of the ids of its DAGs.
            settings: The values by name, as in `make_dags`.
            where: The place of the settings, for an error.

        Raises:
            UsageError: A setting is unknown, is missing or has a wrong value.
        """
        known = [field.name for field in fields(cls) if field.name != "prefix"]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise UsageError(f"{where}: there is no setting {', '.join(unknown)}.", f"one of {', '.join(known)}")
        values = {name: value for name, value in settings.items() if value not in (None, "")}
        if "home" not in values:
            raise UsageError(f"{where}: the home is missing.", "home = the path of the home's folder")
        for name, value in values.items():
            if name == "watch":
                if str(value).lower() not in SWITCH:
                    raise UsageError(f"{where}: watch = {value!r} is neither on nor off.", "watch = 1")
                values[name] = SWITCH[str(value).lower()]
                continue
            try:
                values[name] = float(value) if name in HOURS else str(value)
            except (TypeError, ValueError):
                raise UsageError(f"{where}: {name} = {value!r} is not a number of hours.", f"{name} = 24") from None
        wrong = sorted({*_list_names(values.get("periods", ""))} - {*PeriodUnit})
        if wrong:
            raise UsageError(f"{where}: {wrong[0]} are not a kind of periods.", "periods = days, weeks or months")
        try:
            dag_epochs.schedule_bounds(values.get("start"), values.get("end"))
        except UsageError as error:
            raise UsageError(f"{where}: {error.what}", error.next) from None
        return cls(prefix=prefix, **values)

    @property
    def is_default_site(self) -> bool:
        """Tell whether the site is the home of the environment."""
        return self.prefix == base.PREFIX

    @property
    def landing_patience(self) -> timedelta:
        return timedelta(hours=self.wait_hours)

    @property
    def approval_patience(self) -> timedelta:
        return timedelta(hours=self.approval_hours)

    @property
    def schedule_bounds(self) -> tuple[datetime | None, datetime | None]:
        """Return the first and the last instant of the schedule."""
        return dag_epochs.schedule_bounds(self.start, self.end)

    def dag_id(self, name: str) -> str:
        """Return the id of a DAG."""
        return f"{self.prefix}_{name}"

    def dag_doc(self, text: str | None) -> str:
        """Return a text about the DAGs with the ids that they have in this site."""
        named = re.sub(rf"`{base.PREFIX}_({'|'.join(FILES)})`", rf"`{self.prefix}_\1`", text or "")
        return named if self.prefix == base.PREFIX else f"{named}\n\nThe home is `{self.home}`."

    def asset_of(self, name: str) -> Asset:
        """Return the asset of a table, of `epochs` or of a kind of periods, on which other DAGs may depend.

        The events of epochs and periods are partitioned: there is one for each whose published results have changed.
        """
        return Asset(
            name=f"{self.prefix}_{name}",
            uri=f"altneu://{'graph' if self.prefix == base.PREFIX else self.prefix}/{name}",
            group="altneu",
        )

    @property
    def period_units(self) -> list[PeriodUnit]:
        """Return the kinds of periods whose changes are emitted."""
        return [PeriodUnit(unit) for unit in _list_names(self.periods)]

    @property
    def table_assets(self) -> list[Asset]:
        return [self.asset_of(name) for name in TABLES]

    @property
    def query_assets(self) -> dict[str, Asset]:
        """Return the asset of each declared query that the home has while Airflow reads the file, by its name."""
        names = (file.stem for file in list_query_files(Path(self.home)))
        return {name: self.asset_of(f"query_{name}") for name in names if is_query_name(name)}


def _list_names(text: str) -> list[str]:
    """List the names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


_making: ContextVar[Site | None] = ContextVar("_making", default=None)
_sites_by_dag: dict[str, Site] = {}  # the id of a DAG → its site


def site_of_environment() -> Site:
    """Return the site of `ALTNEU_HOME`. Raise `UsageError` if its settings are wrong."""
    names = (field.name for field in fields(Site) if field.name not in ("prefix", "home"))
    values = {name: os.environ.get(f"ALTNEU_{name.upper()}") for name in names}
    return Site.from_settings(base.PREFIX, {"home": base.home_path(), **values}, "the environment (ALTNEU_…)")


def connection_settings(ident: str) -> dict[str, Any]:
    """Return the settings in the extra of an Airflow connection. Raise `UsageError` if it cannot be read."""
    try:
        extra = BaseHook.get_connection(ident).extra_dejson
    except Exception as error:  # each secrets backend has its own errors
        raise UsageError(
            f"the connection {ident} cannot be read: {error}", f"airflow connections get {ident}"
        ) from error
    return dict(extra)


def make_dags(prefix: str, *, connection: str | None = None, **settings: Any) -> None:
    """Make the DAGs of a home in the file that Airflow is reading: `<prefix>_epoch` and the others.

    The settings are `home`, `start`, `end`, `wait_hours`, `approval_hours`, `late_hours`, `submit`, `pool`, `watch`
    and `periods`; the arguments come before the settings of the connection. Raise `UsageError` if one is wrong: the
    file then has an import error that says so.
    """
    where = f"make_dags({prefix!r})"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", prefix):
        raise UsageError(
            f"{where}: a prefix consists of letters, digits, _, . and -, and begins with a letter.",
            'make_dags("calls", …)',
        )
    site = Site.from_settings(prefix, {**(connection_settings(connection) if connection else {}), **settings}, where)
    if not os.path.isabs(site.home):
        raise UsageError(f"{where}: the home {site.home!r} is not an absolute path.", f'home="/data/{prefix}"')
    _sites_by_dag.update({site.dag_id(name): site for name in FILES})
    with acting_site(site):
        for name in FILES:
            runpy.run_path(str(dags_folder() / f"{base.PREFIX}_{name}.py"), run_name=f"{prefix}_{name}")


make = make_dags  # DAG files for version 0.1 call this name


@contextlib.contextmanager
def acting_site(site: Site) -> Iterator[None]:
    """Run the block with this site as the current one."""
    token = _making.set(site)
    try:
        yield
    finally:
        _making.reset(token)


def current_site() -> Site:
    """Return the site whose DAGs are being made or whose task is running, or that of the environment."""
    site = _making.get()
    if site is None and _sites_by_dag:
        try:
            site = _sites_by_dag.get(get_current_context()["dag"].dag_id)
        except (RuntimeError, KeyError):  # no task is running
            site = None
    return site or site_of_environment()
