"""What Airflow's database has stored of version 0.1 is found by the names that it had there."""

from __future__ import annotations

from importlib import import_module

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*the former name ends")


@pytest.mark.parametrize(
    ("path", "now"),
    [
        (
            "pipeline.scheduling.landed.LandingTrigger",
            "landing_sensor.LandingTrigger",
        ),  # of a task that waits for an epoch
        ("pipeline.scheduling.plan.RunTrigger", "plan_operator.RunTrigger"),  # of a task that waits for a run
        (
            "pipeline.scheduling.watch.RelandedTrigger",
            "relanded_trigger.RelandedTrigger",
        ),  # of the asset of the landing
        ("pipeline.scheduling.alerts.late", "alerts.alert_late"),  # of a deadline
        ("pipeline.scheduling.sites.make", "sites.make_dags"),  # of a user's own file
    ],
)
def test_a_stored_path_leads_to_what_it_named(path: str, now: str) -> None:
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    assert f"{found.__module__}.{found.__qualname__}" == f"altneu.pipeline.scheduling.{now}"


def test_a_deferred_task_goes_on_in_the_method_that_it_has_stored() -> None:
    from altneu.pipeline.scheduling.landing_sensor import LandingSensor
    from altneu.pipeline.scheduling.plan_operator import PlanOperator

    assert LandingSensor.landed is LandingSensor.resume_landed
    assert PlanOperator.again is PlanOperator.resume_after_run
