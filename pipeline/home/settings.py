"""The settings of `altneu.toml`, as strict and frozen models that are nested as the file is.

Each setting is declared here once: its type, its default, and an `About` with the texts of errors, template and
reference, and with what a change requires once something is published. The *semantic* settings (ids, values, the
filter, the window, motifs) decide what the history means. The ledger stores a digest of them, so that a run notices a
change. `settings_file` reads and writes the file. The modules that parse conditions and motifs are imported only where
a home has some, because their import is slow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from . import setting_types
from .approval_rule import NEVER, as_rule
from .setting_types import TYPES

if TYPE_CHECKING:
    from altneu.algorithms.graph.motif_patterns import Pattern

_NOTHING = "nothing; the next command uses it"
_CONNECT = "nothing; a running `altneu connect` has to be started again"
_MOST_EPOCHS = 10**9  # the greatest number of epochs in a setting: an epoch plus or minus it is still a valid epoch
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class About:
    """The texts about a setting, or about a section in which users choose the names."""

    example: str  # its value in TOML; for a section, its lines
    meaning: str
    allowed: str = ""  # the allowed values, as an error names them
    restates: Literal["new", "rebuild", "reload"] | None = None  # a change needs a rebuild, a reload or a new home
    change: str = _NOTHING  # what a change needs that restates nothing


def declare(
    default: Any,
    example: str,
    meaning: str,
    allowed: str = "",
    *,
    restates: Literal["new", "rebuild", "reload"] | None = None,
    change: str = _NOTHING,
    **limits: Any,
) -> Any:
    """Return the field of a setting: its default, its texts (see `About`) and the limits of its value (see `Field`)."""
    field: FieldInfo = Field(default, **limits)
    field.metadata.append(About(example, meaning, allowed, restates, change))
    return field


class Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    heading: ClassVar[str] = ""


class Epochs(Section):
    every: setting_types.Length | None = declare(
        None,
        '"1d"',
        "epochs are intervals of time since 1970-01-01 UTC (1d, 12h, 7d, 15m); else plain integers",
        'a number and d, h or m: "1d", "12h", "7d", "15m"',
        restates="new",
    )


class Vertices(Section):
    ids: Literal["integer", "string"] = declare(
        "integer",
        '"integer"',
        '"string": the ids are names, kept in a dictionary table',
        '"integer" or "string"',
        restates="new",
    )


class Edges(Section):
    live_for: int | None = declare(
        None,
        "30",
        "an upsert at epoch e keeps the edge at epochs e .. e+29; without it, until it is deleted",
        "at least 1 epoch (up to 10^9)",
        restates="rebuild",
        ge=1,
        le=_MOST_EPOCHS,
    )
    where: str | None = declare(
        None,
        '"rating > 0"',
        "only upserts with such a value make an edge (Spark SQL over src, dst and the value columns)",
        "a condition",
        restates="rebuild",
    )


class Ingest(Section):
    max_bad_share: float = declare(
        0.05,
        "0.05",
        "a run with a larger share of malformed rows fails before it publishes",
        "between 0 and 1",
        ge=0,
        le=1,
    )
    max_revision_mb: float = declare(
        2048,
        "2048",
        "a backfill over more MiB of landed files than this is divided into several revisions",
        "more than 0 (inf: no limit)",
        gt=0,
    )
    settle: float = declare(
        10,
        "10",
        "an epoch's folder without a _SUCCESS counts as landed this many seconds after its last change; in an "
        "object store only where this is set",
        "at least 0 seconds",
        ge=0,
    )


class Landing(Section):
    uri: setting_types.LandingPlace | None = declare(
        None,
        '"s3://bucket/landing"',
        "where batches are landed; default: the folder landing in the home. See [object "
        "stores](operating/object-stores.md)",
        "a folder or the URI of one (s3, gs, abfs, hdfs, file), without keys",
        change="nothing, where the same batches are there; the next command looks there",
    )


class Reports(Section):
    uri: setting_types.LandingPlace | None = declare(
        None,
        '"s3://bucket/reports"',
        "where report pages are written; default: the folder reports in the home. See [object "
        "stores](operating/object-stores.md)",
        "a folder or the URI of one (s3, gs, abfs, hdfs, file), without keys",
        change="copy the pages, or `altneu report --all`",
    )


class Triangles(Section):
    plan: Literal["auto", "resume", "delta", "bulk"] = declare(
        "auto",
        '"auto"',
        '"resume": from the graph cache of the last run, where it exists and edges do not expire; '
        '"delta": by delta queries from the changed edges; "bulk": all triangles from the first changed epoch on are '
        'enumerated and compared with what is stored; "auto": what is estimated to cost less',
        '"auto", "resume", "delta" or "bulk"',
    )
    limit_edges: Annotated[int, Field(ge=1, le=_MAX_INTEGER)] | None = declare(
        None,
        "20000000",
        "no task counts triangles in more edges, nor in more than its memory holds (`altneu doctor`); more "
        "are cut into cells",
        "at least 1",
    )


class Truss(Section):
    limit_edges: Annotated[int, Field(ge=0, le=_MAX_INTEGER)] | None = declare(
        None,
        "20000000",
        "no task holds more edges, nor more than its memory holds (`altneu doctor`); more are cut "
        "into parts, and audited in cells",
        "at least 0",
    )


class Audit(Section):
    mode: setting_types.AuditMode = declare(
        "auto",
        '"auto"',
        'how a run is checked before it is published. Every epoch is proved in any case; besides, "full": some are '
        'recomputed from scratch (`epochs`); "local": nothing is; "rolling 32": one in 32 vertices is recounted in '
        'each run, all of them within 32 runs; "auto": "full" while that costs less than the rest of the run, then '
        '"rolling 32", beyond 2 million edges 64, beyond 4 million 128, and so on',
        '"auto", "full", "local" or "rolling N"',
    )
    epochs: setting_types.AuditedEpochs = declare(
        "frontier",
        '"frontier"',
        "what a run recomputes from scratch when it is checked in full: its last epoch and the frontier; besides "
        'these "all" of its epochs, "every 10" (those that 10 divides), or "sample 3" of all that are published',
        '"frontier", "all", "every N" or "sample N"',
    )
    engine: Literal["auto", "spark", "duckdb"] = declare(
        "auto",
        '"auto"',
        'what audits a run: "spark"; "duckdb", in the process of the run, from the files of its tables; or "auto": '
        "DuckDB where the audit holds up to 10 million rows (to recompute epochs: all rows, and up to 5 million edges "
        "of them all) on a disk of this machine, and it certainly understands the conditions of these settings as "
        "Spark does. Both find the same. Serving tables are checked by Spark",
        '"auto", "spark" or "duckdb"',
    )


class Approve(Section):
    """When a run is held until somebody approves, and who may approve (no names: everybody)."""

    when: setting_types.Rule = NEVER
    by: list[str] = []


class Publish(Section):
    approve: Annotated[Approve, BeforeValidator(as_rule)] = declare(
        NEVER,
        '{ when = "moved > 0.5 % or warnings > 0", by = ["ada"] }',
        'when a run is held before it is published, until somebody approves: "never", "always", "on warning" (when a '
        "check warns), or [a rule](operating/approving.md#a-rule); `by`: who may approve, else everybody",
        'a rule, or a table with when, a rule, and as needed by, a list of names; a rule is "never", "on warning", '
        '"always" or a condition such as "moved > 0.5 % or warnings > 0"',
        validate_default=True,
    )
    tables: list[setting_types.PublishedTable] = declare(
        [],
        '["vertex_history", "edge_now", "epoch_totals"]',
        "[serving tables](engines.md#serving-tables) that are kept up beside the diff triples, for other programs, and "
        "the table of [changes](engines.md#changes) that they follow",
        'a list of "vertex_history", "edge_now", "epoch_totals" and "changes"',
        change="nothing; the next run that publishes writes them whole, or no longer, and `altneu rebuild` at once",
    )

    @property
    def serving_tables(self) -> list[str]:
        """Return the tables that are a part of each revision."""
        return [table for table in self.tables if table != "changes"]

    @property
    def logs_changes(self) -> bool:
        return "changes" in self.tables


class Runs(Section):
    hold_days: float = declare(
        7,
        "7",
        "a run that is held for longer than so many days is discarded by the next run or compaction",
        "more than 0 (up to 36500)",
        gt=0,
        le=36_500,
    )


class Checks(Section):
    sensitivity: Literal["low", "normal", "high"] = declare(
        "normal",
        '"normal"',
        "how far from what is usual the numbers of rows, edges and triangles may be before a check warns: the "
        'bounds of "low" are 1.5 times as wide (a false alarm in 2,000 epochs), of "high" 0.7 times (in 100)',
        '"low", "normal" or "high"',
        change="nothing; the next run uses it, and what was found before stays",
    )
    rows: Literal["warn", "stop"] = declare(
        "warn",
        '"warn"',
        'what comes of an epoch with an unusual number of rows: "warn": it is published with its mark; "stop": '
        "only when somebody says that it is right (altneu run EPOCH --accept-rows)",
        '"warn" or "stop"',
    )


class Alerts(Section):
    severity: Literal["warning", "critical"] = declare(
        "warning",
        '"warning"',
        "which incidents are sent as [alerts](operating/alerts.md): all of them, or the critical ones",
        '"warning" or "critical"',
    )
    pages: str | None = declare(
        None,
        '"https://host/reports"',
        "where the folder reports is served, for links in alerts; else they name the file",
        "an address that begins with http:// or https://",
        pattern=r"^https?://[^\s@]+$",
    )


class Retention(Section):
    heading = "what `altneu compact` keeps"
    epochs: int | None = declare(
        None,
        "400",
        "the tables answer for the last 400 epochs; without it, for all of them. Totals: always for all",
        "at least 1 (up to 10^9)",
        change="nothing; the next `altneu compact` uses it, and what it folds does not come back",
        ge=1,
        le=_MOST_EPOCHS,
    )
    revisions: int = declare(
        20,
        "20",
        "how many revisions back one can look, and roll back",
        "at least 1",
        change="nothing; the next `altneu compact` uses it, and what it drops does not come back",
        ge=1,
        le=_MAX_INTEGER,
    )


class Rest(Section):
    """A catalog that speaks Iceberg's REST protocol."""

    type: Literal["rest"]
    uri: setting_types.Endpoint
    warehouse: str | None = None  # the catalog's own name for a group of tables
    namespace: setting_types.Namespace = "graph"
    scope: str | None = None  # the scope for OAuth2


class Storage(Section):
    database: setting_types.Database | None = declare(
        None,
        '"postgresql+psycopg://user@host/altneu"',
        "default: a SQLite file in the home",
        '"sqlite:////folder/altneu.db" or "postgresql+psycopg://user@host/altneu"',
        change="the database has to be moved: `altneu move`, or [as here](backup.md#postgresql-and-object-stores)",
    )
    warehouse: setting_types.Place | None = declare(
        None,
        '"s3://bucket/altneu"',
        "default: a folder in the home; moved: altneu relocate; in S3: [object stores](operating/object-stores.md)",
        "a folder or the URI of one, without keys",
        change="move or copy the tables, then `altneu relocate`",
    )
    catalog: Rest | None = declare(
        None,
        '{ type = "rest", uri = "https://host/api" }',
        "[a REST catalog](operating/catalogs.md) that lists the tables; default: the database does",
        'a table with type = "rest" and uri, and as needed warehouse, namespace (default "graph") and scope; no '
        "secrets: ALTNEU_CATALOG_TOKEN or ALTNEU_CATALOG_CREDENTIAL in the environment",
        change="the tables stay where they are listed; into another catalog: `altneu move`",
    )


class Spark(Section):
    master: setting_types.Master | None = declare(
        None,
        '"local[*]"',
        "where Spark works: this machine, a cluster, or the sc://host:port of altneu connect",
        setting_types.MASTERS,
        change=_CONNECT,
    )
    conf: dict[str, setting_types.SparkValue] = declare(
        {},
        '{ "spark.driver.memory" = "8g" }',
        "any of Spark's own settings; names with dots stand in quotes",
        "a table of Spark's settings",
        change=_CONNECT,
    )
    daemon: bool = declare(
        True,
        "true",
        "whether commands and tasks work in the Spark of `altneu daemon`, where one is running",
        "true or false",
    )
    idle_minutes: float = declare(
        30,
        "30",
        "the minutes without a command after which a daemon ends by itself",
        "more than 0 minutes",
        gt=0,
    )
    threads: int | None = declare(
        None,
        "2",
        "the threads of a task that works while no other does; by default those of this machine, or spark.task.cpus on "
        "a cluster",
        "1 or more",
        ge=1,
    )


class DeclaredRelation(Section):
    """A relation that lands beside the edges: no two rows in force have the same values in the columns of the key."""

    key: dict[setting_types.Column, setting_types.KeyType] = Field(min_length=1)
    values: dict[setting_types.Column, setting_types.Type] = {}

    @model_validator(mode="after")
    def require_different_names(self) -> Self:
        names = [name.casefold() for name in (*self.key, *self.values)]
        if len(set(names)) < len(names):
            raise ValueError("two of its columns have the same name")
        return self

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns with their types, as a file of rows has them."""
        return {**self.key, **self.values}


class Queries(Section):
    recompute: list[str] = declare(
        [],
        '["reachable"]',
        "[queries that cannot be maintained](queries.md#what-is-recomputed), such as recursive ones: each run "
        "recomputes them by their text, at every epoch from its first changed one on",
        'a list of names of queries, such as ["reachable"]',
        change="nothing; the next run computes the query anew",
    )


class Config(Section):
    """The settings of a home. Units are in the names or in the texts of `About`."""

    epochs: Epochs = Epochs()
    vertices: Vertices = Vertices()
    values: dict[setting_types.Column, setting_types.Type] = declare(
        {},
        'rating = "long"',
        f"value columns of the upserts and their types: {', '.join(TYPES)}",
        f"one of {', '.join(TYPES)}",
        restates="reload",
    )
    edges: Edges = Edges()
    ingest: Ingest = Ingest()
    landing: Landing = Landing()
    reports: Reports = Reports()
    triangles: Triangles = Triangles()
    motifs: dict[setting_types.MotifName, setting_types.Motif] = declare(
        {},
        'clique = "a-b, a-c, a-d, b-c, b-d, c-d"\n'
        'loop = "a->b where rating > 0, b->c where rating > 0, c->a where rating < 0"',
        "patterns to count at every vertex: a-b is an edge, a->b an upsert with its direction, either with a "
        "condition on the values; a list of patterns is counted as one motif",
        restates="rebuild",
    )
    relations: dict[setting_types.RelationName, DeclaredRelation] = declare(
        {},
        'people = { key = { id = "vertex" }, values = { country = "string", age = "long" } }',
        "[relations for queries](queries.md#relations-of-your-own), such as attributes of vertices: the columns that "
        "identify a row, with their types (vertex, long, string), and the others (as in `[values]`)",
        'a table with key and as needed values, such as { key = { id = "vertex" }, values = { country = "string" } }; '
        "a column of the key is a vertex, long or string",
        change="nothing; the next run reads the files of the relation again",
    )
    queries: Queries = Queries()
    truss: Truss = Truss()
    audit: Audit = Audit()
    publish: Publish = Publish()
    runs: Runs = Runs()
    checks: Checks = Checks()
    alerts: Alerts = Alerts()
    retention: Retention = Retention()
    storage: Storage = Storage()
    spark: Spark = Spark()

    def semantic_settings(self) -> dict[str, Any]:
        """Return the settings that decide what the history means: setting → value."""
        meaning = {setting.name: setting.value_in(self) for setting in SETTINGS if setting.about.restates}
        # without motifs the digest stays that of the versions of altneu that had no motifs
        return meaning if self.motifs else {name: value for name, value in meaning.items() if name != "motifs"}

    @property
    def edge_condition(self) -> str | None:
        """Return `[edges] where` as a condition in Spark SQL, or None."""
        from altneu.algorithms.sql_predicates import spark_sql

        return None if self.edges.where is None else spark_sql(self.edges.where)

    def motif_patterns(self) -> dict[str, list[Pattern]]:
        """Parse the motifs, in their order: name → patterns."""
        from altneu.algorithms.graph import motif_patterns

        return {name: motif_patterns.parse_motif(text) for name, text in self.motifs.items()}

    def semantic_digest(self) -> str:
        text = json.dumps(self.semantic_settings(), sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Setting:
    """The place of a setting in the file. `key` None: the whole section, in which users choose the names."""

    section: str
    key: str | None
    default: object
    about: About

    @property
    def name(self) -> str:
        return self.key or self.section

    def value_in(self, config: Config) -> Any:
        section = getattr(config, self.section)
        return getattr(section, self.key) if self.key else section


def _iterate_settings() -> Iterator[Setting]:
    for section, field in Config.model_fields.items():
        default = field.get_default()
        if not isinstance(default, Section):
            yield Setting(section, None, default, _about_field(field))
            continue
        for key, inner in type(default).model_fields.items():
            yield Setting(section, key, inner.get_default(), _about_field(inner))


def _about_field(field: FieldInfo) -> About:
    return next(each for each in field.metadata if isinstance(each, About))


SETTINGS = tuple(_iterate_settings())
