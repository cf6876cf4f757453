"""The home directory and its `altneu.toml`: read once, checked whole, then frozen.

All problems of the file are collected and told together (`UsageError`). The *semantic* part (what decides the meaning
of history: ids, values, the filter, the window) has a digest that the ledger keeps, so that a run notices a change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithms import patterns

from .errors import UsageError
from .schedule import Schedule

TYPES = ("long", "double", "string", "boolean")

TEMPLATE = """\
# altneu.toml: every setting has a default; uncomment what you change.

[epochs]
# every = "1d"          # epochs are intervals of time since 1970-01-01 UTC (1d, 12h, 7d, 15m); else plain integers

[vertices]
# ids = "integer"       # or "string": names go through a dictionary table

[values]                # value columns of the upserts and their types: long, double, string, boolean
# rating = "long"

[edges]
# live_for = 30         # an upsert at epoch e keeps the edge at epochs e .. e+29; without it, until it is deleted
# where = "rating > 0"  # only upserts with such a value make an edge (Spark SQL over src, dst and the value columns)

[ingest]
# max_bad_share = 0.05  # a run with a larger share of malformed rows fails before it publishes
# max_revision_mb = 2048  # a backfill over more landed files than this is cut into several revisions

[triangles]
# plan = "auto"         # "delta": by delta queries from the changed edges; "bulk": all triangles of all epochs are
                        # enumerated and compared with what is stored; "auto": what is estimated to cost less
# limit_edges = 20000000  # one task enumerates up to so many edges, 200 bytes of memory each; more are cut into cells

[motifs]                # patterns to count at every vertex: a-b is an edge, a->b an upsert with its direction, either
                        # with a condition on the values; a list of patterns is counted as one motif
# clique = "a-b, a-c, a-d, b-c, b-d, c-d"
# loop = "a->b where rating > 0, b->c where rating > 0, c->a where rating < 0"

[truss]
# limit_edges = 20000000  # one task replays up to so many edges, 350 bytes of memory each; more take rounds of joins

[audit]
# epochs = "frontier"   # what a run recomputes from scratch: its last epoch and the frontier; besides these "all" of
                        # its epochs, "every 10" (those that 10 divides), or "sample 3" of all that are published

[retention]             # what `altneu compact` keeps
# epochs = 400          # the tables answer for the last 400 epochs; without it, for all of them. Totals: always for all
# revisions = 20        # how many revisions back one can look, and roll back

[storage]
# database = "postgresql+psycopg://user@host/altneu"   # default: a SQLite file in the home
# warehouse = "s3://bucket/altneu"                     # default: a folder in the home

[spark]
# master = "local[*]"
# conf = { "spark.driver.memory" = "8g" }
"""


@dataclass(frozen=True)
class Config:
    """The settings of a home. Units are in the names or in `TEMPLATE`."""

    every: str | None = None
    ids: str = "integer"
    values: dict[str, str] = field(default_factory=dict)
    live_for: int | None = None
    where: str | None = None
    motifs: dict[str, str | list[str]] = field(default_factory=dict)
    max_bad_share: float = 0.05
    max_revision_mb: float = 2048
    triangles_plan: str = "auto"
    triangles_limit: int = 20_000_000
    limit_edges: int = 20_000_000
    audit: str = "frontier"
    keep_epochs: int | None = None
    keep_revisions: int = 20
    database: str | None = None
    warehouse: str | None = None
    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)

    def semantic(self) -> dict[str, Any]:
        """What decides the meaning of history."""
        meaning: dict[str, Any] = {
            "every": self.every,
            "ids": self.ids,
            "values": self.values,
            "live_for": self.live_for,
            "where": self.where,
        }
        # only if there are any: the digest of a home without motifs is that of before there were motifs
        return meaning | ({"motifs": self.motifs} if self.motifs else {})

    def patterns(self) -> dict[str, list[patterns.Pattern]]:
        """The motifs, read; in their order."""
        return {name: patterns.motif(text) for name, text in self.motifs.items()}

    def digest(self) -> str:
        text = json.dumps(self.semantic(), sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# where each setting stands in the file: section, key, accepted types
_PLACES: dict[str, tuple[str, str, tuple[type, ...]]] = {
    "every": ("epochs", "every", (str,)),
    "ids": ("vertices", "ids", (str,)),
    "live_for": ("edges", "live_for", (int,)),
    "where": ("edges", "where", (str,)),
    "max_bad_share": ("ingest", "max_bad_share", (int, float)),
    "max_revision_mb": ("ingest", "max_revision_mb", (int, float)),
    "triangles_plan": ("triangles", "plan", (str,)),
    "triangles_limit": ("triangles", "limit_edges", (int,)),
    "limit_edges": ("truss", "limit_edges", (int,)),
    "audit": ("audit", "epochs", (str,)),
    "keep_epochs": ("retention", "epochs", (int,)),
    "keep_revisions": ("retention", "revisions", (int,)),
    "database": ("storage", "database", (str,)),
    "warehouse": ("storage", "warehouse", (str,)),
    "master": ("spark", "master", (str,)),
    "conf": ("spark", "conf", (dict,)),
}
_SECTIONS = {section for section, _, _ in _PLACES.values()} | {"values", "motifs"}
_COLUMNS = {"epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity"}
_COLUMNS |= {"vertex", "degree", "clustering"}  # of `show totals` and `show vertices`: a motif is one more
_RESERVED = {"src", "dst", "op", "seq", "file", "line", "epoch", "revision", "diff", "until", "a", "b"}
_RESERVED |= {"copies", "foreign", "rivals", "not_finite", "no_value", "self_loop"}  # of the checks on upserts


def parse(text: str, source: str) -> Config:
    """`altneu.toml` text → `Config`. Raises `UsageError` with every problem found."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not TOML: {error}.", f"edit {source}") from None
    problems = [f"[{section}] is no section of altneu.toml" for section in raw if section not in _SECTIONS]
    flat = {name: value for name, value in raw.items() if name in _SECTIONS and not isinstance(value, dict)}
    problems += [f"{name} = {value!r}: expected the section [{name}]" for name, value in flat.items()]
    raw = {name: value for name, value in raw.items() if name not in flat}
    found: dict[str, Any] = {name: raw.get(name, {}) for name in ("values", "motifs")}
    known: dict[str, set[str]] = {}
    for name, (section, key, types) in _PLACES.items():
        known.setdefault(section, set()).add(key)
        value = raw.get(section, {}).get(key)
        if value is None:
            continue
        if not isinstance(value, types) or isinstance(value, bool):
            problems.append(f"[{section}] {key} = {value!r}: expected {' or '.join(t.__name__ for t in types)}")
            continue
        found[name] = value
    for section, keys in known.items():
        for key in raw.get(section, {}):
            if key not in keys:
                problems.append(f"[{section}] {key} is no setting; there are: {', '.join(sorted(keys))}")
    problems += _check(found)
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"{source} has {len(problems)} problem(s):{listed}", f"edit {source}")
    return Config(**found)


def _check(found: dict[str, Any]) -> list[str]:
    problems = []
    if found.get("every"):
        try:
            Schedule.parse(found["every"])
        except UsageError as error:
            problems.append(f"[epochs] {error.what}")
    if not re.fullmatch(r"frontier|all|(every|sample) [1-9]\d*", found.get("audit", "all")):
        problems.append(f'[audit] epochs = {found["audit"]!r}: "frontier", "all", "every N" or "sample N"')
    if found.get("triangles_plan", "auto") not in ("auto", "delta", "bulk"):
        problems.append(f'[triangles] plan = {found["triangles_plan"]!r}: "auto", "delta" or "bulk"')
    if found.get("ids", "integer") not in ("integer", "string"):
        problems.append(f'[vertices] ids = {found["ids"]!r}: "integer" or "string"')
    if found.get("live_for", 1) < 1:
        problems.append(f"[edges] live_for = {found['live_for']}: at least 1 epoch")
    if not 0 <= found.get("max_bad_share", 0) <= 1:
        problems.append(f"[ingest] max_bad_share = {found['max_bad_share']}: between 0 and 1")
    if found.get("triangles_limit", 1) < 1:
        problems.append(f"[triangles] limit_edges = {found['triangles_limit']}: at least 1")
    if found.get("limit_edges", 0) < 0:
        problems.append(f"[truss] limit_edges = {found['limit_edges']}: at least 0")
    for name, unit in (("keep_epochs", "epochs"), ("keep_revisions", "revisions")):
        if found.get(name, 1) < 1:
            problems.append(f"[retention] {unit} = {found[name]}: at least 1")
    for column, type_ in found["values"].items():
        if type_ not in TYPES:
            problems.append(f"[values] {column} = {type_!r}: one of {', '.join(TYPES)}")
        if column.lower() in _RESERVED or column.startswith("_"):
            problems.append(f"[values] {column}: the name is altneu's own, as all that begin with an underscore")
    if len({name.lower() for name in found["motifs"]}) < len(found["motifs"]):
        problems.append("[motifs] two names differ in their capitals alone")
    for name, text in found["motifs"].items():
        if not re.fullmatch(r"[\w-]{1,64}", name) or name.lower() in _COLUMNS:
            problems.append(f"[motifs] {name}: a name is of letters, digits, _ and -, and no column of `show`")
        try:
            patterns.motif(text)
        except ValueError as error:
            problems.append(f"[motifs] {name} = {text!r}: {error}")
    return problems


@dataclass(frozen=True)
class Home:
    """A home directory: `altneu.toml`, landing, warehouse, database, reports."""

    path: Path
    config: Config

    @classmethod
    def open(cls, path: Path | str, create: bool = False) -> Home:
        """Read the home at `path`. With `create`, make it (and a commented `altneu.toml`) when it is not there."""
        path = Path(path).resolve()
        file = path / "altneu.toml"
        if not file.exists():
            if not create:
                raise UsageError(
                    f"{path} is no altneu home (it has no altneu.toml).",
                    "altneu land FILE --columns src,dst --epoch 1   (makes one), or: altneu demo",
                )
            path.mkdir(parents=True, exist_ok=True)
            file.write_text(TEMPLATE)
        return cls(path, parse(file.read_text(), str(file)))

    @property
    def landing(self) -> Path:
        return self.path / "landing"

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def database(self) -> str:
        return self.config.database or f"sqlite:///{self.path / 'altneu.db'}"

    @property
    def warehouse(self) -> str:
        return self.config.warehouse or str(self.path / "warehouse")

    @property
    def schedule(self) -> Schedule:
        return Schedule.parse(self.config.every)

    def declare(self, **settings: Any) -> Home:
        """Write settings that are not there yet into `altneu.toml` (used by `land`), and return the new home."""
        file = self.path / "altneu.toml"
        text = file.read_text()
        for name, value in settings.items():
            section, key = ("values", None) if name == "values" else _PLACES[name][:2]
            entries = value if key is None else {key: value}
            lines = [f"{key} = {json.dumps(entry)}" for key, entry in entries.items()]
            out, done = [], False
            for line in text.splitlines():
                out.append(line)
                if line.split("#")[0].strip() == f"[{section}]":
                    out += lines
                    done = True
            text = "\n".join(out if done else [*out, "", f"[{section}]", *lines]) + "\n"
        config = parse(text, str(file))
        temporary = file.with_suffix(".toml.new")
        temporary.write_text(text)
        temporary.replace(file)
        return dataclasses.replace(self, config=config)
