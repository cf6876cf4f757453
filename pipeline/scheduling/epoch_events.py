"""The task `epochs`: it emits an event of `altneu://graph/epochs` for each epoch whose published results have changed.

Airflow stores the events of a task in the transaction that makes the task a success;
`altneu.pipeline.state.event_cursor` keeps how far events were delivered, and which task has an open claim. So each
change is delivered once, including what was published outside Airflow.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from ..tasks import base, epoch_event_claims
from ..tasks.base import PublishedRun
from . import task_callbacks, task_support
from .sites import current_site


def task_token(ti: Any) -> str:
    """Return the text by which the home identifies a task."""
    return json.dumps([ti.dag_id, ti.run_id, ti.task_id])


def confirm_events(context: dict[str, Any]) -> None:
    """Confirm the claimed events after the success of the task: Airflow has them."""
    site = current_site()
    epoch_event_claims.confirm_changes(site.home, site.epochs_asset.uri, task_token(context["ti"]))


@task(
    on_success_callback=[task_callbacks.on_success, confirm_events],
    doc_md="Emits an event of `altneu://graph/epochs` for each epoch whose results have changed since the last events: "
    "new and corrected epochs, and those that a correction restates, whether this run or somebody outside Airflow has "
    "published them. It is skipped if there are none.",
)
@task_support.translate_errors
def epochs(published: PublishedRun | None = None, outlet_events: Any = None) -> None:
    site, ti = current_site(), get_current_context()["ti"]

    def state(other: str) -> str | None:
        dag, run, name = json.loads(other)
        states = ti.get_task_states(dag_id=dag, run_ids=[run], task_ids=[name])
        task_state: str | None = states.get(run, {}).get(name)
        return task_state

    changed = epoch_event_claims.claim_changes(
        site.home, site.epochs_asset.uri, task_token(ti), state, published, task_support.log_progress
    )
    if not changed["epochs"]:
        raise AirflowSkipException("no epoch has changed since the last events")
    event = outlet_events[site.epochs_asset]
    event.add_partitions(list(changed["epochs"]))
    event.extra = {**changed, "epochs": dict(itertools.islice(changed["epochs"].items(), base.MANY_EPOCHS))}
