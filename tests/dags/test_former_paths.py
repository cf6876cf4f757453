"""What Airflow's database has stored of version 0.1 is found by the names that it had there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from pipeline.scheduling import alerts, sites
from pipeline.scheduling.landing_sensor import LandingSensor, LandingTrigger
from pipeline.scheduling.plan_operator import PlanOperator, RunTrigger
from pipeline.scheduling.relanded_trigger import RelandedTrigger


@pytest.mark.parametrize(
    ("path", "now"),
    [
        ("pipeline.scheduling.landed.LandingTrigger", LandingTrigger),  # of a task that waits for an epoch
        ("pipeline.scheduling.plan.RunTrigger", RunTrigger),  # of a task that waits for a run
        ("pipeline.scheduling.watch.RelandedTrigger", RelandedTrigger),  # of the asset of the landing
        ("pipeline.scheduling.alerts.late", alerts.alert_late),  # of a deadline
        ("pipeline.scheduling.sites.make", sites.make_dags),  # of a user's own file
    ],
)
def test_a_stored_path_leads_to_what_it_named(path: str, now: Any) -> None:
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    assert (found.__module__, found.__qualname__) == (now.__module__, now.__qualname__)


def test_a_deferred_task_goes_on_in_the_method_that_it_has_stored() -> None:
    assert LandingSensor.landed is LandingSensor.resume_landed
    assert PlanOperator.again is PlanOperator.resume_after_run
