"""What may be asked of what is published: `VIEWS` says which option goes with which view.

The options of `altneu show`, its help, its errors, the table in README.md and the arguments of `pipeline.api.Graph` all
follow `VIEWS`. A question is checked before Spark starts; what does not go together is an error, never ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property

from ..errors import UsageError


class Engine(StrEnum):
    """Who computes an answer from the tables."""

    auto = "auto"  # DuckDB while little is stored, else Spark
    spark = "spark"
    duckdb = "duckdb"


@dataclass(frozen=True)
class View:
    """One form of a question. `words`: the epochs it takes as words; `options`: what it takes besides `ANY`."""

    name: str
    words: str
    options: tuple[str, ...]
    columns: tuple[str, ...]
    about: str
    measure: str = ""  # what `top` goes by when nothing is said
    whole: bool = False  # a table shows all of it: one row an epoch
    order: tuple[str, ...] = ()  # the columns that its rows are sorted by first; then by the others
    reads: tuple[str, ...] = ()  # the tables that it is computed from; none: the database answers
    works: bool = False  # it is computed from all edges, not read off

    @property
    def title(self) -> str:
        needs = " --since-revision R" if "since_revision" in self.options else ""
        return f"{self.name}{' ' if self.words else ''}{self.words}{needs}"


FLAGS = {
    "as_of": "--as-of",
    "revision": "--revision",
    "since_revision": "--since-revision",
    "all_epochs": "--all-epochs",
    "k": "--k",
    "vertices": "--vertex",
    "edge": "--edge",
    "where": "--where",
    "sort": "--sort",
    "top": "--top",
    "limit": "--limit",
}
ANY = ("where", "sort", "top", "limit")
_TOTALS = ("epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity")
_AT = ("as_of", "revision")
_WHO = ("vertices", "edge")
_PAIR = ("src", "dst")
_CHANGED = ("epoch", "src", "dst", "diff")
VIEWS = (
    View("totals", "", (*_AT, "all_epochs"), _TOTALS, "the graph's totals", measure="triangles", whole=True),
    View(
        "vertices",
        "",
        (*_AT, "vertices"),
        ("vertex", "degree", "triangles", "clustering"),
        "every vertex with its degree, triangles, clustering, motifs",
        "degree",
        reads=("degrees", "triangle_counts", "motif_counts"),
    ),
    View(
        "edges",
        "",
        (*_AT, *_WHO),
        (*_PAIR, "trussness"),
        "every edge with its trussness",
        "trussness",
        reads=("trussness",),
    ),
    View(
        "changes",
        "FROM TO",
        ("revision", "k", *_WHO),
        (*_PAIR, "trussness", "diff"),
        "edges to add (1) and to drop (-1) between two epochs; with --k those of the k-truss",
        "trussness",
        order=_CHANGED,
        reads=("trussness",),
    ),
    View(
        "changes",
        "",
        ("since_revision", "revision", "all_epochs", *_WHO),
        (*_PAIR, "trussness", "diff"),
        "what a consumer of revision R applies",
        "trussness",
        order=_CHANGED,
        reads=("trussness",),
    ),
    View(
        "triangles",
        "",
        (*_AT, *_WHO),
        ("a", "b", "c", "diff"),
        "every triangle",
        "diff",
        reads=("edges",),
        works=True,
    ),
    View(
        "triangles",
        "FROM TO",
        ("revision", *_WHO),
        ("a", "b", "c", "diff"),
        "triangles that came (1) and went (-1) between two epochs",
        "diff",
        reads=("edges",),
        works=True,
    ),
    View(
        "support",
        "",
        (*_AT, *_WHO),
        (*_PAIR, "support"),
        "triangles on each edge",
        "support",
        reads=("edges",),
        works=True,
    ),
    View(
        "trusses",
        "",
        (*_AT, "all_epochs"),
        ("epoch", "label", "k", "edges", "exactly"),
        "the size of every k-truss",
        measure="edges",
        whole=True,
    ),
    View(
        "communities",
        "",
        (*_AT, "k", *_WHO),
        (*_PAIR, "community"),
        "the communities of the k-truss (default: the greatest k)",
        "community",
        order=("community", "src", "dst"),
        reads=("trussness",),
        works=True,
    ),
    View(
        "quarantine",
        "[FROM [TO]]",
        ("revision",),
        ("epoch", "file", "line", "reason", "text"),
        "malformed rows with file, line and reason",
        measure="line",
        reads=("quarantine",),
    ),
    View(
        "checks",
        "[FROM [TO]]",
        (),
        ("epoch", "label", "result", "suite", "check", "observed", "first"),
        "what the checks found, failures first",
        measure="epoch",
    ),
    View(
        "results",
        "[FROM [TO]]",
        (),
        ("epoch", "label", "revision", "at", "result", "suite", "name", "observed", "run", "published"),
        "every result of every check, newest first: also of what is replaced, and of runs that published nothing",
        measure="at",
    ),
)
NAMES = tuple(dict.fromkeys(view.name for view in VIEWS))


@dataclass(frozen=True)
class Question:
    """A view and what narrows it down, as typed: epochs are labels or integers, vertices names."""

    view: str
    span: tuple[str, ...] = ()
    as_of: str | None = None
    revision: int | None = None
    since_revision: int | None = None
    all_epochs: bool = False
    k: int | None = None
    vertices: tuple[str, ...] = ()
    edge: tuple[str, str] | None = None
    where: str | None = None
    sort: str | None = None  # a column; a minus before it: greatest first
    top: int | None = None  # so many rows with the greatest values of `sort`
    limit: int | None = None

    def given_options(self) -> list[str]:
        """The options that are given."""
        return [each.name for each in fields(self) if each.name in FLAGS and getattr(self, each.name) != each.default]

    @property
    def row_limit(self) -> int | None:
        """How many rows are asked for at most."""
        return self.top if self.top is not None else self.limit

    @cached_property
    def view_form(self) -> View:
        """The row of `VIEWS` that answers. Raises `UsageError` for what does not go together."""
        forms = [view for view in VIEWS if view.name == self.view]
        if not forms:
            raise UsageError(f"there is no view {self.view!r}.", f"one of {', '.join(NAMES)}")
        since = self.since_revision is not None
        fitting = [view for view in forms if len(self.span) in _WORDS[view.words]]
        if len(forms) > 1 and since:
            fitting = [view for view in fitting if "since_revision" in view.options] or fitting
        if not fitting:
            takes = " or ".join(dict.fromkeys(view.words or "no epochs as words" for view in forms))
            dated = len(self.span) == 1 and any("as_of" in view.options for view in forms)
            usage = f"altneu show {self.view} --as-of {self.span[0]}" if dated else _usage_of(self.view)
            raise UsageError(f"{self.view} takes {takes}, not {' '.join(self.span)!r}.", usage)
        view = fitting[0]
        for option in self.given_options():
            if option not in (*view.options, *ANY):
                others = [each.title for each in VIEWS if option in each.options]
                raise UsageError(
                    f"{FLAGS[option]} does not go with {view.title}; it goes with {', '.join(others)}.",
                    _usage_of(self.view),
                )
        if "since_revision" in view.options and not since:
            raise UsageError(f"{self.view} needs two epochs, or --since-revision R.", _usage_of(self.view))
        for one, other in (("top", "limit"), ("vertices", "edge")):
            if {one, other} <= set(self.given_options()):
                raise UsageError(f"say either {FLAGS[one]} or {FLAGS[other]}.", _usage_of(self.view))
        for option, least in (("top", 1), ("limit", 1), ("k", 2), ("since_revision", 0), ("revision", 1)):
            value = getattr(self, option)
            if value is not None and value < least:
                raise UsageError(f"{FLAGS[option]} {value}: at least {least}.", _usage_of(self.view))
        if self.top is not None and (self.sort or "").startswith("-"):
            raise UsageError(f"--top takes the greatest of --sort {self.sort[1:]} already.", "leave the minus out")  # type: ignore[index]
        if self.edge and self.edge[0] == self.edge[1]:
            raise UsageError(f"--edge {' '.join(self.edge)}: an edge has two different ends.", _usage_of(self.view))
        return view

    def sort_order(self, columns: Sequence[str]) -> list[tuple[str, bool]]:
        """By which columns the rows are sorted, one after the other, and which of them downwards."""
        asked = self.sort_column(columns)
        own = [*(name for name in self.view_form.order if name in columns), *columns]
        rest = [(name, False) for name in dict.fromkeys(own) if asked is None or name != asked[0]]
        return [*([asked] if asked else []), *rest]

    def sort_column(self, columns: Sequence[str]) -> tuple[str, bool] | None:
        """The column to sort by, and whether downwards; None: the view's own order. Raises `UsageError`."""
        if self.sort is None and self.top is None:
            return None
        measure = self.view_form.measure if self.view_form.measure in columns else columns[-1]
        name = (self.sort or measure).removeprefix("-")
        if name not in columns:
            raise UsageError(f"--sort {name}: {self.view} has no such column; it has {', '.join(columns)}.")
        return name, self.top is not None or (self.sort or "").startswith("-")


_WORDS = {"": (0,), "FROM TO": (2,), "[FROM [TO]]": (0, 1, 2)}


def _usage_of(view: str) -> str:
    return "   or   ".join(f"altneu show {each.title}" for each in VIEWS if each.name == view)


def view_table() -> list[tuple[str, str, str]]:
    """View, what it shows, its options: for the help and README.md."""
    return [(v.title, v.about, " ".join(FLAGS[o] for o in v.options if o != "since_revision")) for v in VIEWS]
