"""The stages as submissions to a Spark cluster: with `ALTNEU_SUBMIT`, the id of an Airflow connection of type Spark.

The driver then is a process of its own, with the connection's master, queue and deploy mode; the worker only waits. The
cluster's machines must see the home (landing and database) and the packages of this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pipeline import orchestration
from pipeline.errors import AltneuError

APPLICATION = Path(__file__).resolve().parents[1] / "infra" / "airflow" / "stage.py"


class SubmittedStage(SparkSubmitOperator):
    """A stage as `spark-submit`; fails with the words of the stage, and hands on what it has done."""

    def __init__(self, *, home: str, stage: str, planned: str, **kwargs: Any) -> None:
        super().__init__(application=str(APPLICATION), application_args=[home, stage, planned], **kwargs)

    def execute(self, context: Any) -> Any:
        path, _, planned = self.application_args or ()
        try:
            self.conf, self.jars, self.env_vars = orchestration.submission(path)
            super().execute(context)
            done = orchestration.outcome(path, planned)
        except AltneuError as error:
            raise AirflowFailException(orchestration.worded(error)) from error
        except AirflowException as submission:
            error = orchestration.why(path, planned)
            if error is None:
                raise
            kind = AirflowException if orchestration.retry_helps(error) else AirflowFailException
            raise kind(orchestration.worded(error)) from submission
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"revision": done["revision"], "epochs": done["labels"][:100]}
        return done
