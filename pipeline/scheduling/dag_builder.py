"""What the altneu DAGs share: defaults, errors as Airflow wants them, and the chain of stages.

Settings come from the environment of the scheduler and the workers (those of another home: see `sites`):

- `ALTNEU_HOME`: the home directory.
- `ALTNEU_START`, `ALTNEU_END`: ISO dates. With a start the schedule catches up from there; with an end it
stops there.
- `ALTNEU_WAIT_HOURS`: how long a run waits for its landing before it fails (default 24).
- `ALTNEU_APPROVAL_HOURS`: how long a held run waits for a decision before its task fails (default 72); it stays held.
- `ALTNEU_NOTIFIERS`, `ALTNEU_ALERTS`: who is told what is wrong, see `alerts`.
- `ALTNEU_LATE_HOURS`: so long after its interval's end an epoch that is not published is late (default: it never is).
- `ALTNEU_ON_FAILURE`: `module:function`, called with a dict when a task has failed for good (not for a warning): dag,
run, task, error, log.
- `ALTNEU_MASTER`: a Spark master instead of the one in `altneu.toml`; `sc://host:port`: the tasks share the Spark of
`altneu connect` and start none.
- `ALTNEU_SUBMIT`: the id of an Airflow connection of type Spark; each stage is then a `spark-submit` to it.
- `ALTNEU_WATCH`: 1: published epochs that land again are run without a person (`altneu_relanded`); default 0.
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
START = datetime(1970, 1, 1, tzinfo=UTC)  # of every DAG: of a run before its DAG's start no task would be made


def on_failure(context: dict[str, Any]) -> None:
    """A task has failed for good: tell it, and call the hook `ALTNEU_ON_FAILURE` with plain values. A broken hook is
    logged, never raised."""
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
    """Fails at once on what no retry can help, by `errors.is_transient`, also of errors that are none of ours.

    Airflow's own errors, and those that `translate_errors` has judged, are as their types say. `ExceptionRetryPolicy`
    would need a list of types; which of Spark's and the database's last is a rule of `errors`, in one place.
    """

    def evaluate(self, exception: BaseException, *how: Any, **more: Any) -> RetryDecision:
        of_airflow = any(kind.__module__.partition(".")[0] == "airflow" for kind in type(exception).__mro__)
        if not isinstance(exception, Exception) or of_airflow or is_transient(exception):
            return RetryDecision.default()
        return RetryDecision.fail(f"{type(exception).__name__} would come again")


def on_success(context: dict[str, Any]) -> None:
    """A task has ended well: tell what it has found, or what is over by it."""
    alerts.send_alerts(current_site().home, context)


def deadline_alert(seconds: int | None) -> DeadlineAlert | None:
    """Return the deadline alert of a DAG whose intervals have so many seconds. None: it has no schedule."""
    site = current_site()
    if seconds is None or site.late_hours is None:
        return None
    after, told = timedelta(seconds=seconds, hours=site.late_hours), {"home": site.home, "prefix": site.prefix}
    return DeadlineAlert(DeadlineReference.DAGRUN_LOGICAL_DATE, after, AsyncCallback(alerts.alert_late, told))


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
    "weight_rule": "upstream",  # who has come further goes first, so that runs compute one after the other
}


def log_progress(text: str) -> None:
    """A line of the task's log."""
    log.info(text)


def translate_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """An `AltneuError` as a task failure that says what to type next, and where a run's report is; no retries where
    they cannot help."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with send_by_tasks(lineage.is_sending()):
                return function(*args, **kwargs)
        except AltneuError as error:
            label = base.last_label(args[0]) if args and isinstance(args[0], dict) else None
            says = [base.format_error(error), *([f"report: {page_address(label)}"] if label else [])]
            raise task_failure("\n".join(says), retry=error.transient) from error
        finally:
            base.release_session()

    return wrapper


def task_failure(says: str, *, retry: bool) -> Exception:
    """A task's failure in Airflow's terms."""
    return (AirflowException if retry else AirflowFailException)(says)


def page_address(label: str) -> str:
    """The address of an epoch's report inside Airflow."""
    return report_address(f"epoch={label}.html")


def report_address(name: str) -> str:
    """The address of a page of the reports inside Airflow."""
    prefix = current_site().prefix
    where = "" if prefix == base.PREFIX else f"homes/{prefix}/"
    return f"{pages_address()}/{where}reports/{name}"


def pages_address() -> str:
    """The address of altneu's pages inside Airflow."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/altneu"


class ReportLink(BaseOperatorLink):
    """The link **Report** of a task: the page of what its run is about."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{pages_address()}/runs/{ti_key.dag_id}/{quote(ti_key.run_id)}"


def skip_if_overtaken(done: dict[str, Any]) -> dict[str, Any]:
    """What a stage has done. One that had nothing to do, because another run has overtaken its run, is skipped."""
    if "superseded" in done:
        raise AirflowSkipException(done["superseded"])
    return done


def skip_the_rest(operator: BaseOperator) -> NoReturn:
    """End a task as a success after which nothing is to be done: all that follows is skipped at once. One after the
    other, as Airflow does after a skipped task, they would take the scheduler a turn each."""
    raise DownstreamTasksSkipped(tasks=[task.task_id for task in operator.get_flat_relatives(upstream=False)])


# a stage that is skipped because its run was overtaken lets the others go on, down to publish, which settles it
STAGE: dict[str, Any] = {"trigger_rule": "none_failed_min_one_success"}


def stage(spec: Stage) -> Any:
    """The task of a stage before publish."""

    @lineage.traced_task(task_id=spec.name, doc_md=spec.does, **STAGE)
    @translate_errors
    def work(planned: PlannedRun) -> dict[str, Any]:
        return skip_if_overtaken(run_tasks.execute_stage(current_site().home, planned, spec.name, log_progress))

    return work


@lineage.traced_task(
    task_id=base.PUBLISH,
    **STAGE,
    execution_timeout=timedelta(hours=12),
    doc_md="Makes the revision visible. When another run has published since the plan, the epochs run again here, on "
    "the newest revision. Clearing it is safe: it publishes what is missing.",
)
@translate_errors
def publish(planned: PlannedRun) -> PublishedRun:
    return run_tasks.publish_run(current_site().home, planned, log_progress)


@task(
    doc_md="Tells those who follow the assets which revision updated them, and which epochs it published. Skipped when "
    "this run has published nothing, because others had.",
)
def assets(published: PublishedRun, outlet_events: Any = None) -> None:
    if published["revision"] is None:
        raise AirflowSkipException("this run published nothing itself: no asset is updated")
    for asset in current_site().table_assets:
        outlet_events[asset].extra = {"revision": published["revision"], "epochs": published["labels"]}


@task(
    on_failure_callback=None,
    execution_timeout=timedelta(minutes=30),
    doc_md="Red when a check warns: its message has check, epoch and rows. **The epochs are published all the same**, "
    "with a mark, and the run is a success. Who is told of it is told when it is published.",
)
@translate_errors
def warnings(published: PublishedRun) -> None:
    run_tasks.raise_warnings(current_site().home, published, log_progress)


@task(
    trigger_rule="all_done",
    execution_timeout=timedelta(minutes=30),
    doc_md="Writes the report pages from the database, also of a run that has failed. The epochs are published whether "
    "or not this succeeds.",
)
@translate_errors
def report(planned: PlannedRun | None, published: PublishedRun | None) -> list[str]:
    if not planned:
        raise AirflowSkipException("no run was begun: there is nothing to report")
    log_progress(f"report: {page_address(base.last_label(planned) or '')}")
    return run_tasks.write_report(current_site().home, planned, published, log_progress)


def stages(planned: Any) -> Any:
    """plan → ingest → edges → triangles → truss → audit → approve → publish → assets, warnings → report; the plan
    travels by XCom. Returns publish.

    A run's state is that of its last tasks: `assets` fails it when a stage has failed, although `report` still runs;
    `warnings` is none of the last.
    """
    from .approval import Approval
    from .epoch_events import epochs

    site = current_site()
    pooled: dict[str, Any] = {"pool": site.pool}

    def made(each: Any, source: Any) -> Any:
        each = each.override(**pooled)
        return submitted_stage(each, source) if site.submit else each(source)

    before = [made(stage(spec), planned) for spec in STAGES if spec.before_publish]
    approve = Approval(
        task_id="approve",
        home=site.home,
        planned=planned,
        subject="Publish?",
        params={"because": Param(None, type=["null", "string"], title="Why", description="It is on the epoch's page.")},
        response_timeout=site.approval_patience,
        execution_timeout=None,
        pages=not site.submit,
        doc_md="Asks a person, where `[publish] approve` says so; else it passes at once. "
        "Rejected: nothing is published.",
        **STAGE,
        **pooled,
    )
    before += [approve, made(publish, approve.output)]
    done = before[-1].output if site.submit else before[-1]
    warned = warnings(done)
    told = [assets.override(outlets=site.table_assets)(done), epochs.override(outlets=[site.epochs_asset])(done)]
    chain(planned, *before, [*told, warned])
    chain(planned, before[1:])
    chain(warned, report(planned, done))
    for each in approve.dag.tasks:
        each.operator_extra_links = (*each.operator_extra_links, ReportLink())
    return before[-1]


def submitted_stage(each: Any, source: Any) -> Any:
    """A stage as `spark-submit`, with the settings that its task has here."""
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
