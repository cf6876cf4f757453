"""What every task uses: its log, errors in Airflow's form, skipping, and the addresses of the pages inside Airflow."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from ..errors import AltneuError
from ..observability.openlineage import send_by_tasks
from ..storage.daemon_client import caller
from ..tasks import base
from . import lineage
from .sites import current_site

log = logging.getLogger("altneu.tasks")


def log_progress(text: str) -> None:
    """Write a line to the task's log."""
    log.info(text)


def translate_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an `AltneuError` of the function into a task failure that says what to type next and where the report is.

    There are no retries where they cannot help.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        caller.name, caller.show_line = "a task of Airflow", log_progress
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
