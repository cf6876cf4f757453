"""What the altneu DAGs share: defaults, the tables as assets, errors as Airflow wants them, and the chain
of stages.

Settings come from the environment of the scheduler and the workers:

- `ALTNEU_HOME`: the home directory.
- `ALTNEU_START`, `ALTNEU_END`: ISO dates. With a start the schedule catches up from there; with an end it
stops there.
- `ALTNEU_WAIT_HOURS`: how long a run waits for its landing before it fails (default 24).
- `ALTNEU_APPROVAL_HOURS`: how long a held run waits for a decision before its task fails (default 72); it stays held.
- `ALTNEU_ON_FAILURE`: `module:function`, called with a dict when a task has failed for good (not for a warning): dag,
run, task, error, log.
- `ALTNEU_MASTER`: a Spark master instead of the one in `altneu.toml`; `sc://host:port`: the tasks share the Spark of
`altneu connect` and start none.
- `ALTNEU_SUBMIT`: the id of an Airflow connection of type Spark; each stage is then a `spark-submit` to it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Param, chain, task
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from ..errors import AltneuError
from ..run.stages import STAGES, Stage
from ..tasks import base, due, orchestration
from ..tasks.base import Planned, Published

log = logging.getLogger("altneu.tasks")
HOME = base.home_path()
SUBMIT = os.environ.get("ALTNEU_SUBMIT")
START = datetime(1970, 1, 1, tzinfo=UTC)  # of every DAG: of a run before its DAG's start no task would be made
WAIT = timedelta(hours=float(os.environ.get("ALTNEU_WAIT_HOURS", "24")))
APPROVAL = timedelta(hours=float(os.environ.get("ALTNEU_APPROVAL_HOURS", "72")))

try:
    BOUNDS = due.bounds(os.environ.get("ALTNEU_START"), os.environ.get("ALTNEU_END"))
except AltneuError as error:  # wrong bounds must not break the import: no catch-up then
    log.error(error.what)
    BOUNDS = (None, None)

# the output tables, as other DAGs may depend on them
TABLES = ("edges", "degrees", "triangle_counts", "trussness", "quarantine")
ASSETS = [Asset(name=f"altneu_{table}", uri=f"altneu://graph/{table}", group="altneu") for table in TABLES]


def on_failure(context: dict[str, Any]) -> None:
    """The hook for alerts: call `ALTNEU_ON_FAILURE` with plain values. A broken hook is logged, never
    raised."""
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


DEFAULTS = {
    "owner": "altneu",
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=2),
    "on_failure_callback": on_failure,
    "weight_rule": "upstream",  # who has come further goes first, so that runs compute one after the other
}


def say(text: str) -> None:
    """A line of the task's log."""
    log.info(text)


def translate_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """An `AltneuError` as a task failure that says what to type next, and where a run's report is; no retries where
    they cannot help."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AltneuError as error:
            labels = args[0].get("labels", ()) if args and isinstance(args[0], dict) else ()
            says = [base.format_error(error), *(f"report: {page(label)}" for label in labels[-1:])]
            raise failure("\n".join(says), error.transient) from error
        finally:
            base.release()

    return wrapper


def failure(says: str, retry: bool) -> Exception:
    """A task's failure in Airflow's terms."""
    return (AirflowException if retry else AirflowFailException)(says)


def page(label: str) -> str:
    """The address of an epoch's report inside Airflow."""
    return report_address(f"epoch={label}.html")


def report_address(name: str) -> str:
    """The address of a page of the reports inside Airflow."""
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}/altneu/reports/{name}"


def at_work(done: dict[str, Any]) -> dict[str, Any]:
    """What a stage has done. One that had nothing to do, because another run has overtaken its run, is skipped."""
    if "superseded" in done:
        raise AirflowSkipException(done["superseded"])
    return done


# a stage that is skipped because its run was overtaken lets the others go on, down to publish, which settles it
STAGE: dict[str, Any] = {"pool": base.POOL, "trigger_rule": "none_failed_min_one_success"}


def stage(spec: Stage) -> Any:
    """The task of a stage before publish."""

    @task(task_id=spec.name, doc_md=spec.does, **STAGE)
    @translate_errors
    def work(planned: Planned) -> dict[str, Any]:
        return at_work(orchestration.stage(HOME, planned, spec.name, say))

    return work


@task(
    task_id=base.PUBLISH,
    **STAGE,
    execution_timeout=timedelta(hours=12),
    doc_md="Makes the revision visible. When another run has published since the plan, the epochs run again here, on "
    "the newest revision. Clearing it is safe: it publishes what is missing.",
)
@translate_errors
def publish(planned: Planned) -> Published:
    return orchestration.publish(HOME, planned, say)


@task(
    outlets=ASSETS,
    doc_md="Tells those who follow the assets which revision updated them, and which epochs it published. Skipped when "
    "this run has published nothing, because others had.",
)
def assets(published: Published, outlet_events: Any = None) -> None:
    if published["revision"] is None:
        raise AirflowSkipException("this run published nothing itself: no asset is updated")
    for asset in ASSETS:
        outlet_events[asset].extra = {"revision": published["revision"], "epochs": published["labels"]}


@task(
    on_failure_callback=None,
    execution_timeout=timedelta(minutes=30),
    doc_md="Red when a check warns: its message has check, epoch and rows. **The epochs are published all the same**, "
    "with a mark, and the run is a success; nobody is alerted.",
)
@translate_errors
def warnings(published: Published) -> None:
    orchestration.warnings(HOME, published, say)


@task(
    trigger_rule="all_done",
    execution_timeout=timedelta(minutes=30),
    doc_md="Writes the report pages from the database, also of a run that has failed. The epochs are published whether "
    "or not this succeeds.",
)
@translate_errors
def report(planned: Planned | None, published: Published | None) -> list[str]:
    if not planned:
        raise AirflowSkipException("no run was begun: there is nothing to report")
    say(f"report: {page(planned['labels'][-1])}")
    return orchestration.report(HOME, planned, published, say)


def stages(planned: Any) -> Any:
    """plan → ingest → edges → triangles → truss → audit → approve → publish → assets, warnings → report; the plan
    travels by XCom. Returns publish.

    A run's state is that of its last tasks: `assets` fails it when a stage has failed, although `report` still runs;
    `warnings` is none of the last.
    """
    from .approval import Approval

    def made(each: Any, source: Any) -> Any:
        return submitted(each, source) if SUBMIT else each(source)

    before = [made(stage(spec), planned) for spec in STAGES if spec.before_publish]
    approve = Approval(
        task_id="approve",
        home=HOME,
        planned=planned,
        subject="Publish?",
        params={"because": Param("", type="string", title="Why", description="It is shown on the epoch's page.")},
        response_timeout=APPROVAL,
        execution_timeout=None,
        pages=not SUBMIT,
        doc_md="Asks a person, where `[publish] approve` says so; else it passes at once. "
        "Rejected: nothing is published.",
        **STAGE,
    )
    before += [approve, made(publish, approve.output)]
    done = before[-1].output if SUBMIT else before[-1]
    warned = warnings(done)
    chain(planned, *before, [assets(done), warned])
    chain(planned, before[1:])
    chain(warned, report(planned, done))
    return before[-1]


def submitted(each: Any, source: Any) -> Any:
    """A stage as `spark-submit`, with the settings that its task has here."""
    from .submit import SubmittedStage

    name = each.kwargs["task_id"]
    return SubmittedStage(
        task_id=name,
        home=HOME,
        stage=name,
        planned=f"{{{{ ti.xcom_pull(task_ids='{source.operator.task_id}') | tojson }}}}",
        conn_id=SUBMIT,
        name=f"altneu {name}",
        **{option: value for option, value in each.kwargs.items() if option != "task_id"},
    )
