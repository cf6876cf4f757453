"""Where `altneu move` puts a home: a new folder, and what goes elsewhere; its settings there.

    read("new", ["s3://bucket/graph", "postgresql+psycopg://me@host/altneu", "https://catalog/api?namespace=graph"])

A store takes tables, landing and reports, below that prefix; PostgreSQL the database; a REST catalog lists the tables.
What is not said stays in the folder. Secrets are the environment's, and none is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl

import sqlalchemy as sa

from ..errors import UsageError
from ..home import setting_types
from ..home.home import Home, parse_settings
from ..home.settings_file import NAME, read_text, replace_settings
from ..state import filesystem

FORMS = "s3://bucket/prefix, postgresql+psycopg://user@host/database, https://catalog/api?namespace=graph"
OF_CATALOG = ("namespace", "warehouse", "scope")


@dataclass(frozen=True)
class MoveTarget:
    """folder: the new home; store: the prefix of an object store; database: an SQLAlchemy URI; catalog: as in
    `[storage] catalog`."""

    folder: Path
    store: str | None = None
    database: str | None = None
    catalog: dict[str, str] | None = None

    def to_arguments(self) -> list[str]:
        """What `--to` said, in one spelling."""
        catalog = self.catalog and "?".join((self.catalog["uri"], str(sorted(self.catalog.items()))))
        return [each for each in (self.store, self.database, catalog) if each]

    def settings_text(self, home: Home) -> str:
        """The text of the new `altneu.toml`."""
        file = home.path / NAME
        places = {name: f"{self.store}/{name}" if self.store else None for name in ("warehouse", "landing", "reports")}
        return replace_settings(
            read_text(file),
            {
                ("storage", "database"): self.database,
                ("storage", "warehouse"): places["warehouse"],
                ("storage", "catalog"): self.catalog,
                ("landing", "uri"): places["landing"],
                ("reports", "uri"): places["reports"],
            },
        )

    def target_home(self, home: Home) -> Home:
        """The new home; nothing of it is written."""
        return Home(self.folder, parse_settings(self.settings_text(home), str(self.folder / NAME)))


def parse_target(folder: Path | str, to: Sequence[str]) -> MoveTarget:
    """Raises `UsageError`."""
    found = MoveTarget(Path(folder).expanduser().resolve())
    for text in to:
        new = _with_part(found, text)
        name = next(name for name in ("store", "database", "catalog") if getattr(new, name) != getattr(found, name))
        if getattr(found, name) is not None:
            raise UsageError(
                f"--to {_redact_location(text)}: one {name} is named already.", "name each kind of place once"
            )
        found = new
    return found


def _with_part(found: MoveTarget, text: str) -> MoveTarget:
    if re.match(r"https?://", text):
        return replace(found, catalog=_parse_catalog(text))
    if re.match(r"(postgres|postgresql|sqlite)(\+\w+)?:", text):
        return replace(found, database=_parse_database(text))
    if re.match(r"\w+://", text) and not text.startswith("file:") and setting_types.is_landing(text):
        return replace(found, store=filesystem.normalize_location(text))
    if re.match(r"\w+://", text) and not text.startswith("file:"):
        what = "no place that is known, or one with keys or options in it, which belong into the environment"
        raise UsageError(f"--to {_redact_location(text)}: {what}.", f"--to {FORMS}")
    raise UsageError(
        f"--to {text}: a folder of this machine is the new home itself.", f"altneu move {text}   (without --to)"
    )


def _parse_database(text: str) -> str:
    text = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", text)
    if not text.startswith("postgresql") or not setting_types.is_database(text):
        raise UsageError(f"--to {_redact_location(text)}: expected a database in PostgreSQL.", f"--to {FORMS}")
    url = sa.make_url(text)
    if url.password is not None or "password" in url.query:
        raise UsageError(
            f"--to {_redact_location(text)}: the new altneu.toml would hold the password.",
            "leave it out: every process finds it in its environment, by PGPASSWORD or the file of PGPASSFILE",
        )
    return text


def _parse_catalog(text: str) -> dict[str, str]:
    uri, _, options = text.partition("?")
    said = dict(parse_qsl(options, keep_blank_values=True))
    if not setting_types.is_endpoint(uri) or said.keys() - set(OF_CATALOG) or not all(said.values()):
        raise UsageError(
            f"--to {_redact_location(text)}: expected the address of a REST catalog, with no option but "
            f"{', '.join(OF_CATALOG)}.",
            "tokens are said in the environment: ALTNEU_CATALOG_TOKEN or ALTNEU_CATALOG_CREDENTIAL",
        )
    return {"type": "rest", "uri": uri} | said


def _redact_location(text: str) -> str:
    """A place as a message may name it: without its password, and without options."""
    found = re.sub(r"(://[^:/@]*):[^/@]*@", r"\1:***@", text)
    if re.match(r"s3|gs|https?:", text):
        found = re.sub(r"(://)[^/@]*@", r"\1***@", text)
    return re.sub(r"\?.*", "?***", found)
