"""Lineage by Airflow's own provider of OpenLineage, where it is installed and sends: the events of the tasks then have
the datasets of `pipeline.run.openlineage`, and of runs nothing is sent besides.

`ingest` has read the landing, `audit` has looked at tables, with its checks as assertions, and `publish` has written
them; the stages in between write what no reader sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
from airflow.sdk.bases.decorator import task_decorator_factory

from ..run import openlineage
from ..run.stages import STAGES
from ..tasks import base
from .sites import current_site

INGEST, AUDIT = STAGES[0].name, next(each.name for each in STAGES if each.suites)


def is_sending() -> bool:
    """Does the provider send events of the tasks?"""
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def task_datasets(path: str, name: str, planned: Mapping[str, Any], done: Mapping[str, Any] | None) -> Any:
    """The datasets of a task, as the provider takes them: of the run that it was given, or that has published."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    home, ledger = base.open_home(path, writes=False)
    run_id = (done or {}).get("run_id", planned["run_id"])
    found = OperatorLineage()
    if name in (INGEST, base.PUBLISH):
        found.inputs = openlineage.input_datasets(home, ledger, run_id)
    if name == AUDIT:
        found.inputs = openlineage.checked_datasets(home, ledger, run_id)
    if name == base.PUBLISH:
        found.outputs = openlineage.output_datasets(home, ledger, run_id)
    return found


class TracedOperator(_PythonDecoratedOperator):
    """A task of a run, planned before, which the provider asks for its datasets when it has ended."""

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
    """`@task` for the tasks of a run."""

    def make_task(function: Callable[..., Any]) -> Any:
        return task_decorator_factory(python_callable=function, decorated_operator_class=TracedOperator, **options)

    return make_task
