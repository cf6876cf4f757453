"""Consumers: DAGs of your own that process what altneu has published, each change once, with a policy for corrections.

    with DAG("weekly_report", schedule=schedule_on("weeks")):
        process_changes(write_report, unit="weeks", on_correction="hold")

`schedule_on` makes the schedule: a run for each epoch, complete day, week or month that has changed, or for `graph` one
run for all epochs that have. `process_changes` makes the tasks. A change is all that has changed in the partition since
this consumer has processed it, whatever number of epochs and publications, and is processed by one run.

| policy | what happens when something that this consumer has processed is corrected |
|---|---|
| `reprocess` | it is processed at once |
| `hold` | a person approves it first; what changes meanwhile is added, and the person is asked again |
| `mark stale` | it is not processed, and the state store of the consumer's asset says so; a run by hand processes it |

What is new is processed at once. The assets of days, weeks and months have events where `ALTNEU_PERIODS` names them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import (
    Asset,
    FixedKeyMapper,
    IdentityMapper,
    PartitionedAssetTimetable,
    PokeReturnValue,
    StartOfDayMapper,
    StartOfMonthMapper,
    StartOfWeekMapper,
    get_current_context,
    task,
)
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowSkipException

from ..errors import RunInProgress, UsageError
from ..home.periods import PeriodUnit
from ..tasks import base, consumer_claims
from ..tasks.consumer_claims import EPOCHS, GRAPH, NEW, UNITS, ConsumerPartition, PartitionChange
from . import task_support
from .epoch_events import task_token
from .sites import Site, current_site

__all__ = ["CorrectionPolicy", "PartitionChange", "asset_of_consumer", "process_changes", "schedule_on"]

CHANGES, APPROVE, PROCESS = "changes", "approve", "process"  # the tasks of a consumer
ASKED_XCOM = "asked"  # the XCom with the change that the person is asked about
PATIENCE = 30  # seconds between two looks whether the run before has processed the same partition
ENDED_STATES = ("failed", "upstream_failed", "skipped", "removed")
MAPPERS: dict[str, Any] = {
    PeriodUnit.DAYS: StartOfDayMapper(input_format="%Y-%m-%d", output_format="%Y-%m-%d"),
    PeriodUnit.WEEKS: StartOfWeekMapper(input_format="%Y-%m-%d", output_format="%Y-%m-%d"),
    PeriodUnit.MONTHS: StartOfMonthMapper(input_format="%Y-%m", output_format="%Y-%m"),
    EPOCHS: IdentityMapper(),
    GRAPH: FixedKeyMapper(GRAPH),
}


class CorrectionPolicy(StrEnum):
    """What a consumer does with a correction of what it has processed."""

    REPROCESS = "reprocess"
    HOLD = "hold"
    MARK_STALE = "mark stale"


def schedule_on(unit: str, prefix: str = base.PREFIX) -> PartitionedAssetTimetable:
    """Return the schedule of a consumer: a run for each changed partition.

    Args:
        unit: `epochs`, `days`, `weeks`, `months`, or `graph` for one run whatever has changed.
        prefix: The prefix of the DAGs of the home.
    """
    if unit not in UNITS:
        raise UsageError(f"a consumer has no unit {unit!r}.", f"one of {', '.join(UNITS)}")
    asset = Site(home="", prefix=prefix).asset_of(EPOCHS if unit == GRAPH else unit)
    return PartitionedAssetTimetable(assets=asset, default_partition_mapper=MAPPERS[unit])


def process_changes(
    work: Callable[[PartitionChange], Any],
    *,
    unit: str,
    on_correction: str = CorrectionPolicy.REPROCESS,
    home: str | None = None,
) -> Any:
    """Make the tasks of a consumer in the DAG that is being made; return the last one, which calls `work`.

    The name of the consumer is the id of the DAG. `work` gets the change, a dictionary as in `PartitionChange`, and may
    be called again if it has died before its task was a success.

    Args:
        work: The function that processes a change.
        unit: As in `schedule_on`.
        on_correction: A policy: `reprocess`, `hold` or `mark stale`.
        home: The folder of the home; None: `ALTNEU_HOME`.
    """
    policy, path = CorrectionPolicy(on_correction), home or current_site().home

    @task.sensor(task_id=CHANGES, mode="reschedule", poke_interval=PATIENCE, timeout=24 * 3600)
    @task_support.translate_errors
    def find_changes(asset_state_store: Any = None) -> PokeReturnValue:
        return _find_changes(path, unit, policy, asset_state_store)

    @task(task_id=PROCESS, on_success_callback=lambda context: _confirm_change(path, unit, context))
    def process(change: PartitionChange, asset_state_store: Any = None) -> Any:
        context = get_current_context()
        where = _partition_of(context, unit)
        if not consumer_claims.has_claim(path, where, task_token(context["ti"])):
            raise AirflowSkipException(
                f"this change of {where.display_name} is processed, or another run has taken it over"
            )
        result = work(change)
        asset_state_store[asset_of_consumer(where.consumer)].delete(_stale_key(where))
        return result

    change: Any = find_changes()
    asset = asset_of_consumer(change.operator.dag.dag_id)
    change.operator.inlets = [asset]
    if policy is CorrectionPolicy.HOLD:
        change = CorrectionApproval(home=path, unit=unit, change=change, inlets=[asset]).output
    return process.override(outlets=[asset])(change)


def asset_of_consumer(consumer: str) -> Asset:
    """Return the asset of a consumer: an event for each partition that it has processed; its state store says which are
    stale."""
    return Asset(name=consumer, uri=f"altneu://consumers/{consumer}", group="altneu")


class CorrectionApproval(ApprovalOperator):
    """An operator that asks a person whether a correction is processed. What is new passes at once."""

    template_fields = (*ApprovalOperator.template_fields, "change")

    def __init__(self, *, home: str, unit: str, change: Any, **kwargs: Any) -> None:
        kwargs = {"task_id": APPROVE, "subject": "Process the correction?", "execution_timeout": None, **kwargs}
        super().__init__(**kwargs)
        self.home, self.unit, self.change = home, unit, change

    @task_support.translate_errors
    def execute(self, context: Any) -> Any:
        return self._request_change_approval(context, self.change)

    def _request_change_approval(self, context: Any, change: PartitionChange) -> Any:
        if not needs_decision(change):
            return change
        where = _partition_of(context, self.unit)
        context["ti"].xcom_push(key=ASKED_XCOM, value=change)
        self.subject = f"Process the correction of {where.display_name}?"
        self.body = format_change(where, change)
        return super().execute(context)

    @task_support.translate_errors
    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        where, token = _partition_of(context, self.unit), task_token(context["ti"], PROCESS)
        change = context["ti"].xcom_pull(task_ids=self.task_id, key=ASKED_XCOM)
        if event.get("chosen_options") == [self.APPROVE] and consumer_claims.has_changed_since(
            self.home, where, change
        ):
            task_support.log_progress(f"{where.display_name} has changed again: asked again")
            newer = _claim_change(self.home, where, context)
            return self._request_change_approval(context, newer or change)
        super().execute_complete(context, event)  # after a rejection it skips the following task
        if event.get("chosen_options") != [self.APPROVE]:
            consumer_claims.release_partition(self.home, where, token)
            _mark_stale(where, change, context["asset_state_store"])
        return change


def needs_decision(change: PartitionChange) -> bool:
    """Tell whether the policy of the consumer applies to a change: it corrects what was processed, and no person has
    started the run."""
    return change["kind"] != NEW and not change["by_hand"]


def format_change(where: ConsumerPartition, change: PartitionChange) -> str:
    """Format a change for the person who decides, as Markdown."""
    lines = [
        f"{where.display_name} is {change['kind']} by the revisions {change['since'] + 1} to {change['revision']}.",
        "",
    ]
    shown = list(change["epochs"].items())[: base.MANY_EPOCHS]
    lines += ["| epoch | change |", "|---|---|", *(f"| {label} | {kind} |" for label, kind in shown)]
    return "\n".join(lines)


def _find_changes(path: str, unit: str, policy: CorrectionPolicy, stores: Any) -> PokeReturnValue:
    """Claim the change of the run's partition; skip the rest if there is none, or if the policy is not to process it.

    The task waits, without a worker, while another run processes the same partition.
    """
    context = get_current_context()
    where = _partition_of(context, unit)
    try:
        change = _claim_change(path, where, context)
    except RunInProgress as other:
        task_support.log_progress(other.what)
        return PokeReturnValue(is_done=False)
    if change is None:
        raise AirflowSkipException(f"{where.display_name}: there is nothing to process")
    if policy is CorrectionPolicy.MARK_STALE and needs_decision(change):
        consumer_claims.release_partition(path, where, task_token(context["ti"], PROCESS))
        _mark_stale(where, change, stores)
        raise AirflowSkipException(
            f"{where.display_name} is stale: {change['ranges']}. Trigger this DAG for it to process it"
        )
    return PokeReturnValue(is_done=True, xcom_value=change)


def _claim_change(path: str, where: ConsumerPartition, context: Any) -> PartitionChange | None:
    ti = context["ti"]
    return consumer_claims.claim_partition(
        path,
        where,
        task_token(ti, PROCESS),
        lambda token: _read_run_state(ti, token),
        begin=_first_revision(context) if where.unit == GRAPH else 0,
        by_hand=str(context["dag_run"].run_type) == "manual",
        say=task_support.log_progress,
    )


def _partition_of(context: Context | dict[str, Any], unit: str) -> ConsumerPartition:
    """Return the partition of a run."""
    run: Any = context["dag_run"]
    if run.partition_key is None and unit != GRAPH:
        raise UsageError("this run has no partition key.", f"trigger the DAG with one of the {unit} as partition key")
    return ConsumerPartition(run.dag_id, unit, GRAPH if unit == GRAPH else run.partition_key)


def _first_revision(context: Any) -> int:
    """Return the revision after which the events begin that have started a run; 0: none has."""
    events = [event for some in (context.get("triggering_asset_events") or {}).values() for event in some]
    return min((int(event.extra["since"]) for event in events if "since" in (event.extra or {})), default=0)


def _read_run_state(ti: Any, token: str) -> str | None:
    """Return how far the run of a task with a claim is: `success`, `waiting`, `running`, or None if the claim is void.

    A claim is void when its run has ended without success, is gone, or was cleared: it claims again when it runs.
    """
    dag, run, _ = json.loads(token)
    states = ti.get_task_states(dag_id=dag, run_ids=[run]).get(run, {})
    if states.get(PROCESS) == "success":
        return "success"
    if states.get(CHANGES) != "success" or states.get(PROCESS) in ENDED_STATES:
        return None
    return "waiting" if states.get(APPROVE) in ("awaiting_input", "deferred") else "running"


def _confirm_change(path: str, unit: str, context: Any) -> None:
    consumer_claims.confirm_partition(path, _partition_of(context, unit), task_token(context["ti"]))


def _stale_key(where: ConsumerPartition) -> str:
    return f"stale {where.partition}"


def _mark_stale(where: ConsumerPartition, change: PartitionChange, stores: Any) -> None:
    """Write in the state store of the consumer's asset that a partition is stale, and since which revision."""
    values = {name: change[name] for name in ("since", "revision", "kind", "ranges")}
    stores[asset_of_consumer(where.consumer)].set(_stale_key(where), values)
