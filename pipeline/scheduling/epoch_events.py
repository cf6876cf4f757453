"""The tasks `epochs`, `days`, `weeks` and `months`: they emit an event for each partition whose results have changed.

The partitions of `altneu://graph/epochs` are the epochs; those of `altneu://graph/weeks` are complete weeks, and so on.
Airflow stores the events of a task in the transaction that makes the task a success;
`altneu.pipeline.state.delivery_cursors` keeps how far events were delivered, and which task has an open claim. So each
change is delivered once, including what was published outside Airflow.

The state store of an asset has the newest revision that was delivered and its frontier, as `revision` and `frontier`.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from ..home.periods import PeriodUnit
from ..tasks import base, epoch_event_claims
from ..tasks.base import PublishedRun
from . import task_callbacks, task_support
from .sites import current_site

EPOCHS = "epochs"  # the name of the task, of the asset, and of the changes in the extra of an event


def task_token(ti: Any, task_id: str | None = None) -> str:
    """Return the text by which the home identifies a task, or another task of the same run."""
    return json.dumps([ti.dag_id, ti.run_id, task_id or ti.task_id])


def read_task_state(ti: Any, token: str) -> str | None:
    """Return the state in Airflow of the task with a token; None: it has gone."""
    dag, run, name = json.loads(token)
    states = ti.get_task_states(dag_id=dag, run_ids=[run], task_ids=[name])
    task_state: str | None = states.get(run, {}).get(name)
    return task_state


def confirm_events(context: dict[str, Any]) -> None:
    """Confirm the claimed events after the success of the task: Airflow has them."""
    site, ti = current_site(), context["ti"]
    epoch_event_claims.confirm_changes(site.home, site.asset_of(ti.task_id).uri, task_token(ti))


@task(
    on_success_callback=[task_callbacks.on_success, confirm_events],
    doc_md="Emits an event for each partition of the asset whose results have changed since the last events: new and "
    "corrected epochs, and those that a correction restates, whether this run or somebody outside Airflow has "
    "published them; of days, weeks and months only those that are complete. It is skipped if there are none.",
)
@task_support.translate_errors
def emit_changes(
    published: PublishedRun | None = None, outlet_events: Any = None, asset_state_store: Any = None
) -> None:
    site, ti = current_site(), get_current_context()["ti"]
    asset, unit = site.asset_of(ti.task_id), None if ti.task_id == EPOCHS else PeriodUnit(ti.task_id)
    changed = epoch_event_claims.claim_changes(
        site.home,
        asset.uri,
        task_token(ti),
        lambda token: read_task_state(ti, token),
        published,
        task_support.log_progress,
        unit,
    )
    if not changed["partitions"]:
        raise AirflowSkipException(f"none of the {ti.task_id} has changed since the last events")
    event = outlet_events[asset]
    event.add_partitions(list(changed["partitions"]))
    some = dict(itertools.islice(changed["partitions"].items(), base.MANY_EPOCHS))
    event.extra = {**{name: changed[name] for name in ("since", "revision", "frontier")}, ti.task_id: some}
    for name in ("revision", "frontier"):
        if changed[name] is not None:
            asset_state_store[asset].set(name, changed[name])


def make_event_tasks(published: Any = None) -> list[Any]:
    """Make the task `epochs`, and one for each kind of periods that the site asks for; return them."""
    site = current_site()
    return [
        emit_changes.override(task_id=name, outlets=[site.asset_of(name)])(*([] if published is None else [published]))
        for name in (EPOCHS, *site.period_units)
    ]
