"""A forecast of what a run does for each declared query, by what the last runs did for it, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..state.stage_results import Facts, QueriesFacts, QueryRun
from .query_changes import ANEW, DELTA, NOTHING, RECOMPUTED, QueryChanges

DROPPED = "dropped"


@dataclass(frozen=True)
class QueryForecast:
    """What a run does for a query, and why, with the changed rows and seconds of the last run that did the same."""

    query: str
    way: str
    why: str | None = None
    rows: int | None = None
    seconds: float | None = None

    def describe(self) -> str:
        """Describe the forecast for a person."""
        words = {
            NOTHING: "nothing to do",
            DELTA: "from its changes",
            RECOMPUTED: "recomputed by its text",
            ANEW: f"anew, {self.why}",
            DROPPED: "dropped; its result stays in older revisions",
        }
        rows = "" if self.rows is None else f"{self.rows:,} changed row{'' if self.rows == 1 else 's'}, "
        last = "" if self.seconds is None else f" (last time {rows}{self.seconds:.1f} s)"
        return f"{self.query}: {words[self.way]}{last}"

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def forecast_queries(changes: QueryChanges, recent: Sequence[Facts], *, runs: bool) -> list[QueryForecast]:
    """Return a forecast for each query.

    Args:
        changes: What becomes of the queries.
        recent: The facts of the stages of recent runs, the oldest first.
        runs: Whether the run has epochs, so that relations may change.
    """
    last = _last_runs(recent)

    def forecast(query: str, way: str, why: str | None = None) -> QueryForecast:
        known = last.get((query, way))
        return QueryForecast(query, way, why, known.rows, known.seconds) if known else QueryForecast(query, way, why)

    forecasts = []
    for name in changes.unchanged:
        way = RECOMPUTED if name in changes.recomputed else DELTA
        forecasts.append(forecast(name, way if runs else NOTHING))
    for name, why in changes.anew:
        forecasts.append(forecast(name, ANEW, f"{why}; recomputed by its text" if name in changes.recomputed else why))
    return [*forecasts, *(QueryForecast(name, DROPPED) for name in changes.dropped)]


def _last_runs(recent: Iterable[Facts]) -> dict[tuple[str, str], QueryRun]:
    """Return the last run of each query in each way."""
    last: dict[tuple[str, str], QueryRun] = {}
    for facts in recent:
        if isinstance(facts, QueriesFacts):
            last |= {(name, run.way): run for name, run in facts.queries.items() if run.way != NOTHING}
    return last
