"""The home directory and its `altneu.toml`: read once, checked whole (`settings`), then frozen."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .schedule import Schedule
from .settings import PLACES, TEMPLATE, TYPES, Config, parse, toml_key

__all__ = ["TYPES", "Config", "Home", "parse"]


def _folder(path: Path | str) -> Path:
    """Where a home is or can be. Raises `UsageError` when a file is in its place."""
    path = Path(path).expanduser().resolve()
    for place in (path, *path.parents):
        if place.is_file():
            raise UsageError(f"{place} is a file, and a home is a folder.", "altneu --home DIR init")
    return path


@dataclass(frozen=True)
class Home:
    """A home directory: `altneu.toml`, landing, warehouse, database, reports."""

    path: Path
    config: Config

    @classmethod
    def open(cls, path: Path | str, create: bool = False) -> Home:
        """Read the home at `path`. With `create`, make it (and a commented `altneu.toml`) when it is not there."""
        path = _folder(path)
        file = path / "altneu.toml"
        if not file.exists():
            if not create:
                raise UsageError(
                    f"{path} is no altneu home (it has no altneu.toml).",
                    "altneu init, or altneu land FILE --columns src,dst --epoch 1   (make one), or: altneu demo",
                )
            path.mkdir(parents=True, exist_ok=True)
            file.write_text(TEMPLATE, encoding="utf-8")
        return cls(path, parse(file.read_bytes(), str(file)))

    @property
    def landing(self) -> Path:
        return self.path / "landing"

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def database(self) -> str:
        """An SQLAlchemy URI; a SQLite file of a relative path is in the home."""
        uri = self.config.database or "sqlite:///altneu.db"
        return re.sub(r"^(sqlite(?:\+\w+)?:///)(?=[^/:])", lambda start: f"{start[1]}{self.path}/", uri)

    @property
    def warehouse(self) -> str:
        """A folder, relative to the home, or the URI of one."""
        place = self.config.warehouse or "warehouse"
        return place if re.match(r"\w+:", place) else str(self.path / place)

    @property
    def schedule(self) -> Schedule:
        return Schedule.parse(self.config.every)

    @classmethod
    def draft(cls, path: Path | str) -> Home:
        """The home at `path`, or what `open` with `create` would make there. Writes nothing."""
        path = _folder(path)
        return cls.open(path) if (path / "altneu.toml").exists() else cls(path, parse(TEMPLATE, "altneu.toml"))

    def declared(self, **settings: Any) -> tuple[Home, str]:
        """The home with settings that `altneu.toml` does not have yet, and that file's new text. Writes nothing."""
        file = self.path / "altneu.toml"
        text = file.read_text(encoding="utf-8-sig") if file.exists() else TEMPLATE
        for name, value in settings.items():
            section = "values" if name == "values" else PLACES[name].section
            entries = value if name == "values" else {PLACES[name].key: value}
            lines = [f"{toml_key(key)} = {json.dumps(entry, ensure_ascii=False)}" for key, entry in entries.items()]
            out, done = [], False
            for line in text.splitlines():
                out.append(line)
                if line.split("#")[0].strip() == f"[{section}]":
                    out += lines
                    done = True
            text = "\n".join(out if done else [*out, "", f"[{section}]", *lines]) + "\n"
        return dataclasses.replace(self, config=parse(text, str(file))), text

    def declare(self, **settings: Any) -> Home:
        """Write settings that are not there yet into `altneu.toml`, and return the new home."""
        file = self.path / "altneu.toml"
        home, text = self.declared(**settings)
        temporary = file.with_suffix(".toml.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
        return home
