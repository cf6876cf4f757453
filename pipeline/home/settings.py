"""Settings: what `altneu.toml` may say, and what it says in a home; read once, checked whole.

All problems of the file are collected and told together (`UsageError`): section, key, value and what is allowed. The
*semantic* part (what decides the meaning of history: ids, values, the filter, the window) has a digest that the ledger
keeps, so that a run notices a change.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import sqlalchemy as sa

from algorithms import patterns
from algorithms.conditions import Condition, spark_sql

from ..errors import UsageError
from .schedule import Schedule

TYPES = ("long", "double", "string", "boolean")

TEMPLATE = """\
# altneu.toml: every setting has a default; uncomment what you change.

[epochs]
# every = "1d"          # epochs are intervals of time since 1970-01-01 UTC (1d, 12h, 7d, 15m); else plain integers

[vertices]
# ids = "integer"       # "string": the ids are names, kept in a dictionary table

[values]                # value columns of the upserts and their types: long, double, string, boolean
# rating = "long"

[edges]
# live_for = 30         # an upsert at epoch e keeps the edge at epochs e .. e+29; without it, until it is deleted
# where = "rating > 0"  # only upserts with such a value make an edge (Spark SQL over src, dst and the value columns)

[ingest]
# max_bad_share = 0.05  # a run with a larger share of malformed rows fails before it publishes
# max_revision_mb = 2048  # a backfill over more landed files than this is cut into several revisions
# settle = 10           # an epoch's folder without a _SUCCESS counts as landed so many seconds after its last change

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
# warehouse = "s3://bucket/altneu"                     # default: a folder in the home; moved: altneu relocate

[spark]
# master = "local[*]"   # where Spark works: this machine, a cluster, or the sc://host:port of altneu connect
# conf = { "spark.driver.memory" = "8g" }  # any of Spark's own settings; names with dots stand in quotes
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
    settle: float = 10
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

    @property
    def condition(self) -> str | None:
        """`where`, as Spark takes it."""
        return None if self.where is None else spark_sql(self.where)

    def patterns(self) -> dict[str, list[patterns.Pattern]]:
        """The motifs, read; in their order."""
        return {name: patterns.motif(text) for name, text in self.motifs.items()}

    def digest(self) -> str:
        text = json.dumps(self.semantic(), sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_length(text: str) -> bool:
    try:
        Schedule.parse(text)
    except UsageError:
        return False
    return True


def _is_database(text: str) -> bool:
    """A file of SQLite, or PostgreSQL by a driver that is here. Without psycopg, who connects says what to install."""
    try:
        url = sa.make_url(text)
        if url.get_driver_name() != "psycopg":
            url.get_dialect().import_dbapi()
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError):
        return False
    backend = url.get_backend_name()
    return bool(url.database) and (backend == "postgresql" or (backend == "sqlite" and url.database != ":memory:"))


_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, ?[1-9]\d*)?\])?|local-cluster\[[1-9]\d*, ?[1-9]\d*, ?[1-9]\d*\]|yarn"
    r"|spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*|k8s://\S+|sc://\S+"
)
MASTERS = '"local[*]", "local[N]", "spark://host:port", "yarn", "k8s://…", "sc://host:port" (Spark Connect)'


def is_master(text: str) -> bool:
    return _MASTER.fullmatch(text) is not None


def _within(low: float, high: float = 2**63 - 1) -> Callable[[Any], bool]:
    return lambda value: low <= value <= high


@dataclass(frozen=True)
class Setting:
    """Where a setting stands in the file, the types that its value may have, and which values are allowed."""

    section: str
    key: str
    types: tuple[type, ...]
    allowed: str
    fits: Callable[[Any], bool] = bool


_WHOLE, _NUMBER, _TEXT = (int,), (int, float), (str,)
_MOST_EPOCHS = 10**9  # an epoch more or less by so many is still one
PLACES: dict[str, Setting] = {
    "every": Setting("epochs", "every", _TEXT, 'a number and d, h or m: "1d", "12h", "7d", "15m"', _is_length),
    "ids": Setting("vertices", "ids", _TEXT, '"integer" or "string"', lambda value: value in ("integer", "string")),
    "live_for": Setting("edges", "live_for", _WHOLE, "at least 1 epoch (up to 10^9)", _within(1, _MOST_EPOCHS)),
    "where": Setting("edges", "where", _TEXT, "a condition", lambda value: True),  # read by `_conditions`
    "max_bad_share": Setting("ingest", "max_bad_share", _NUMBER, "between 0 and 1", _within(0, 1)),
    "max_revision_mb": Setting(
        "ingest", "max_revision_mb", _NUMBER, "more than 0 (inf: no limit)", lambda value: value > 0
    ),
    "settle": Setting("ingest", "settle", _NUMBER, "at least 0 seconds", lambda value: value >= 0),
    "triangles_plan": Setting(
        "triangles", "plan", _TEXT, '"auto", "delta" or "bulk"', lambda value: value in ("auto", "delta", "bulk")
    ),
    "triangles_limit": Setting("triangles", "limit_edges", _WHOLE, "at least 1", _within(1)),
    "limit_edges": Setting("truss", "limit_edges", _WHOLE, "at least 0", _within(0)),
    "audit": Setting(
        "audit",
        "epochs",
        _TEXT,
        '"frontier", "all", "every N" or "sample N"',
        lambda value: re.fullmatch(r"frontier|all|(every|sample) [1-9]\d{0,17}", value) is not None,
    ),
    "keep_epochs": Setting("retention", "epochs", _WHOLE, "at least 1 (up to 10^9)", _within(1, _MOST_EPOCHS)),
    "keep_revisions": Setting("retention", "revisions", _WHOLE, "at least 1", _within(1)),
    "database": Setting(
        "storage",
        "database",
        _TEXT,
        '"sqlite:////folder/altneu.db" or "postgresql+psycopg://user@host/altneu"',
        _is_database,
    ),
    "warehouse": Setting("storage", "warehouse", _TEXT, "a folder or the URI of one"),
    "master": Setting("spark", "master", _TEXT, MASTERS, is_master),
    "conf": Setting("spark", "conf", (dict,), "a table of Spark's settings", lambda value: True),
}
_SECTIONS = {setting.section for setting in PLACES.values()} | {"values", "motifs"}
_COLUMNS = {"epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity"}
_COLUMNS |= {"vertex", "degree", "clustering"}  # of `show totals` and `show vertices`: a motif is one more
_RESERVED = {"src", "dst", "op", "seq", "file", "line", "epoch", "revision", "diff", "until", "a", "b"}
_RESERVED |= {"copies", "foreign", "rivals", "not_finite", "no_value", "self_loop"}  # of the checks on upserts
_ASKED = ("src", "dst", "a", "b", "epoch")  # what a condition may ask besides the values
_MEMORY = {"spark.driver.memory", "spark.executor.memory"}
_NAMES = {int: "a whole number", float: "a number", str: "text", dict: "a table"}


def parse(text: str | bytes, source: str) -> Config:
    """`altneu.toml` text → `Config`. Raises `UsageError` with every problem found."""
    raw = _toml(text, source)
    problems = [
        f"[{section}] is no section of altneu.toml{_near(section, _SECTIONS)}"
        for section in raw
        if section not in _SECTIONS
    ]
    flat = {name: value for name, value in raw.items() if name in _SECTIONS and not isinstance(value, dict)}
    problems += [f"{name} = {value!r}: expected the section [{name}]" for name, value in flat.items()]
    raw = {name: value for name, value in raw.items() if name not in flat}
    found: dict[str, Any] = {name: raw.get(name, {}) for name in ("values", "motifs")}
    for name, setting in PLACES.items():
        value = raw.get(setting.section, {}).get(setting.key)
        if value is None:
            continue
        problem = _problem(setting, value)
        if problem:
            problems.append(problem)
        else:
            found[name] = value
    problems += _unknown_keys(raw) + _value_columns(found["values"]) + _motifs(found["motifs"]) + _conditions(found)
    if "conf" in found:
        problems += _spark_settings(found["conf"])
        found["conf"] = {name: _as_spark_has_it(value) for name, value in found["conf"].items()}
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"{source} has {len(problems)} problem(s):{listed}", f"edit {source}")
    return Config(**found)


def _toml(text: str | bytes, source: str) -> dict[str, Any]:
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start}).", f"edit {source}") from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = text.splitlines()[int(found[1]) - 1] if found and isinstance(text, str) else ""
        key, sign, _ = line.partition("=")
        odd = sign and toml_key(key.strip()) != key.strip() and not re.search("[\"'#\\[.]", key)
        hint = f" The name stands in quotes: {toml_key(key.strip())} = …" if odd else ""
        raise UsageError(f"{source} is not TOML: {error}.{hint}", f"edit {source}") from None


def toml_key(name: str) -> str:
    """A key as it stands in TOML: bare where that is allowed, else in quotes."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _problem(setting: Setting, value: Any) -> str | None:
    shown = repr(value)
    if setting.key == "database":
        shown = re.sub(r"(://[^:@/]*):[^@]*@", r"\1:***@", shown)  # the password is nobody's business
    place = f"[{setting.section}] {setting.key} = {shown}"
    if not isinstance(value, setting.types) or isinstance(value, bool):
        return f"{place}: expected {_NAMES[setting.types[-1]]}, {setting.allowed}"
    return None if setting.fits(value) else f"{place}: {setting.allowed}"


def _unknown_keys(raw: dict[str, Any]) -> list[str]:
    known: dict[str, list[str]] = {}
    for setting in PLACES.values():
        known.setdefault(setting.section, []).append(setting.key)
    return [
        f"[{section}] {key} is no setting{_near(key, keys)}; there are: {', '.join(sorted(keys))}"
        for section, keys in known.items()
        for key in raw.get(section, {})
        if key not in keys
    ]


def _value_columns(values: dict[str, Any]) -> list[str]:
    problems, seen = [], dict[str, str]()
    for column, type_ in values.items():
        place = f"[values] {toml_key(column)}"
        if type_ not in TYPES:
            problems.append(f"{place} = {type_!r}: one of {', '.join(TYPES)}")
        why = reserved(column)
        if why:
            problems.append(f"{place}: {why}")
        other = seen.setdefault(column.casefold(), column)
        if other != column:
            problems.append(f"{place}: differs from {other} in its capitals alone")
    return problems


def reserved(column: str) -> str | None:
    """Why a value column cannot have this name; None: it can.

    >>> reserved("b"), reserved("my col")
    ("the name is altneu's own: its tables have such a column", None)
    """
    if column.startswith("_"):
        return "the name is altneu's own, as all that begin with an underscore"
    if column.lower() in _RESERVED:
        return "the name is altneu's own: its tables have such a column"
    if not re.fullmatch(r"\w([\w -]{0,62}\w)?", column):
        return "a name is of letters, digits, _, - and blanks within, up to 64 of them"
    return None


def _motifs(motifs: dict[str, Any]) -> list[str]:
    problems = []
    if len({name.lower() for name in motifs}) < len(motifs):
        problems.append("[motifs] two names differ in their capitals alone")
    for name, text in motifs.items():
        if not re.fullmatch(r"[\w-]{1,64}", name) or name.lower() in _COLUMNS:
            problems.append(f"[motifs] {name}: a name is of letters, digits, _ and -, and no column of `show`")
        try:
            patterns.motif(text)
        except ValueError as error:
            problems.append(f"[motifs] {name} = {text!r}: {error}")
    return problems


def _conditions(found: dict[str, Any]) -> list[str]:
    """What is wrong with `where`, and with the conditions in motifs."""
    problems = []
    if "where" in found:
        fault = _fault(found["where"], found["values"])
        problems += [f"[edges] where = {found['where']!r}: {fault}"] if fault else []
    for name, text in found["motifs"].items():
        try:
            asked = patterns.conditions(patterns.motif(text))
        except ValueError:  # told by `_motifs`
            continue
        for condition in asked:
            fault = _fault(condition, found["values"])
            problems += [f"[motifs] {name} = {text!r}: where {condition}: {fault}"] if fault else []
    return problems


def _fault(condition: str, values: dict[str, Any]) -> str | None:
    """Why a text is no condition on these value columns, in words."""
    try:
        read = Condition.parse(condition)
    except ValueError as error:
        return str(error)
    types = dict.fromkeys(_ASKED, "long") | {name.casefold(): type_ for name, type_ in values.items()}
    for column in read.columns:
        if column.name.casefold() not in types:
            near = _near(column.name, [*values, "src", "dst"])
            there = ", ".join(["src", "dst", *values])
            near = near or f'; a value column is declared: [values] {toml_key(column.name)} = "long"'
            return f"there is no column {column.name!r} (position {column.position}){near}; there are: {there}"
    if read.alone and types[read.columns[0].name.casefold()] != "boolean":
        return f"{read.columns[0].name} is a value and no condition: compare it with something"
    return None


def _spark_settings(conf: dict[str, Any]) -> list[str]:
    problems = []
    for name, value in conf.items():
        place = f"[spark] conf, {name} = {value!r}"
        if isinstance(value, dict):
            problems.append(f'{place}: a name with dots stands in quotes: "spark.driver.memory" = "8g"')
        elif not isinstance(value, (str, int, float)):
            problems.append(f"{place}: expected text")
        elif name in _MEMORY and not _is_memory(str(value)):
            problems.append(f'{place}: a whole number and k, m, g or t, at least 512m: "8g", "4096m"')
    return problems


def _is_memory(text: str) -> bool:
    """What a JVM starts with; Spark needs 450 MiB at the least."""
    found = re.fullmatch(r"(\d{1,12})([kmgt])", text.lower())
    return found is not None and int(found[1]) * 1024 ** "kmgt".index(found[2]) >= 512 * 1024


def _as_spark_has_it(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(name: str, known: Iterable[str]) -> str:
    """Did you mean …? Nothing where no known name is like it."""
    found = get_close_matches(name.lower(), {other.lower(): other for other in known}, 1, 0.6)
    return f". Did you mean {next(other for other in known if other.lower() == found[0])}?" if found else ""
