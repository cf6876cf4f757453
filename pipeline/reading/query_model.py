"""The questions about what is published: `VIEWS` defines the views and the options of each.

The options of `altneu show`, its help and its errors, the table of views in the documentation and the arguments of
`altneu.Graph` all follow `VIEWS`. A question is checked before Spark starts. Options that do not fit a view are
an error, and are never ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property

from ..errors import UsageError


class Engine(StrEnum):
    """The engine that computes an answer from the tables."""

    auto = "auto"  # DuckDB while little is stored, else Spark
    spark = "spark"
    duckdb = "duckdb"


@dataclass(frozen=True)
class View:
    """One form of a question. `epoch_arguments` are the epochs that it takes, and `options` what it takes besides
    `COMMON_OPTIONS`."""

    name: str
    epoch_arguments: str
    options: tuple[str, ...]
    columns: tuple[str, ...]
    description: str
    measure: str = ""  # the column that `top` uses by default
    shows_all_rows: bool = False  # all rows are shown by default, because there are few for each epoch
    order: tuple[str, ...] = ()  # the first columns of its sort order; the other columns follow
    reads: tuple[str, ...] = ()  # the tables that it is computed from; none where the database answers
    works: bool = False  # it is computed from all edges

    @property
    def title(self) -> str:
        needs = " --since-revision R" if "since_revision" in self.options else ""
        return f"{self.name}{' ' if self.epoch_arguments else ''}{self.epoch_arguments}{needs}"


FLAGS = {
    "as_of": "--as-of",
    "revision": "--revision",
    "published_at": "--published-at",
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
COMMON_OPTIONS = ("where", "sort", "top", "limit")
_TOTALS = ("epoch", "label", "revision", "vertices", "edges", "triangles", "max_trussness", "transitivity")
_REVISION_OPTIONS = ("revision", "published_at")
_TIME_OPTIONS = ("as_of", *_REVISION_OPTIONS)
_VERTEX_OPTIONS = ("vertices", "edge")
_PAIR = ("src", "dst")
_CHANGE_COLUMNS = ("epoch", "src", "dst", "diff")
VIEWS = (
    View(
        "totals",
        "",
        (*_TIME_OPTIONS, "all_epochs"),
        _TOTALS,
        "the graph's totals",
        measure="triangles",
        shows_all_rows=True,
    ),
    View(
        "vertices",
        "",
        (*_TIME_OPTIONS, "vertices"),
        ("vertex", "degree", "triangles", "clustering"),
        "every vertex with its degree, triangles, clustering, motifs",
        "degree",
        reads=("degrees", "triangle_counts", "motif_counts"),
    ),
    View(
        "edges",
        "",
        (*_TIME_OPTIONS, *_VERTEX_OPTIONS),
        (*_PAIR, "trussness"),
        "every edge with its trussness",
        "trussness",
        reads=("trussness",),
    ),
    View(
        "changes",
        "FROM TO",
        (*_REVISION_OPTIONS, "k", *_VERTEX_OPTIONS),
        (*_PAIR, "trussness", "diff"),
        "edges to add (1) and to drop (-1) between two epochs; with --k those of the k-truss",
        "trussness",
        order=_CHANGE_COLUMNS,
        reads=("trussness",),
    ),
    View(
        "changes",
        "",
        ("since_revision", *_REVISION_OPTIONS, "all_epochs", *_VERTEX_OPTIONS),
        (*_PAIR, "trussness", "diff"),
        "what a consumer of revision R applies",
        "trussness",
        order=_CHANGE_COLUMNS,
        reads=("trussness",),
    ),
    View(
        "triangles",
        "",
        (*_TIME_OPTIONS, *_VERTEX_OPTIONS),
        ("a", "b", "c", "diff"),
        "every triangle",
        "diff",
        reads=("edges",),
        works=True,
    ),
    View(
        "triangles",
        "FROM TO",
        (*_REVISION_OPTIONS, *_VERTEX_OPTIONS),
        ("a", "b", "c", "diff"),
        "triangles that came (1) and went (-1) between two epochs",
        "diff",
        reads=("edges",),
        works=True,
    ),
    View(
        "support",
        "",
        (*_TIME_OPTIONS, *_VERTEX_OPTIONS),
        (*_PAIR, "support"),
        "triangles on each edge",
        "support",
        reads=("edges",),
        works=True,
    ),
    View(
        "trusses",
        "",
        (*_TIME_OPTIONS, "all_epochs"),
        ("epoch", "label", "k", "edges", "exactly"),
        "the size of every k-truss",
        measure="edges",
        shows_all_rows=True,
    ),
    View(
        "communities",
        "",
        (*_TIME_OPTIONS, "k", *_VERTEX_OPTIONS),
        (*_PAIR, "community"),
        "the communities of the k-truss (default: the greatest k)",
        "community",
        order=("community", "src", "dst"),
        reads=("trussness",),
        works=True,
    ),
    View(
        "query",
        "NAME",
        _TIME_OPTIONS,
        (),
        "the rows of a declared query, with `copies` where a row may recur",
        reads=("query",),
    ),
    View(
        "query",
        "NAME",
        ("since_revision", *_REVISION_OPTIONS, "all_epochs"),
        (),
        "what a consumer of the query at revision R applies",
        "diff",
        reads=("query",),
    ),
    View(
        "quarantine",
        "[FROM [TO]]",
        _REVISION_OPTIONS,
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
    """A view and its options, as a person types them: epochs are labels or integers, and vertices are names."""

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
    sort: str | None = None  # a column; with a minus before it the greatest value comes first
    top: int | None = None  # the number of rows, those with the greatest values of `sort`
    limit: int | None = None
    published_at: str | None = None  # a moment, in place of `revision`

    def given_options(self) -> list[str]:
        """Return the names of the options that are given."""
        return [each.name for each in fields(self) if each.name in FLAGS and getattr(self, each.name) != each.default]

    @property
    def row_limit(self) -> int | None:
        """Return the greatest number of rows that is asked for, or None."""
        return self.top if self.top is not None else self.limit

    @cached_property
    def view_form(self) -> View:
        """Return the row of `VIEWS` that answers. Raise `UsageError` for options that do not fit together."""
        forms = [view for view in VIEWS if view.name == self.view]
        if not forms:
            raise UsageError(f"there is no view {self.view!r}.", f"one of {', '.join(NAMES)}")
        since = self.since_revision is not None
        fitting = [view for view in forms if len(self.span) in _ARGUMENT_COUNTS[view.epoch_arguments]]
        if len(forms) > 1 and since:
            fitting = [view for view in fitting if "since_revision" in view.options] or fitting
        if not fitting:
            takes = " or ".join(dict.fromkeys(view.epoch_arguments or "no epochs as words" for view in forms))
            dated = len(self.span) == 1 and any("as_of" in view.options for view in forms)
            usage = f"altneu show {self.view} --as-of {self.span[0]}" if dated else _usage_of(self.view)
            raise UsageError(f"{self.view} takes {takes}, not {' '.join(self.span)!r}.", usage)
        view = fitting[0]
        for option in self.given_options():
            if option not in (*view.options, *COMMON_OPTIONS):
                others = [each.title for each in VIEWS if option in each.options]
                raise UsageError(
                    f"{FLAGS[option]} cannot be combined with {view.title}, but with {', '.join(others)}.",
                    _usage_of(self.view),
                )
        if "since_revision" in view.options and not since:
            raise UsageError(f"{self.view} needs two epochs, or --since-revision R.", _usage_of(self.view))
        for one, other in (("top", "limit"), ("vertices", "edge"), _REVISION_OPTIONS):
            if {one, other} <= set(self.given_options()):
                raise UsageError(
                    f"{FLAGS[one]} and {FLAGS[other]} do not go together: give one of them.", _usage_of(self.view)
                )
        for option, least in (("top", 1), ("limit", 1), ("k", 2), ("since_revision", 0), ("revision", 1)):
            value = getattr(self, option)
            if value is not None and value < least:
                raise UsageError(f"{FLAGS[option]} {value}: it must be at least {least}.", _usage_of(self.view))
        if self.top is not None and (self.sort or "").startswith("-"):
            raise UsageError(
                f"--top already takes the greatest values of --sort {self.sort[1:]}.",  # type: ignore[index]
                "leave the minus out",
            )
        if self.edge and self.edge[0] == self.edge[1]:
            raise UsageError(f"--edge {' '.join(self.edge)}: an edge has two different ends.", _usage_of(self.view))
        return view

    def sort_order(self, columns: Sequence[str]) -> list[tuple[str, bool]]:
        """Return the columns by which the rows are sorted, in order, each with whether the order is descending."""
        column = self.sort_column(columns)
        own = [*(name for name in self.view_form.order if name in columns), *columns]
        rest = [(name, False) for name in dict.fromkeys(own) if column is None or name != column[0]]
        return [*([column] if column else []), *rest]

    def sort_column(self, columns: Sequence[str]) -> tuple[str, bool] | None:
        """Return the column to sort by and whether the order is descending, or None for the view's own order.

        Raises:
            UsageError: The view has no such column.
        """
        if self.sort is None and self.top is None:
            return None
        measure = self.view_form.measure if self.view_form.measure in columns else columns[-1]
        name = (self.sort or measure).removeprefix("-")
        if name not in columns:
            raise UsageError(f"--sort {name}: {self.view} has no such column; it has {', '.join(columns)}.")
        return name, self.top is not None or (self.sort or "").startswith("-")


_ARGUMENT_COUNTS = {"": (0,), "NAME": (1,), "FROM TO": (2,), "[FROM [TO]]": (0, 1, 2)}


def _usage_of(view: str) -> str:
    return "   or   ".join(f"altneu show {each.title}" for each in VIEWS if each.name == view)


def view_table() -> list[tuple[str, str, str]]:
    """Return each view's title, what it shows, and its options, for the help and the documentation."""
    return [(v.title, v.description, " ".join(FLAGS[o] for o in v.options if o != "since_revision")) for v in VIEWS]
