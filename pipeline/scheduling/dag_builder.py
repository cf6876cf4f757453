"""What the DAGs of altneu share: default settings, errors in Airflow's form, and the chain of stages.

Settings come from the environment of the scheduler and the workers (those of another home: see `sites`):

- `ALTNEU_HOME`: the home directory.
- `ALTNEU_START`, `ALTNEU_END`: ISO dates. With a start the schedule catches up from there; with an end it
  stops there.
- `ALTNEU_WAIT_HOURS`: how long a run waits for its landing before it fails (default 24).
- `ALTNEU_APPROVAL_HOURS`: how long a held run waits for a decision before its task fails (default 72); it stays held.
- `ALTNEU_NOTIFIERS`, `ALTNEU_ALERTS`: the receivers of alerts, see `alerts`.
- `ALTNEU_LATE_HOURS`: the hours after the end of its interval at which an unpublished epoch is late (default: never).
- `ALTNEU_ON_FAILURE`: `module:function`, called with a dict when a task has failed for good (not for a warning): dag,
  run, task, error, log.
- `ALTNEU_MASTER`: a Spark master instead of the one in `altneu.toml`; `sc://host:port`: the tasks share the Spark of
  `altneu connect` and start none.
- `ALTNEU_SUBMIT`: the id of an Airflow connection of type Spark; each stage is then a `spark-submit` to it.
- `ALTNEU_WATCH`: with 1, published epochs that land again are run without a person (`altneu_relanded`); default 0.
- `ALTNEU_PERIODS`: the kinds of periods whose changes are emitted, such as `weeks` or `days,months` (default: none).
- `ALTNEU_POOL`: the pool in which runs compute (default `altneu_stages`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, Param, chain, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowSkipException

from ..errors import is_transient
from ..run.stages import STAGES, Stage
from ..tasks import base, run_tasks
from ..tasks.base import PlannedRun, PublishedRun
from . import alerts, lineage
from .approval import Approval
from .epoch_events import make_event_tasks
from .sites import current_site
from .task_callbacks import on_failure, on_success
from .task_support import log_progress, page_address, pages_address, skip_if_overtaken, translate_errors

log = logging.getLogger("altneu.tasks")
START = datetime(1970, 1, 1, tzinfo=UTC)  # the start of every DAG: Airflow would make no task in a run before it


class Transient(RetryPolicy):
    """A retry policy that fails at once on errors that no retry can help, by `errors.is_transient`.

    It covers errors of other packages, too. Airflow's own errors, and those that `translate_errors` has made, follow
    their types. `ExceptionRetryPolicy` would need a list of types; the rule which errors of Spark and of the database
    last is in one place, `errors`.
    """

    def evaluate(self, exception: BaseException, *how: Any, **more: Any) -> RetryDecision:
        of_airflow = any(kind.__module__.partition(".")[0] == "airflow" for kind in type(exception).__mro__)
        if not isinstance(exception, Exception) or of_airflow or is_transient(exception):
            return RetryDecision.default()
        return RetryDecision.fail(f"{type(exception).__name__} would happen again")


def deadline_alert(seconds: int | None) -> DeadlineAlert | None:
    """Return the deadline alert of a DAG whose intervals have this number of seconds, or None without a schedule."""
    site = current_site()
    if seconds is None or site.late_hours is None:
        return None
    after, arguments = timedelta(seconds=seconds, hours=site.late_hours), {"home": site.home, "prefix": site.prefix}
    return DeadlineAlert(DeadlineReference.DAGRUN_LOGICAL_DATE, after, AsyncCallback(alerts.alert_late, arguments))


DEFAULTS = {
    "retry_policy": Transient(),
    "owner": "altneu",
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": on_failure,
    "on_success_callback": on_success,
    "weight_rule": "upstream",  # a run that is further goes first, so that runs compute one after the other
}


class ReportLink(BaseOperatorLink):
    """The link **Report** of a task, which leads to the page of the run's epoch."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{pages_address()}/runs/{ti_key.dag_id}/{quote(ti_key.run_id)}"


# a stage that is skipped because its run was overtaken lets the others go on to publish, which runs the epochs again
STAGE: dict[str, Any] = {"trigger_rule": "none_failed_min_one_success"}


def stage(spec: Stage) -> Any:
    """Return the task of a stage before publish."""

    @lineage.traced_task(task_id=spec.name, doc_md=spec.does, **STAGE)
    @translate_errors
    def run_stage(planned: PlannedRun) -> dict[str, Any]:
        return skip_if_overtaken(run_tasks.execute_stage_task(current_site().home, planned, spec.name, log_progress))

    return run_stage


@lineage.traced_task(
    task_id=base.PUBLISH,
    **STAGE,
    execution_timeout=timedelta(hours=12),
    doc_md="Makes the revision visible. If another run has published since the plan, the epochs run again here, on "
    "the newest revision. It is safe to clear this task: it publishes what is missing.",
)
@translate_errors
def publish(planned: PlannedRun) -> PublishedRun:
    return run_tasks.publish_run(current_site().home, planned, log_progress)


@task(
    doc_md="Updates the assets with the revision and the epochs that it published. It is skipped if this run has "
    "published nothing, because other runs had done so.",
)
def assets(published: PublishedRun, outlet_events: Any = None) -> None:
    if published["revision"] is None:
        raise AirflowSkipException("this run published nothing itself: no asset is updated")
    for asset in current_site().table_assets:
        outlet_events[asset].extra = {"revision": published["revision"], "epochs": published["labels"]}


@task(
    doc_md="Updates the asset of a declared query with the revision, its epochs, and the number of rows that came or "
    "went. It is skipped if the run has not changed the query's result."
)
def query_asset(published: PublishedRun, name: str, outlet_events: Any = None) -> None:
    rows = run_tasks.count_query_changes(current_site().home, published, name)
    if not rows:
        raise AirflowSkipException(f"the result of query {name} has not changed: its asset is not updated")
    asset = current_site().asset_of(f"query_{name}")
    outlet_events[asset].extra = {"revision": published["revision"], "epochs": published["labels"], "rows": rows}


@task(
    on_failure_callback=None,
    execution_timeout=timedelta(minutes=30),
    doc_md="Fails when a check warns; its message has the check, the epoch and rows. **The epochs are published "
    "nevertheless**, with a mark, and the run is a success. The alert of a warning is sent when the run publishes.",
)
@translate_errors
def warnings(published: PublishedRun) -> None:
    run_tasks.raise_warnings(current_site().home, published, log_progress)


@task(
    trigger_rule="all_done",
    execution_timeout=timedelta(minutes=30),
    doc_md="Writes the report pages from the database, even of a run that has failed. The epochs are published whether "
    "or not this task succeeds.",
)
@translate_errors
def report(planned: PlannedRun | None, published: PublishedRun | None) -> list[str]:
    if not planned:
        raise AirflowSkipException("no run has begun: there is nothing to report")
    log_progress(f"report: {page_address(base.last_label(planned) or '')}")
    return run_tasks.write_report(current_site().home, planned, published, log_progress)


def stages(planned: Any) -> Any:
    """Build the tasks of a run and return publish.

    The chain is plan → ingest → edges → triangles → truss → queries → audit → approve → publish → assets, warnings →
    report; the plan travels by XCom. Each declared query has a task for its asset, beside `assets`. The state of a run
    is that of its last tasks: `assets` fails it when a stage has failed, although `report` still runs; `warnings` is
    not among the last ones.
    """
    site = current_site()
    pooled: dict[str, Any] = {"pool": site.pool}

    def make_task(template: Any, source: Any) -> Any:
        template = template.override(**pooled)
        return submitted_stage(template, source) if site.submit else template(source)

    before = [make_task(stage(spec), planned) for spec in STAGES if spec.before_publish]
    approve = Approval(
        task_id="approve",
        home=site.home,
        planned=planned,
        subject="Publish?",
        params={
            "because": Param(None, type=["null", "string"], title="Why", description="The page of the epoch shows it.")
        },
        response_timeout=site.approval_patience,
        execution_timeout=None,
        pages=not site.submit,
        doc_md="Asks a person for an approval where `[publish] approve` says so; otherwise it passes at once. "
        "After a rejection nothing is published.",
        **STAGE,
        **pooled,
    )
    before += [approve, make_task(publish, approve.output)]
    done = before[-1].output if site.submit else before[-1]
    warned = warnings(done)
    events = [assets.override(outlets=site.table_assets)(done), *make_event_tasks(done)]
    events += [
        query_asset.override(task_id=f"query_{name}", outlets=[asset])(done, name)
        for name, asset in site.query_assets.items()
    ]
    chain(planned, *before, [*events, warned])
    chain(planned, before[1:])
    chain(warned, report(planned, done))
    for operator in approve.dag.tasks:
        operator.operator_extra_links = (*operator.operator_extra_links, ReportLink())
    return before[-1]


def submitted_stage(each: Any, source: Any) -> Any:
    """Return a stage as a `spark-submit`, with the settings that its task has here."""
    from .spark_submit_operator import SubmittedStage  # imported here, because Airflow's provider may be absent

    name = each.kwargs["task_id"]
    return SubmittedStage(
        task_id=name,
        home=current_site().home,
        stage=name,
        planned=f"{{{{ ti.xcom_pull(task_ids='{source.operator.task_id}') | tojson }}}}",
        conn_id=current_site().submit,
        name=f"altneu {name}",
        **{option: value for option, value in each.kwargs.items() if option != "task_id"},
    )
