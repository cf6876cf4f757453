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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from . import setting_types
from .setting_types import TYPES

if TYPE_CHECKING:
    from algorithms.motif_patterns import Pattern

_NOTHING = "nothing; the next command uses it"
_CONNECT = "nothing; a running `altneu connect` has to be started again"
_MOST_EPOCHS = (
    10**9
)  # the greatest number of epochs in a setting: an epoch plus or minus this number is still a valid epoch
_MOST = 2**63 - 1


@dataclass(frozen=True)
class About:
    """The texts about a setting, or about a section in which users choose the names."""

    example: str  # its value in TOML; for a section, its lines
    meaning: str
    allowed: str = ""  # the allowed values, as an error names them
    restates: Literal["new", "rebuild", "reload"] | None = None  # a change needs a rebuild, a reload or a new home
    change: str = _NOTHING  # what a change needs that restates nothing


class Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    heading: ClassVar[str] = ""


class Epochs(Section):
    every: Annotated[
        setting_types.Length | None,
        About(
            '"1d"',
            "epochs are intervals of time since 1970-01-01 UTC (1d, 12h, 7d, 15m); else plain integers",
            'a number and d, h or m: "1d", "12h", "7d", "15m"',
            restates="new",
        ),
    ] = None


class Vertices(Section):
    ids: Annotated[
        Literal["integer", "string"],
        About(
            '"integer"',
            '"string": the ids are names, kept in a dictionary table',
            '"integer" or "string"',
            restates="new",
        ),
    ] = "integer"


class Edges(Section):
    live_for: Annotated[
        int | None,
        Field(ge=1, le=_MOST_EPOCHS),
        About(
            "30",
            "an upsert at epoch e keeps the edge at epochs e .. e+29; without it, until it is deleted",
            "at least 1 epoch (up to 10^9)",
            restates="rebuild",
        ),
    ] = None
    where: Annotated[
        str | None,
        About(
            '"rating > 0"',
            "only upserts with such a value make an edge (Spark SQL over src, dst and the value columns)",
            "a condition",
            restates="rebuild",
        ),
    ] = None


class Ingest(Section):
    max_bad_share: Annotated[
        float,
        Field(ge=0, le=1),
        About("0.05", "a run with a larger share of malformed rows fails before it publishes", "between 0 and 1"),
    ] = 0.05
    max_revision_mb: Annotated[
        float,
        Field(gt=0),
        About(
            "2048",
            "a backfill over more MiB of landed files than this is divided into several revisions",
            "more than 0 (inf: no limit)",
        ),
    ] = 2048
    settle: Annotated[
        float,
        Field(ge=0),
        About(
            "10",
            "an epoch's folder without a _SUCCESS counts as landed this many seconds after its last change; in an "
            "object store only where this is set",
            "at least 0 seconds",
        ),
    ] = 10


class Landing(Section):
    uri: Annotated[
        setting_types.LandingPlace | None,
        About(
            '"s3://bucket/landing"',
            "where batches are landed; default: the folder landing in the home. See [object "
            "stores](operating/object-stores.md)",
            "a folder or the URI of one (s3, gs, abfs, hdfs, file), without keys",
            change="nothing, where the same batches are there; the next command looks there",
        ),
    ] = None


class Reports(Section):
    uri: Annotated[
        setting_types.LandingPlace | None,
        About(
            '"s3://bucket/reports"',
            "where report pages are written; default: the folder reports in the home. See [object "
            "stores](operating/object-stores.md)",
            "a folder or the URI of one (s3, gs, abfs, hdfs, file), without keys",
            change="copy the pages, or `altneu report --all`",
        ),
    ] = None


class Triangles(Section):
    plan: Annotated[
        Literal["auto", "resume", "delta", "bulk"],
        About(
            '"auto"',
            '"resume": from the graph cache of the last run, where it exists and edges do not expire; '
            '"delta": by delta queries from the changed edges; "bulk": all triangles of all epochs are enumerated and '
            'compared with what is stored; "auto": what is estimated to cost less',
            '"auto", "resume", "delta" or "bulk"',
        ),
    ] = "auto"
    limit_edges: Annotated[
        Annotated[int, Field(ge=1, le=_MOST)] | None,
        About(
            "20000000",
            "no task counts triangles in more edges, nor in more than its memory holds (`altneu doctor`); more "
            "are cut into cells",
            "at least 1",
        ),
    ] = None


class Truss(Section):
    limit_edges: Annotated[
        Annotated[int, Field(ge=0, le=_MOST)] | None,
        About(
            "20000000",
            "no task holds more edges, nor more than its memory holds (`altneu doctor`); more are cut "
            "into parts, and audited in cells",
            "at least 0",
        ),
    ] = None


class Audit(Section):
    mode: Annotated[
        setting_types.AuditMode,
        About(
            '"auto"',
            'how a run is checked before it is published. Every epoch is proved in any case; besides, "full": some are '
            'recomputed from scratch (`epochs`); "local": nothing is; "rolling 32": one in 32 vertices is recounted in '
            'each run, all of them within 32 runs; "auto": "full" while that costs less than the rest of the run, then '
            '"rolling 32", beyond 2 million edges 64, beyond 4 million 128, and so on',
            '"auto", "full", "local" or "rolling N"',
        ),
    ] = "auto"
    epochs: Annotated[
        setting_types.AuditedEpochs,
        About(
            '"frontier"',
            "what a run recomputes from scratch when it is checked in full: its last epoch and the frontier; besides "
            'these "all" of its epochs, "every 10" (those that 10 divides), or "sample 3" of all that are published',
            '"frontier", "all", "every N" or "sample N"',
        ),
    ] = "frontier"


class Publish(Section):
    approve: Annotated[
        Literal["never", "on warning", "always"],
        About(
            '"never"',
            'whether a run is held before it is published, until somebody approves: "on warning": when a check warns',
            '"never", "on warning" or "always"',
        ),
    ] = "never"
    tables: Annotated[
        list[setting_types.PlainTable],
        About(
            '["vertex_history", "edge_now", "epoch_totals"]',
            "[plain tables](engines.md#plain-tables) that are kept up beside the diff triples, for other programs",
            'a list of "vertex_history", "edge_now" and "epoch_totals"',
            change="nothing; the next run that publishes writes them whole, or no longer, and `altneu rebuild` at once",
        ),
    ] = []


class Runs(Section):
    hold_days: Annotated[
        float,
        Field(gt=0, le=36_500),
        About(
            "7",
            "a run that is held for longer than so many days is discarded by the next run or compaction",
            "more than 0 (up to 36500)",
        ),
    ] = 7


class Checks(Section):
    sensitivity: Annotated[
        Literal["low", "normal", "high"],
        About(
            '"normal"',
            "how far from what is usual the numbers of rows, edges and triangles may be before a check warns: the "
            'bounds of "low" are 1.5 times as wide (a false alarm in 2,000 epochs), of "high" 0.7 times (in 100)',
            '"low", "normal" or "high"',
            change="nothing; the next run uses it, and what was found before stays",
        ),
    ] = "normal"
    rows: Annotated[
        Literal["warn", "stop"],
        About(
            '"warn"',
            'what comes of an epoch with an unusual number of rows: "warn": it is published with its mark; "stop": '
            "only when somebody says that it is right (altneu run EPOCH --accept-rows)",
            '"warn" or "stop"',
        ),
    ] = "warn"


class Alerts(Section):
    severity: Annotated[
        Literal["warning", "critical"],
        About(
            '"warning"',
            "which incidents are sent as [alerts](operating/alerts.md): all of them, or the critical ones",
            '"warning" or "critical"',
        ),
    ] = "warning"
    pages: Annotated[
        str | None,
        Field(pattern=r"^https?://[^\s@]+$"),
        About(
            '"https://host/reports"',
            "where the folder reports is served, for links in alerts; else they name the file",
            "an address that begins with http:// or https://",
        ),
    ] = None


class Retention(Section):
    heading = "what `altneu compact` keeps"
    epochs: Annotated[
        int | None,
        Field(ge=1, le=_MOST_EPOCHS),
        About(
            "400",
            "the tables answer for the last 400 epochs; without it, for all of them. Totals: always for all",
            "at least 1 (up to 10^9)",
            change="nothing; the next `altneu compact` uses it, and what it folds does not come back",
        ),
    ] = None
    revisions: Annotated[
        int,
        Field(ge=1, le=_MOST),
        About(
            "20",
            "how many revisions back one can look, and roll back",
            "at least 1",
            change="nothing; the next `altneu compact` uses it, and what it drops does not come back",
        ),
    ] = 20


class Rest(Section):
    """A catalog that speaks Iceberg's REST protocol."""

    type: Literal["rest"]
    uri: setting_types.Endpoint
    warehouse: str | None = None  # the catalog's own name for a group of tables
    namespace: setting_types.Namespace = "graph"
    scope: str | None = None  # the scope for OAuth2


class Storage(Section):
    database: Annotated[
        setting_types.Database | None,
        About(
            '"postgresql+psycopg://user@host/altneu"',
            "default: a SQLite file in the home",
            '"sqlite:////folder/altneu.db" or "postgresql+psycopg://user@host/altneu"',
            change="the database has to be moved: `altneu move`, or [as here](backup.md#postgresql-and-object-stores)",
        ),
    ] = None
    warehouse: Annotated[
        setting_types.Place | None,
        About(
            '"s3://bucket/altneu"',
            "default: a folder in the home; moved: altneu relocate; in S3: [object stores](operating/object-stores.md)",
            "a folder or the URI of one, without keys",
            change="move or copy the tables, then `altneu relocate`",
        ),
    ] = None
    catalog: Annotated[
        Rest | None,
        About(
            '{ type = "rest", uri = "https://host/api" }',
            "[a REST catalog](operating/catalogs.md) that lists the tables; default: the database does",
            'a table with type = "rest" and uri, and as needed warehouse, namespace (default "graph") and scope; no '
            "secrets: ALTNEU_CATALOG_TOKEN or ALTNEU_CATALOG_CREDENTIAL in the environment",
            change="the tables stay where they are listed; into another catalog: `altneu move`",
        ),
    ] = None


class Spark(Section):
    master: Annotated[
        setting_types.Master | None,
        About(
            '"local[*]"',
            "where Spark works: this machine, a cluster, or the sc://host:port of altneu connect",
            setting_types.MASTERS,
            change=_CONNECT,
        ),
    ] = None
    conf: Annotated[
        dict[str, setting_types.SparkValue],
        About(
            '{ "spark.driver.memory" = "8g" }',
            "any of Spark's own settings; names with dots stand in quotes",
            "a table of Spark's settings",
            change=_CONNECT,
        ),
    ] = {}


class Config(Section):
    """The settings of a home. Units are in the names or in the texts of `About`."""

    epochs: Epochs = Epochs()
    vertices: Vertices = Vertices()
    values: Annotated[
        dict[setting_types.Column, setting_types.Type],
        About(
            'rating = "long"',
            f"value columns of the upserts and their types: {', '.join(TYPES)}",
            f"one of {', '.join(TYPES)}",
            restates="reload",
        ),
    ] = {}
    edges: Edges = Edges()
    ingest: Ingest = Ingest()
    landing: Landing = Landing()
    reports: Reports = Reports()
    triangles: Triangles = Triangles()
    motifs: Annotated[
        dict[setting_types.MotifName, setting_types.Motif],
        About(
            'clique = "a-b, a-c, a-d, b-c, b-d, c-d"\n'
            'loop = "a->b where rating > 0, b->c where rating > 0, c->a where rating < 0"',
            "patterns to count at every vertex: a-b is an edge, a->b an upsert with its direction, either with a "
            "condition on the values; a list of patterns is counted as one motif",
            restates="rebuild",
        ),
    ] = {}
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
        from algorithms.sql_predicates import spark_sql

        return None if self.edges.where is None else spark_sql(self.edges.where)

    def motif_patterns(self) -> dict[str, list[Pattern]]:
        """Parse the motifs, in their order: name → patterns."""
        from algorithms import motif_patterns

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
