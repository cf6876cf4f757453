"""The places to which `altneu move` moves a home, and the settings of the new home.

    parse_target("new", ["s3://bucket/graph", "postgresql+psycopg://me@host/altneu", "https://host/api?namespace=graph"])

An object store takes the tables, the landing and the reports below its prefix, PostgreSQL takes the database, and a
REST catalog lists the tables. Everything else stays in the new folder. Secrets come from the environment, and none is
written.
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
    """The places of a new home.

    `folder` is the new home, `store` the prefix of an object store, `database` an SQLAlchemy URI, and `catalog` the
    value of `[storage] catalog`.
    """

    folder: Path
    store: str | None = None
    database: str | None = None
    catalog: dict[str, str] | None = None

    def to_arguments(self) -> list[str]:
        """Return the places as normalized arguments of `--to`."""
        catalog = self.catalog and "?".join((self.catalog["uri"], str(sorted(self.catalog.items()))))
        return [place for place in (self.store, self.database, catalog) if place]

    def settings_text(self, home: Home) -> str:
        """Return the text of the new `altneu.toml`."""
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
        """Return the new home without writing anything."""
        return Home(self.folder, parse_settings(self.settings_text(home), str(self.folder / NAME)))


def parse_target(folder: Path | str, to: Sequence[str]) -> MoveTarget:
    """Read the folder and the arguments of `--to`. Raise `UsageError` for an argument that names no possible place."""
    target = MoveTarget(Path(folder).expanduser().resolve())
    for text in to:
        new = _with_part(target, text)
        name = next(name for name in ("store", "database", "catalog") if getattr(new, name) != getattr(target, name))
        if getattr(target, name) is not None:
            raise UsageError(
                f"--to {_redact_location(text)}: another --to names a {name} already.", "name each kind of place once"
            )
        target = new
    return target


def _with_part(target: MoveTarget, text: str) -> MoveTarget:
    if re.match(r"https?://", text):
        return replace(target, catalog=_parse_catalog(text))
    if re.match(r"(postgres|postgresql|sqlite)(\+\w+)?:", text):
        return replace(target, database=_parse_database(text))
    if re.match(r"\w+://", text) and not text.startswith("file:") and setting_types.is_landing(text):
        return replace(target, store=filesystem.normalize_location(text))
    if re.match(r"\w+://", text) and not text.startswith("file:"):
        what = "this is not a known kind of place, or it contains keys or options, which belong into the environment"
        raise UsageError(f"--to {_redact_location(text)}: {what}.", f"--to {FORMS}")
    raise UsageError(
        f"--to {text}: a folder on this machine is named without --to.", f"altneu move {text}   (without --to)"
    )


def _parse_database(text: str) -> str:
    text = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", text)
    if not text.startswith("postgresql") or not setting_types.is_database(text):
        raise UsageError(f"--to {_redact_location(text)}: expected a database in PostgreSQL.", f"--to {FORMS}")
    url = sa.make_url(text)
    if url.password is not None or "password" in url.query:
        raise UsageError(
            f"--to {_redact_location(text)}: the new altneu.toml would contain the password.",
            "leave it out: every process finds it in its environment, by PGPASSWORD or the file of PGPASSFILE",
        )
    return text


def _parse_catalog(text: str) -> dict[str, str]:
    uri, _, options = text.partition("?")
    parameters = dict(parse_qsl(options, keep_blank_values=True))
    if not setting_types.is_endpoint(uri) or parameters.keys() - set(OF_CATALOG) or not all(parameters.values()):
        raise UsageError(
            f"--to {_redact_location(text)}: expected the address of a REST catalog, with no option but "
            f"{', '.join(OF_CATALOG)}.",
            "set tokens in the environment: ALTNEU_CATALOG_TOKEN or ALTNEU_CATALOG_CREDENTIAL",
        )
    return {"type": "rest", "uri": uri} | parameters


def _redact_location(text: str) -> str:
    """Return a place as a message may name it, without its password and its options."""
    redacted = re.sub(r"(://[^:/@]*):[^/@]*@", r"\1:***@", text)
    if re.match(r"s3|gs|https?:", text):
        redacted = re.sub(r"(://)[^/@]*@", r"\1***@", text)
    return re.sub(r"\?.*", "?***", redacted)
