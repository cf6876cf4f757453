"""Paths of this machine as the URIs and patterns that libraries require: the one place that knows how to write them.

A path may contain any character but a null: `%41` in a folder's name is those three characters, never an A. Each
library gives some characters a special meaning; they are escaped here. Iceberg and pyarrow get the paths themselves
(`state.filesystem`); Spark's readers get patterns (`altneu.algorithms.paths`).
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote


def sqlite_uri(path: Path | str, query: str = "") -> str:
    """Write the URI of a SQLite file for SQLAlchemy.

    >>> sqlite_uri("/data/a b/altneu.db"), sqlite_uri("/data/100%41?/altneu.db", "timeout=60")
    ('sqlite:////data/a b/altneu.db', 'sqlite:////data/100%2541%3F/altneu.db?timeout=60')
    """
    return f"sqlite:///{_encode_path(str(path))}" + (f"?{query}" if query else "")


def _encode_path(path: str) -> str:
    """Encode characters that SQLAlchemy would decode or split at, and `$`, which begins a variable for Airflow."""
    return re.sub(r"[%?$]", lambda match: f"%{ord(match[0]):02X}", path)


def resolve_database_uri(folder: Path, uri: str) -> str:
    """Make the relative path of a SQLite file in SQLAlchemy's URI of a database absolute, within a folder.

    >>> resolve_database_uri(Path("/data/%41"), "sqlite:///altneu.db")
    'sqlite:////data/%2541/altneu.db'
    >>> resolve_database_uri(Path("/data"), "sqlite:////srv/altneu.db")
    'sqlite:////srv/altneu.db'
    """
    return re.sub(r"^(sqlite(?:\+\w+)?:///)(?=[^/:])", lambda start: f"{start[1]}{_encode_path(str(folder))}/", uri)


def duckdb_pattern(path: Path | str) -> str:
    """Write a path for DuckDB's reader so that no other file matches it.

    DuckDB finds no match for a path with a backslash, however it is escaped, and then reads the path itself.

    >>> duckdb_pattern("/data/a?b/[x]*.parquet")
    '/data/a[?]b/[[]x][*].parquet'
    """
    text = str(path)
    return text if "\\" in text else re.sub(r"[\[?*]", lambda match: f"[{match[0]}]", text)


def jdbc_sqlite_uri(path: Path | str, query: str) -> str:
    """Write the URI of a SQLite file for Java's driver.

    The driver splits the URI at the first question mark, and decodes it only where it begins with `file:`.

    >>> jdbc_sqlite_uri("/data/a%41.db", "busy_timeout=9"), jdbc_sqlite_uri("/data/a%41?.db", "busy_timeout=9")
    ('jdbc:sqlite:/data/a%41.db?busy_timeout=9', 'jdbc:sqlite:file:/data/a%2541%3F.db?busy_timeout=9')
    """
    place = str(path)
    return f"jdbc:sqlite:{f'file:{quote(place)}' if '?' in place else place}?{query}"
