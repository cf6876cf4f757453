"""The home directory and its `altneu.toml`, which is read once, checked as a whole (`settings_file`), then frozen."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..errors import UsageError
from ..formatting import format_name, is_text
from .schedule import Schedule
from .settings import Config
from .settings_file import NAME, Entries, extend_settings, parse_settings, read_text, settings_template, write_text
from .uris import resolve_database_uri

__all__ = ["Config", "Home", "parse_settings"]


def _require_folder(path: Path | str) -> Path:
    """Return the absolute path where a home is or can be. Raises `UsageError` where a file is in its place."""
    path = Path(path).expanduser().resolve()
    if not is_text(str(path)):  # no database accepts such a path
        raise UsageError(f"{format_name(path)}: the path of a home has to be UTF-8 text.", "altneu --home DIR init")
    for place in (path, *path.parents):
        if place.is_file():
            raise UsageError(f"{place} is a file, but a home is a folder.", "altneu --home DIR init")
    return path


@dataclass(frozen=True)
class Home:
    """A home directory: `altneu.toml`, landing, warehouse, database, reports."""

    path: Path
    config: Config

    @classmethod
    def open(cls, path: Path | str, *, create: bool = False) -> Home:
        """Read the home at `path`. With `create`, make the folder and a commented `altneu.toml` where there are
        none."""
        path = _require_folder(path)
        file = path / NAME
        if not file.exists():
            if not create:
                raise UsageError(
                    f"{path} is not an altneu home: it has no altneu.toml.",
                    "altneu init, or altneu land FILE --columns src,dst --epoch 1   (both make one), or: altneu demo",
                )
            path.mkdir(parents=True, exist_ok=True)
            write_text(file, settings_template())
        return cls(path, parse_settings(file.read_bytes(), str(file)))

    @cached_property
    def landing(self) -> Path:
        """Return the landing folder; for a landing in an object store, the folder in which `altneu land` prepares
        batches."""
        return self.path / "landing" if self.landed_remotely else Path(self.landed_at)

    @cached_property
    def landed_at(self) -> str:
        """Return the place where batches are landed: a folder or a URI. A relative folder is in the home."""
        return self._resolve_location(self.config.landing.uri or "landing")

    @cached_property
    def landed_remotely(self) -> bool:
        """Tell whether the landing is in an object store, not in a folder."""
        return re.match(r"\w+:", self.landed_at) is not None

    @property
    def reports(self) -> Path:
        """Return the folder of the report pages, for pages on this machine."""
        return Path(self.reports_at)

    @property
    def reports_at(self) -> str:
        """Return the place of the report pages: a folder or a URI. A relative folder is in the home."""
        return self._resolve_location(self.config.reports.uri or "reports")

    @property
    def reports_remotely(self) -> bool:
        """Tell whether the report pages are in an object store, not in a folder."""
        return re.match(r"\w+:", self.reports_at) is not None

    def _resolve_location(self, text: str) -> str:
        place = re.sub(r"^file:(//)?(?=/)", "", text).rstrip("/")
        return place if re.match(r"\w+:", place) else str(self.path / place)

    @property
    def database(self) -> str:
        """Return the SQLAlchemy URI of the database. A SQLite file with a relative path is in the home."""
        uri = self.config.storage.database or "sqlite:///altneu.db"
        return resolve_database_uri(self.path, uri)

    @property
    def warehouse(self) -> str:
        """Return the place of the tables: a folder or a URI. A relative folder is in the home."""
        place = self.config.storage.warehouse or "warehouse"
        return place if re.match(r"\w+:", place) else str(self.path / place)

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule.from_text(self.config.epochs.every)

    @classmethod
    def draft_home(cls, path: Path | str) -> Home:
        """Return the home at `path`, or the one that `open` with `create` would make there. Nothing is written."""
        path = _require_folder(path)
        return cls.open(path) if (path / NAME).exists() else cls(path, Config())

    def with_settings(self, **sections: Entries) -> tuple[Home, str]:
        """Return the home with additional settings, and the new text of `altneu.toml`. Nothing is written."""
        file = self.path / NAME
        text = extend_settings(read_text(file) if file.exists() else settings_template(), sections)
        return replace(self, config=parse_settings(text.removeprefix("\ufeff"), str(file))), text

    def declare_settings(self, **sections: Entries) -> Home:
        """Write additional settings into `altneu.toml`, and return the new home."""
        home, text = self.with_settings(**sections)
        write_text(self.path / NAME, text)
        return home
