"""The task `epochs`: an event of `altneu://graph/epochs` for each epoch whose published results have changed.

Airflow stores the events of a task with the transaction that makes it a success; `pipeline.page_queries.event_cursor`
keeps how far was told, and whose claim is open. So each change is told once, also what was published outside Airflow.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from ..tasks import base, epoch_event_claims
from ..tasks.base import PublishedRun
from . import dag_builder
from .sites import current_site


def task_token(ti: Any) -> str:
    """By which the home knows a task."""
    return json.dumps([ti.dag_id, ti.run_id, ti.task_id])


def confirm_events(context: dict[str, Any]) -> None:
    """The task is a success: Airflow has its events."""
    site = current_site()
    epoch_event_claims.confirm_changes(site.home, site.epochs_asset.uri, task_token(context["ti"]))


@task(
    on_success_callback=[dag_builder.on_success, confirm_events],
    doc_md="Tells those who follow `altneu://graph/epochs` which epochs have other results than they were told last: "
    "new and corrected ones, and those that a correction restates, whether this run or somebody outside Airflow has "
    "published them. Skipped when there are none.",
)
@dag_builder.translate_errors
def epochs(published: PublishedRun | None = None, outlet_events: Any = None) -> None:
    site, ti = current_site(), get_current_context()["ti"]

    def state(other: str) -> str | None:
        dag, run, name = json.loads(other)
        states = ti.get_task_states(dag_id=dag, run_ids=[run], task_ids=[name])
        found: str | None = states.get(run, {}).get(name)
        return found

    found = epoch_event_claims.claim_changes(
        site.home, site.epochs_asset.uri, task_token(ti), state, published, dag_builder.log_progress
    )
    if not found["epochs"]:
        raise AirflowSkipException("no epoch has other results than was told")
    event = outlet_events[site.epochs_asset]
    event.add_partitions(list(found["epochs"]))
    event.extra = {**found, "epochs": dict(itertools.islice(found["epochs"].items(), base.MANY_EPOCHS))}
