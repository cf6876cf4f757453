"""The translation between the numbers of vertices in the tables and their names in the landed files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..state.records import Revision
from .engine_protocol import R, Tables


@dataclass(frozen=True)
class RowFilter:
    """A filter for the rows that touch one of some vertices, or with `requires_all` every one of them."""

    names: tuple[str, ...]  # as a person types them
    requires_all: bool = False

    def for_ids(self, tables: Tables[R], rows: R, columns: Sequence[str], ids: Iterable[str]) -> R:
        """Filter rows by vertices.

        Args:
            tables: The tables of the home.
            rows: The rows.
            columns: The columns of the rows that contain vertices.
            ids: The vertices as the rows have them, as they are written in a query.
        """
        touched = [f"({' OR '.join(f'{column} = {vertex}' for column in columns)})" for vertex in ids]
        return tables.select_rows(
            f"SELECT * FROM {{rows}} WHERE {(' AND ' if self.requires_all else ' OR ').join(touched)}", rows=rows
        )


def replace_with_names(
    tables: Tables[R], revision: Revision, rows: R, columns: list[str], only: RowFilter | None = None
) -> R:
    """Replace the numbers of vertices by their names in homes with string ids.

    Args:
        tables: The tables of the home.
        revision: The revision whose names are used.
        rows: The rows.
        columns: The columns of the rows that contain vertices.
        only: A filter of the rows, which is applied before.
    """
    if only is not None:
        rows = only.for_ids(tables, rows, columns, map(str, numbers_of_names(tables, only.names, revision)))
    if tables.home.config.vertices.ids == "integer":
        return rows
    chosen = [
        f"n_{name}.name AS {name}" if name in columns else f"r.{tables.quote_identifier(name)}"
        for name in tables.columns_of(rows)
    ]
    joins = "".join(f" JOIN {{names}} n_{name} ON n_{name}.id = r.{name}" for name in columns)
    return tables.select_rows(
        f"SELECT {', '.join(chosen)} FROM {{rows}} r{joins}", rows=rows, names=tables.read_table("names", revision)
    )


def numbers_of_names(tables: Tables[R], names: Iterable[str], *revisions: Revision) -> list[int]:
    """Return the numbers of vertices, each in the first of the revisions that has its name.

    Raises:
        UsageError: A vertex is no integer in a home with integer ids, or no revision has its name.
    """
    wanted = list(names)
    if tables.home.config.vertices.ids == "integer":
        odd = [name for name in wanted if not re.fullmatch(r"[+-]?[0-9]+", name)]
        if odd:
            raise UsageError(f"{' '.join(odd)}: the vertices of this home are integers.", "altneu show vertices")
        return [int(name) for name in wanted]
    known: dict[str, int] = {}
    query = f"SELECT id, name FROM {{book}} WHERE name IN ({', '.join(map(tables.text_literal, wanted))})"
    for revision in revisions:
        book = tables.collect_rows(tables.select_rows(query, book=tables.read_table("names", revision)))
        known = {row["name"]: row["id"] for row in book} | known
    for name in wanted:
        if name not in known:
            which = " or ".join(str(revision.revision) for revision in revisions)
            raise UsageError(f"no vertex is called {name!r} at revision {which}.", "altneu show vertices")
    return [known[name] for name in wanted]
