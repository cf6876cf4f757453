"""Paths of this machine as the URIs and patterns that libraries want: the one place that knows how they are written.

A path may hold any character but a null: `%41` in a folder's name is those three characters, never an A. Each library
has characters of its own that mean something else to it; here they are written in another way. What Iceberg and pyarrow
are given are the paths themselves (`page_queries.files`); readers of Spark's take patterns (`algorithms.paths`).
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote


def sqlite_uri(path: Path | str, query: str = "") -> str:
    """Write SQLAlchemy's URI of a SQLite file.

    >>> sqlite_uri("/data/a b/altneu.db"), sqlite_uri("/data/100%41?/altneu.db", "timeout=60")
    ('sqlite:////data/a b/altneu.db', 'sqlite:////data/100%2541%3F/altneu.db?timeout=60')
    """
    return f"sqlite:///{_encode_path(str(path))}" + (f"?{query}" if query else "")


def _encode_path(path: str) -> str:
    """Encode what SQLAlchemy would decode or cut at, and the dollar, which Airflow takes for a variable's name."""
    return re.sub(r"[%?$]", lambda found: f"%{ord(found[0]):02X}", path)


def resolve_database_uri(folder: Path, uri: str) -> str:
    """Put a folder before the relative path of a SQLite file in SQLAlchemy's URI of a database.

    >>> resolve_database_uri(Path("/data/%41"), "sqlite:///altneu.db")
    'sqlite:////data/%2541/altneu.db'
    >>> resolve_database_uri(Path("/data"), "sqlite:////srv/altneu.db")
    'sqlite:////srv/altneu.db'
    """
    return re.sub(r"^(sqlite(?:\+\w+)?:///)(?=[^/:])", lambda start: f"{start[1]}{_encode_path(str(folder))}/", uri)


def duckdb_pattern(path: Path | str) -> str:
    """Write a path as DuckDB's reader takes it, which would look for other files that match it too.

    One with a backslash matches nothing, however it is written, and is then taken as it is.

    >>> duckdb_pattern("/data/a?b/[x]*.parquet")
    '/data/a[?]b/[[]x][*].parquet'
    """
    text = str(path)
    return text if "\\" in text else re.sub(r"[\[?*]", lambda found: f"[{found[0]}]", text)


def jdbc_sqlite_uri(path: Path | str, query: str) -> str:
    """Write the URI of a SQLite file for Java's driver.

    It cuts at the first question mark, and decodes what begins with `file:` alone.

    >>> jdbc_sqlite_uri("/data/a%41.db", "busy_timeout=9"), jdbc_sqlite_uri("/data/a%41?.db", "busy_timeout=9")
    ('jdbc:sqlite:/data/a%41.db?busy_timeout=9', 'jdbc:sqlite:file:/data/a%2541%3F.db?busy_timeout=9')
    """
    place = str(path)
    return f"jdbc:sqlite:{f'file:{quote(place)}' if '?' in place else place}?{query}"
