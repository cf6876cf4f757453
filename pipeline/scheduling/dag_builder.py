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
- `ALTNEU_POOL`: the pool in which runs compute (default `altneu_stages`).
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink, Param, chain, task
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from ..errors import AltneuError, is_transient
from ..run.openlineage import send_by_tasks
from ..run.stages import STAGES, Stage
from ..tasks import base, run_tasks
from ..tasks.base import PlannedRun, PublishedRun
from . import alerts, lineage
from .sites import current_site

log = logging.getLogger("altneu.tasks")
START = datetime(1970, 1, 1, tzinfo=UTC)  # the start of every DAG: Airflow would make no task in a run before it


def on_failure(context: dict[str, Any]) -> None:
    """Send the alert of a task that has failed for good, and call the hook `ALTNEU_ON_FAILURE` with plain values.

    A broken hook is logged, never raised.
    """
    alerts.alert_task_failed(current_site().home, context, current_site().schedule_bounds[1])
    hook = os.environ.get("ALTNEU_ON_FAILURE")
    if not hook:
        return
    ti = context["ti"]
    alert = {
        "dag": ti.dag_id,
        "run": ti.run_id,
        "task": ti.task_id,
        "error": str(context.get("exception")),
        "log": getattr(ti, "log_url", None),
    }
    try:
        module, _, function = hook.partition(":")
        getattr(importlib.import_module(module), function)(alert)
    except Exception:
        log.exception("ALTNEU_ON_FAILURE = %r could not be called with %s", hook, alert)


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


def on_success(context: dict[str, Any]) -> None:
    """Send what a task that has ended well has found, or what is over because of it."""
    alerts.send_alerts(current_site().home, context)


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


def log_progress(text: str) -> None:
    """Write a line to the task's log."""
    log.info(text)


def translate_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an `AltneuError` of the function into a task failure that says what to type next and where the report is.

    There are no retries where they cannot help.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with send_by_tasks(lineage.is_sending()):
                return function(*args, **kwargs)
        except AltneuError as error:
            label = base.last_label(args[0]) if args and isinstance(args[0], dict) else None
            lines = [base.format_error(error), *([f"report: {page_address(label)}"] if label else [])]
            raise task_failure("\n".join(lines), retry=error.transient) from error
        finally:
            base.release_session()

    return wrapper


def task_failure(says: str, *, retry: bool) -> Exception:
    """Return the failure of a task as Airflow's exception."""
    return (AirflowException if retry else AirflowFailException)(says)


def page_address(label: str) -> str:
    """Return the address of an epoch's report inside Airflow."""
    return report_address(f"epoch={label}.html")


def report_address(name: str) -> str:
    """Return the address of a page of the reports inside Airflow."""
    prefix = current_site().prefix
    where = "" if prefix == base.PREFIX else f"homes/{prefix}/"
    return f"{pages_address()}/{where}reports/{name}"


def pages_address() -> str:
    """Return the address of altneu's pages inside Airflow."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/altneu"


class ReportLink(BaseOperatorLink):
    """The link **Report** of a task, which leads to the page of the run's epoch."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{pages_address()}/runs/{ti_key.dag_id}/{quote(ti_key.run_id)}"


def skip_if_overtaken(done: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a stage; skip the task if another run has overtaken its run."""
    if "superseded" in done:
        raise AirflowSkipException(done["superseded"])
    return done


def skip_the_rest(operator: BaseOperator) -> NoReturn:
    """End a task as a success and skip all tasks that follow at once.

    Airflow would otherwise skip them one after the other, one turn of the scheduler each.
    """
    raise DownstreamTasksSkipped(tasks=[task.task_id for task in operator.get_flat_relatives(upstream=False)])


# a stage that is skipped because its run was overtaken lets the others go on to publish, which runs the epochs again
STAGE: dict[str, Any] = {"trigger_rule": "none_failed_min_one_success"}


def stage(spec: Stage) -> Any:
    """Return the task of a stage before publish."""

    @lineage.traced_task(task_id=spec.name, doc_md=spec.does, **STAGE)
    @translate_errors
    def run_stage(planned: PlannedRun) -> dict[str, Any]:
        return skip_if_overtaken(run_tasks.execute_stage(current_site().home, planned, spec.name, log_progress))

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

    The chain is plan → ingest → edges → triangles → truss → audit → approve → publish → assets, warnings → report; the
    plan travels by XCom. The state of a run is that of its last tasks: `assets` fails it when a stage has failed,
    although `report` still runs; `warnings` is not among the last ones.
    """
    from .approval import Approval
    from .epoch_events import epochs

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
    events = [assets.override(outlets=site.table_assets)(done), epochs.override(outlets=[site.epochs_asset])(done)]
    chain(planned, *before, [*events, warned])
    chain(planned, before[1:])
    chain(warned, report(planned, done))
    for operator in approve.dag.tasks:
        operator.operator_extra_links = (*operator.operator_extra_links, ReportLink())
    return before[-1]


def submitted_stage(each: Any, source: Any) -> Any:
    """Return a stage as a `spark-submit`, with the settings that its task has here."""
    from .spark_submit_operator import SubmittedStage

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
