"""The stages as submissions to a Spark cluster: with `ALTNEU_SUBMIT`, the id of an Airflow connection of type Spark.

The driver then is a process of its own next to the worker, which only waits; master and queue are the connection's. The
cluster's machines must see the home (landing and database) and the packages of this one.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from ..tasks import orchestration
from . import common, lineage

APPLICATION = Path(__file__).with_name("stage.py")


class SubmittedStage(SparkSubmitOperator):
    """A stage as `spark-submit`; fails with the stage's error message, and returns what it has done."""

    done: Any = None

    def __init__(self, *, home: str, stage: str, planned: str, **kwargs: Any) -> None:
        super().__init__(application=str(APPLICATION), application_args=[home, stage, planned], **kwargs)

    @common.translate_errors
    def execute(self, context: Any) -> Any:
        path, stage, planned = (str(each) for each in self.application_args or [])
        self.conf, self.env_vars = orchestration.submission(path)
        if lineage.sends():
            self.env_vars["OPENLINEAGE_DISABLED"] = "true"
        with TemporaryDirectory() as folder:
            answer = Path(folder) / "answer.json"
            self.application_args = [path, stage, planned, str(answer)]
            try:
                super().execute(context)
            except AirflowException:
                if not answer.exists():  # it left no answer: killed, or no cluster
                    raise
            answered = json.loads(answer.read_text())
        if "error" in answered:
            raise common.failure(**answered["error"])
        self.done = common.at_work(answered["done"])
        return self.done

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        path, stage, planned = (self.application_args or [])[:3]
        return lineage.of(path, stage, json.loads(planned), self.done)
