"""The results of the stages of a run as typed classes, and their JSON in the database: the one place that knows both.

A stage returns its own class; the runner adds the cost of the stage and the snapshots that it wrote. `to_json` makes
the object that the ledger stores. `from_json` reads an object of this version or an earlier one, which may lack fields.
A field without a default is always stored, and is zero, empty or None where a row lacks it. A field with a default is
stored only where it differs from that. Fields that this version does not know are ignored. A new field needs a default;
a field that changes its meaning needs a new `VERSION` and a translation in `from_json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from pydantic import PlainSerializer, TypeAdapter

VERSION = 1  # 0: rows from before there was a version
Top = Mapping[str, Sequence[Mapping[str, int | str]]]  # epoch as text, since JSON keys are texts → rows of a report


def _snapshot_texts(snapshots: Mapping[str, int]) -> dict[str, str]:
    return {table: str(snapshot) for table, snapshot in snapshots.items()}


Snapshots = Annotated[
    Mapping[str, int], PlainSerializer(_snapshot_texts)
]  # table → snapshot; JSON has no integers of 64 bits


def _shown_as(*places: str, called: str = "") -> dict[str, Any]:
    """Declare where a value is shown: on the `line` that a command prints for a stage, on the `page`; and under which
    name."""
    return {"places": places, "called": called}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one try of a stage: rows, files and bytes written, and the peak resident memory of its processes."""

    python: int | None = None
    jvm: int | None = None
    workers: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a table for a reader of one snapshot."""

    files: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts that every stage has. A running stage has no others."""

    STAGE: ClassVar[str] = ""
    cost: Cost | None = field(default=None, metadata=_shown_as())
    snapshots: Snapshots = field(
        default_factory=dict, metadata=_shown_as()
    )  # that the stage has written or, for an audit, read


@dataclass(frozen=True, kw_only=True)
class FailedFacts(Facts):
    """The facts of a stage that failed or was stopped."""

    error: str = field(metadata=_shown_as())


@dataclass(frozen=True, kw_only=True)
class QuarantinedRow:
    epoch: int | None = None
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class IngestFacts(Facts):
    STAGE = "ingest"
    rows: int  # readable rows of the landed files
    quarantined: int
    changed_rows: int = field(
        metadata=_shown_as("page")
    )  # stored diffs; a removed row changes the line numbers of the rows after it, which are stored again
    replaced_epochs: int
    rows_before: int | None = field(
        default=None, metadata=_shown_as("line", "page", called="before")
    )  # rows of the replaced batches
    quarantine_sample: Sequence[QuarantinedRow]
    relations: Mapping[str, int] = field(default_factory=dict)  # declared relation → changed rows


@dataclass(frozen=True, kw_only=True)
class EdgesFacts(Facts):
    STAGE = "edges"
    rows: int  # changed intervals
    first_epoch: int | None = field(
        default=None, metadata=_shown_as("line", called="from epoch")
    )  # the first epoch at which an edge changes
    broadcast: bool | None  # the touched pairs were sent to every task
    motif_edges: int | None = None  # changed intervals of the motifs' own relations


@dataclass(frozen=True, kw_only=True)
class TrianglesFacts(Facts):
    STAGE = "triangles"
    rows: int  # changed counts of vertices
    plan: str | None = field(default=None, metadata=_shown_as("line"))  # resume, delta, bulk
    chosen: str | None = field(default=None, metadata=_shown_as("line"))  # the plan and the reason for it, in words
    proposals: int | None  # candidates that the delta query proposed; None: not counted
    estimate: Mapping[str, float] = field(default_factory=dict)  # plan → seconds
    corrections: Mapping[str, float] = field(default_factory=dict)  # plan → factor by which its estimate was corrected
    top_vertices: Top | None = None
    motif_rows: int | None = None
    motif_plan: str | None = None


Whole = Annotated[int, PlainSerializer(str)]  # an integer of 64 bits


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A truss checkpoint that a run has left for the next one.

    It names its snapshot, its epoch (`at`), and the labels for edges that are put to the front and to the back.
    """

    snapshot: Whole
    at: int
    front: Whole
    back: Whole


@dataclass(frozen=True, kw_only=True)
class TrussFacts(Facts):
    STAGE = "truss"
    rows: int  # changed trussnesses
    first_epoch: int | None = field(default=None, metadata=_shown_as("line", called="from epoch"))  # replayed from here
    epochs: int  # replayed
    # resume: from the graph cache of the run before; region, state: from its truss checkpoint, of which one task reads
    # a part, or all; replay: from the tables
    plan: str | None = None
    graph: str | None = field(default=None, metadata=_shown_as())  # the key of the graph cache for the next run
    methods: Mapping[str, int] | None = None  # method by which epochs were maintained → number of epochs
    certified: SavedCheckpoint | None = field(
        default=None, metadata=_shown_as()
    )  # for a graph that is too large for a graph cache
    inserted: int | None = None
    deleted: int | None = None
    looked_at: int | None = None  # how often the triangles of an edge were looked at
    seconds: float | None = None  # of the kernels
    rounds: int | None = None  # rounds over partitions, or hops of a region, for a graph beyond the memory of one task
    region: int | None = None  # edges of the region that the task loaded
    top_edges: Top | None = None
    entered_core: Mapping[str, Sequence[int | str]] | None = None  # epoch → vertices


@dataclass(frozen=True, kw_only=True)
class QueryRun:
    """What a run has done for one query: `way` is nothing, delta, anew or recomputed."""

    way: str
    rows: int = 0  # changed rows of its result
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class QueriesFacts(Facts):
    STAGE = "queries"
    rows: int = 0  # changed rows of all results
    arcs: int | None = None  # changed intervals of the values in force, where a query reads them
    queries: Mapping[str, QueryRun] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditFacts(Facts):
    STAGE = "audit"
    checks: int
    failed: int
    critical: int
    epochs: Sequence[int] = ()  # epochs that were compared with a recomputation
    mode: str | None = field(
        default=None, metadata=_shown_as("line")
    )  # full, local, rolling N; None: from a version without modes
    proved: int | None = field(default=None, metadata=_shown_as("line", "page", called="epochs proved"))
    queries: Mapping[str, float] = field(default_factory=dict)  # query → seconds of its recomputation


@dataclass(frozen=True, kw_only=True)
class PublishFacts(Facts):
    STAGE = "publish"
    revision: int
    tables: Mapping[str, Size]
    dropped_runs: int | None = None
    untidied: str | None = None  # why the removal of branches was left to the next run


@dataclass(frozen=True, kw_only=True)
class ReportFacts(Facts):
    STAGE = "report"
    pages: int = field(metadata=_shown_as("line"))
    page: str | None = field(metadata=_shown_as("line"))
    unwritten: str | None = field(
        default=None, metadata=_shown_as("line", called="not written")
    )  # why the object store has no page


@dataclass(frozen=True, kw_only=True)
class CompactFacts(Facts):
    STAGE = "compact"
    since: int | None  # the tables answer from this epoch on
    revisions: Sequence[int]  # the first and the last that can be read
    dropped_revisions: int
    expired_snapshots: int
    orphans: int
    tables: Mapping[str, Size]
    before: Mapping[str, Size] = field(default_factory=dict)  # of the same tables; not stored
    verified: bool = False  # the new tables have the fingerprints of the old ones
    dropped_tables: Sequence[str] = ()  # of queries that no revision has any more


F = TypeVar("F", bound=Facts)
KINDS: Mapping[str, type[Facts]] = {
    kind.STAGE: kind
    for kind in (
        IngestFacts,
        EdgesFacts,
        TrianglesFacts,
        TrussFacts,
        QueriesFacts,
        AuditFacts,
        PublishFacts,
        ReportFacts,
        CompactFacts,
    )
}
_EVERY = tuple(each.name for each in fields(Facts))


def from_json(stage: str, stored: Mapping[str, Any]) -> Facts:
    """Read the facts of a stage from the stored JSON object, which this version or an earlier one has written."""
    kind = FailedFacts if "error" in stored else KINDS.get(stage, Facts) if stored else Facts
    return _read_facts(kind, stored)


def _read_facts(kind: type[F], stored: Mapping[str, Any]) -> F:
    form = _facts_schema(kind)
    facts = form.adapter.validate_python({**form.zeros, **stored})
    assert isinstance(facts, kind)
    return facts


def to_json(facts: Facts) -> dict[str, Any]:
    """Make the JSON object to store, which contains its version."""
    stored = _facts_schema(type(facts)).adapter.dump_python(facts, mode="json")
    if facts.cost:
        stored["cost"] = {name: value for name, value in stored["cost"].items() if value is not None}
    last = {name: stored.pop(name) for name in _EVERY if getattr(facts, name)}
    optional = {each.name for each in fields(facts) if _is_default(each, getattr(facts, each.name))}
    return {**{name: value for name, value in stored.items() if name not in optional}, **last, "version": VERSION}


def _is_default(each: Field[Any], value: Any) -> bool:
    return bool(value == (each.default_factory() if each.default_factory is not MISSING else each.default))


def without_version(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored result without its version number, as readers see it."""
    return {name: value for name, value in stored.items() if name != "version"}


def stage_fields(facts: Facts) -> dict[str, Any]:
    """Return the fields of a result that are the stage's own, without those that every stage has."""
    return {name: value for name, value in to_json(facts).items() if name not in (*_EVERY, "version")}


def display_fields(facts: Facts, place: str) -> Iterator[tuple[str, str, int | str]]:
    """Yield the numbers and texts of a stage that are shown at a `place` (see `_shown_as`).

    Each item is the field, the name to show, and the value.
    """
    for each in fields(facts):
        value = getattr(facts, each.name)
        shown = place in each.metadata.get("places", ("line", "page")) and not isinstance(value, bool)
        if shown and isinstance(value, (int, str)):
            yield each.name, (each.metadata.get("called") or each.name.replace("_", " ")), value


@dataclass(frozen=True)
class _FactsSchema:
    """The schema of a class of facts. `zeros` are the values of its fields without a default where a row lacks them."""

    adapter: TypeAdapter[Any]
    zeros: Mapping[str, Any]


_FORMS: dict[type[Facts], _FactsSchema] = {}  # each schema is made at its first use


def _facts_schema(kind: type[Facts]) -> _FactsSchema:
    if kind not in _FORMS:
        hints = get_type_hints(kind)
        required = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
        _FORMS[kind] = _FactsSchema(TypeAdapter(kind), {name: _zero_value(hints[name]) for name in required})
    return _FORMS[kind]


def _zero_value(hint: Any) -> Any:
    if get_origin(hint) is UnionType or type(None) in get_args(hint):
        return None
    origin = get_origin(hint)
    return {Sequence: (), Mapping: {}}[origin] if origin else hint()
