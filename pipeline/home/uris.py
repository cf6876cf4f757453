"""Paths of this machine as the URIs that other programs want, and locations as paths: the one place that knows how.

A path may hold any character but a null: `%41` in a folder's name is those three characters, never an A. Each kind of
URI has characters of its own that mean something else; here alone they are written in another way.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote


def sqlite_uri(path: Path | str, query: str = "") -> str:
    """A file of SQLite as SQLAlchemy's URI for it.

    >>> sqlite_uri("/data/a b/altneu.db"), sqlite_uri("/data/100%41?/altneu.db", "timeout=60")
    ('sqlite:////data/a b/altneu.db', 'sqlite:////data/100%2541%3F/altneu.db?timeout=60')
    """
    return f"sqlite:///{_quoted(str(path))}" + (f"?{query}" if query else "")


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3F")


def relative_to(folder: Path, uri: str) -> str:
    """SQLAlchemy's URI of a database, the relative path of a SQLite file in it taken from a folder.

    >>> relative_to(Path("/data/%41"), "sqlite:///altneu.db"), relative_to(Path("/data"), "sqlite:////srv/altneu.db")
    ('sqlite:////data/%2541/altneu.db', 'sqlite:////srv/altneu.db')
    """
    return re.sub(r"^(sqlite(?:\+\w+)?:///)(?=[^/:])", lambda start: f"{start[1]}{_quoted(str(folder))}/", uri)


def duckdb_pattern(path: Path | str) -> str:
    """A path as DuckDB's reader takes it, which would look for other files that match it too.

    >>> duckdb_pattern("/data/a?b/[x]*.parquet")
    '/data/a[?]b/[[]x][*].parquet'
    """
    return re.sub(r"[\[?*]", lambda found: f"[{found[0]}]", str(path))


def spark_pattern(path: Path | str) -> str:
    r"""The same for a reader of Spark's.

    >>> print(spark_pattern("/data/a?b/{x}.json"))
    /data/a\?b/\{x\}.json
    """
    return re.sub(r"[]\[{}?*\\]", lambda found: f"\\{found[0]}", str(path))


def jdbc_sqlite_uri(path: Path | str, query: str) -> str:
    """The same for Java's driver, which cuts at the first question mark and decodes what begins with `file:` alone.

    >>> jdbc_sqlite_uri("/data/a%41.db", "busy_timeout=9"), jdbc_sqlite_uri("/data/a%41?.db", "busy_timeout=9")
    ('jdbc:sqlite:/data/a%41.db?busy_timeout=9', 'jdbc:sqlite:file:/data/a%2541%3F.db?busy_timeout=9')
    """
    place = str(path)
    return f"jdbc:sqlite:{f'file:{quote(place)}' if '?' in place else place}?{query}"
