"""Which strategies the truss stage runs, one after the other, until one can."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from altneu.algorithms.graph.truss_plan import PlanUnfit, ReplayRequest
from altneu.pipeline.run.choices.plan_choice import Strategy
from altneu.pipeline.run.stages import truss_strategies
from altneu.pipeline.run.stages.truss_strategies import STRATEGIES, TrussStrategy, run_with_fallbacks

CHAINS = {
    Strategy.TASK: ["Replay"],
    Strategy.PARTS: ["Distributed", "Replay"],
    Strategy.CHECKPOINT: ["RestoreFromCheckpoint", "Replay"],
    Strategy.REGION: ["UpdateRegion", "Distributed", "Replay"],
    Strategy.RESUME: ["ResumeFromCache", "Distributed", "Replay"],
}


def run_until(monkeypatch: pytest.MonkeyPatch, chosen: Strategy, able: str, why: str) -> tuple[list[str], list[str]]:
    """Run the chosen strategy where only one can: the events, and what is said."""
    events: list[str] = []

    def run(self: TrussStrategy) -> Any:
        name = type(self).__name__
        events.append(name)
        self.stack.callback(events.append, f"{name} is over")
        if name != able:
            raise PlanUnfit(why)
        return f"result of {name}"

    for kind in STRATEGIES.values():
        monkeypatch.setattr(kind, "run", run)
    said: list[str] = []
    context: Any = SimpleNamespace(say=said.append)
    choice: Any = SimpleNamespace(strategy=chosen)
    with ExitStack() as stack:
        strategy, result = run_with_fallbacks(context, choice, ReplayRequest(first_epoch=1, last_epoch=2), stack)
        assert (type(strategy).__name__, result) == (able, f"result of {able}")
        events.append("stored")
    return events, said


@pytest.mark.parametrize(("chosen", "chain"), CHAINS.items())
def test_a_strategy_that_cannot_is_over_before_its_fallback_begins(
    monkeypatch: pytest.MonkeyPatch, chosen: Strategy, chain: list[str]
) -> None:
    for place, able in enumerate(chain):
        events, said = run_until(monkeypatch, chosen, able, "it is missing")
        tried = [event for name in chain[:place] for event in (name, f"{name} is over")]
        assert events == [*tried, able, "stored", f"{able} is over"]
        words = [getattr(truss_strategies, name).otherwise for name in chain[:place]]
        assert said == [f"it is missing: {each}" for each in words]


def test_without_a_reason_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    events, said = run_until(monkeypatch, Strategy.RESUME, "Replay", "")
    assert "ResumeFromCache" in events and said == []
