"""Lineage by Airflow's own provider of OpenLineage, where it is installed and sends events.

The events of the tasks then have the datasets of `altneu.pipeline.observability.openlineage`, and no further events of
runs are sent. `ingest` has read the landing, `audit` has checked tables, with its checks as assertions, and `publish`
has written them; the stages in between write what no reader sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
from airflow.sdk.bases.decorator import task_decorator_factory

from ..observability import openlineage
from ..run.stages import STAGES
from ..tasks import base
from .sites import current_site

INGEST, AUDIT = STAGES[0].name, next(stage.name for stage in STAGES if stage.suites)


def is_sending() -> bool:
    """Tell whether the provider sends events of the tasks."""
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def task_datasets(path: str, name: str, planned: Mapping[str, Any], done: Mapping[str, Any] | None) -> Any:
    """Return the datasets of a task in the provider's form.

    Args:
        path: The folder of the home.
        name: The name of the task.
        planned: The run that the task was given.
        done: The result of the task, which may name another run that has published.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    ledger = base.open_ledger(path, writes=False)
    run_id = (done or {}).get("run_id", planned["run_id"])
    datasets = OperatorLineage()
    if name in (INGEST, base.PUBLISH):
        datasets.inputs = openlineage.input_datasets(ledger, run_id)
    if name == AUDIT:
        datasets.inputs = openlineage.checked_datasets(ledger, run_id)
    if name == base.PUBLISH:
        datasets.outputs = openlineage.output_datasets(ledger, run_id)
    return datasets


class TracedOperator(_PythonDecoratedOperator):
    """A task of a planned run, whose datasets the provider reads when it has ended."""

    site: Any = None
    done: Any = None

    def execute(self, context: Any) -> Any:
        self.site = current_site()
        self.done = super().execute(context)
        return self.done

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        (planned,) = self.op_args
        return task_datasets(self.site.home, self.task_id, planned, self.done)


def traced_task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `@task` for the tasks of a run."""

    def make_task(function: Callable[..., Any]) -> Any:
        return task_decorator_factory(python_callable=function, decorated_operator_class=TracedOperator, **options)

    return make_task
