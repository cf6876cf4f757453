"""A site: one home as this Airflow schedules it. Each has its own DAGs, from the same files.

The files of `dags/` make the DAGs of `current_site()`: the home of the environment, with ids that begin with `altneu`.
`make_dags` runs the same files for another home, from a file of your own in Airflow's `dags_folder`:

    # airflow: the DAGs calls_epoch, calls_backfill, …
    from pipeline.scheduling.sites import make_dags
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
from typing import Any, Self

from airflow.sdk import Asset, BaseHook, get_current_context

from ..errors import UsageError
from ..tasks import base, dag_epochs
from .dag_paths import dags_folder

log = logging.getLogger("altneu.tasks")
# altneu_<name>.py makes the DAG <prefix>_<name>
FILES = ("epoch", "backfill", "full_audit", "landing", "maintenance", "relanded")
TABLES = ("edges", "degrees", "triangle_counts", "trussness", "quarantine")  # as assets, on which other DAGs may depend
SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
HOURS = ("wait_hours", "approval_hours", "late_hours")


@dataclass(frozen=True)
class Site:
    """A home, the prefix of its DAGs, and their settings; text is understood as in the environment."""

    home: str
    prefix: str = base.PREFIX
    start: str | None = None  # ISO dates: the schedule catches up from the one to the other
    end: str | None = None
    wait_hours: float = 24
    approval_hours: float = 72
    late_hours: float | None = None  # so long after its interval an epoch that is not published is late
    submit: str | None = None  # the id of an Airflow connection of type Spark
    pool: str = base.POOL
    watch: bool = False  # published epochs that land again are run without a person

    @classmethod
    def from_settings(cls, prefix: str, settings: dict[str, Any], where: str) -> Self:
        """Build a site from settings by name; `where` says in an error where they stand. Raises `UsageError`."""
        known = [field.name for field in fields(cls) if field.name != "prefix"]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise UsageError(f"{where}: there is no setting {', '.join(unknown)}.", f"one of {', '.join(known)}")
        given = {name: value for name, value in settings.items() if value not in (None, "")}
        if "home" not in given:
            raise UsageError(f"{where}: no home.", "home = the path of the home's folder")
        for name, value in given.items():
            if name == "watch":
                if str(value).lower() not in SWITCH:
                    raise UsageError(f"{where}: watch = {value!r} is neither on nor off.", "watch = 1")
                given[name] = SWITCH[str(value).lower()]
                continue
            try:
                given[name] = float(value) if name in HOURS else str(value)
            except (TypeError, ValueError):
                raise UsageError(f"{where}: {name} = {value!r} is no number of hours.", f"{name} = 24") from None
        try:
            dag_epochs.schedule_bounds(given.get("start"), given.get("end"))
        except UsageError as error:
            raise UsageError(f"{where}: {error.what}", error.next) from None
        return cls(prefix=prefix, **given)

    @property
    def is_default_site(self) -> bool:
        """Whether it is the home of the environment."""
        return self.prefix == base.PREFIX

    @property
    def landing_patience(self) -> timedelta:
        return timedelta(hours=self.wait_hours)

    @property
    def approval_patience(self) -> timedelta:
        return timedelta(hours=self.approval_hours)

    @property
    def schedule_bounds(self) -> tuple[datetime | None, datetime | None]:
        """The schedule's first and last instant."""
        return dag_epochs.schedule_bounds(self.start, self.end)

    def dag_id(self, name: str) -> str:
        """The id of a DAG."""
        return f"{self.prefix}_{name}"

    def dag_doc(self, text: str | None) -> str:
        """A text about the DAGs, in which they are called as they are here."""
        named = re.sub(rf"`{base.PREFIX}_({'|'.join(FILES)})`", rf"`{self.prefix}_\1`", text or "")
        return named if self.prefix == base.PREFIX else f"{named}\n\nThe home is `{self.home}`."

    def asset_of(self, name: str) -> Asset:
        """A table, or `epochs`, as others may depend on it."""
        return Asset(
            name=f"{self.prefix}_{name}",
            uri=f"altneu://{'graph' if self.prefix == base.PREFIX else self.prefix}/{name}",
            group="altneu",
        )

    @property
    def table_assets(self) -> list[Asset]:
        return [self.asset_of(name) for name in TABLES]

    @property
    def epochs_asset(self) -> Asset:
        """Its events are partitioned: one for each epoch whose published results have changed."""
        return self.asset_of("epochs")


_making: ContextVar[Site | None] = ContextVar("_making", default=None)
_made: dict[str, Site] = {}  # by the id of a DAG


def site_of_environment() -> Site:
    """The home of `ALTNEU_HOME`. Raises `UsageError`."""
    names = (field.name for field in fields(Site) if field.name not in ("prefix", "home"))
    given = {name: os.environ.get(f"ALTNEU_{name.upper()}") for name in names}
    return Site.from_settings(base.PREFIX, {"home": base.home_path(), **given}, "the environment (ALTNEU_…)")


def connection_settings(ident: str) -> dict[str, Any]:
    """The settings in the extra of an Airflow connection. Raises `UsageError`."""
    try:
        extra = BaseHook.get_connection(ident).extra_dejson
    except Exception as error:  # of whichever secrets backend has it
        raise UsageError(
            f"the connection {ident} cannot be read: {error}", f"airflow connections get {ident}"
        ) from error
    return dict(extra)


def make_dags(prefix: str, *, connection: str | None = None, **settings: Any) -> None:
    """Make the DAGs of a home in the file that Airflow is reading: `<prefix>_epoch` and so on.

    Settings: `home`, `start`, `end`, `wait_hours`, `approval_hours`, `late_hours`, `submit`, `pool`, `watch`; those
    given here come before those of the connection. Raises `UsageError`: the file then has an import error that says so.
    """
    where = f"make_dags({prefix!r})"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", prefix):
        raise UsageError(
            f"{where}: a prefix is letters, digits, _, . and -, and begins with a letter.", 'make_dags("calls", …)'
        )
    site = Site.from_settings(prefix, {**(connection_settings(connection) if connection else {}), **settings}, where)
    if not os.path.isabs(site.home):
        raise UsageError(f"{where}: the home {site.home!r} is no absolute path.", f'home="/data/{prefix}"')
    _made.update({site.dag_id(name): site for name in FILES})
    with acting_site(site):
        for name in FILES:
            runpy.run_path(str(dags_folder() / f"{base.PREFIX}_{name}.py"), run_name=f"{prefix}_{name}")


make = make_dags  # the name by which DAG files that were written for version 0.1 call it


@contextlib.contextmanager
def acting_site(site: Site) -> Iterator[None]:
    """Inside, this site is the current one."""
    token = _making.set(site)
    try:
        yield
    finally:
        _making.reset(token)


def current_site() -> Site:
    """The site whose DAGs are being made, or whose task is at work; else that of the environment."""
    site = _making.get()
    if site is None and _made:
        try:
            site = _made.get(get_current_context()["dag"].dag_id)
        except (RuntimeError, KeyError):  # no task is at work
            site = None
    return site or site_of_environment()
