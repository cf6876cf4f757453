"""The stages as submissions to a Spark cluster, with `ALTNEU_SUBMIT`, the id of an Airflow connection of type Spark.

The driver is a process of its own, which outlives the task that has started it: a retry of the task goes on waiting for
the driver that is running, and takes the answer of one that has ended meanwhile (Airflow's `ResumableJobMixin`). The
log and the answer of a driver are in `submitted/` of the home, which the driver and all workers see. The lease of the
run shows whether a driver on another machine still works.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils import spark as openlineage
from airflow.sdk import ResumableJobMixin
from airflow.sdk.exceptions import AirflowException

from ..state import process_identity
from ..tasks import base, run_tasks
from . import lineage, task_support

APPLICATION = Path(__file__).with_name("submit_entrypoint.py")
BEGINS = 300.0  # seconds within which a driver on another machine has to take the lease of its run
RUNNING, ANSWERED, FAILED = "running", "answered", "failed"


class SubmittedStage(ResumableJobMixin, SparkSubmitOperator):
    """A stage as a `spark-submit`; it fails with the stage's error message, and returns the result of the stage."""

    external_id_key = "altneu_submission"
    done: Any = None

    def __init__(self, *, home: str, stage: str, planned: str, **kwargs: Any) -> None:
        super().__init__(application=str(APPLICATION), application_args=[home, stage, planned], **kwargs)
        self._process: int | None = None
        self._is_answer_read, self._result = False, cast("dict[str, Any] | None", None)

    @task_support.translate_errors
    def execute(self, context: Any) -> Any:
        home, stage, planned = self.application_args or ("", "", "{}")
        if not run_tasks.has_stage(home, json.loads(planned), stage):
            return {}
        self.done = self.execute_resumable(context)
        return self.done

    def submit_job(self, context: Any) -> dict[str, Any]:
        """Start the driver and return how to find it again.

        The folder of an earlier driver is removed.
        """
        store = context.get("task_state_store")
        former = store.get(self.external_id_key) if store is not None else None
        if former:
            shutil.rmtree(former["folder"], ignore_errors=True)
        path, stage, planned = self._stage_arguments()
        master, cluster = self._connection_master()
        self.conf, self.env_vars = run_tasks.submit_settings(path, master, cluster=cluster)
        if lineage.is_sending():
            self.env_vars["OPENLINEAGE_DISABLED"] = "true"
        if self._openlineage_inject_parent_job_info:
            self.conf = openlineage.inject_parent_job_information_into_spark_properties(self.conf, context)
        if self._openlineage_inject_transport_info:
            self.conf = openlineage.inject_transport_information_into_spark_properties(self.conf, context)
        folder = Path(path) / "submitted" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        self.application_args = [path, stage, planned, str(folder / "answer.json")]
        self._hook = self._get_hook()
        command = self._hook._build_spark_submit_command(self.application)
        with (folder / "log").open("w") as log:  # a pipe would end with this task and would end the driver
            process = subprocess.Popen(
                command,
                env=os.environ | (self._hook._env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return {"folder": str(folder), "process": process_identity.process_token(process.pid), "at": time.time()}

    def get_job_status(self, external_id: Any, context: Any) -> str:
        answer = self._read_answer(external_id)
        if answer is not None:
            return FAILED if "error" in answer else ANSWERED
        if process_identity.is_on_this_machine(external_id["process"]):
            return FAILED if process_identity.has_ended(external_id["process"]) else RUNNING
        path, _, planned = self._stage_arguments()
        alive = base.open_ledger(path, writes=False).runs.get(json.loads(planned)["run_id"]).is_alive
        return RUNNING if alive or time.time() - external_id["at"] < BEGINS else FAILED

    def is_job_active(self, status: str) -> bool:
        return status == RUNNING

    def is_job_succeeded(self, status: str) -> bool:
        return status == ANSWERED

    def poll_until_complete(self, external_id: Any, context: Any) -> Any:
        """Wait for the driver, copy its lines to the task's log, and return its answer."""
        if process_identity.is_on_this_machine(external_id["process"]):
            self._process = int(external_id["process"].split("/")[1])
        if self._hook is None:
            self._hook = self._get_hook()
        log = Path(external_id["folder"]) / "log"
        lines = log.open(errors="replace") if log.exists() else None
        try:
            status = RUNNING
            while status == RUNNING:
                time.sleep(self._status_poll_interval)
                status = self.get_job_status(external_id, context)
                if lines is not None:
                    self._hook._process_spark_submit_log(
                        iter(lines.readline, "")
                    )  # it also finds the ids that on_kill needs
        finally:
            if lines is not None:
                lines.close()
        return self.get_job_result(external_id, context)

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """Return the answer of the driver, or raise its error.

        The answer is taken once: a task that is cleared runs again.
        """
        if not self._is_answer_read:  # the mixin calls this again after `poll_until_complete`
            self._is_answer_read, self._result = True, self._read_answer(external_id)
            store = context.get("task_state_store")
            if store is not None:
                store.delete(self.external_id_key)
            shutil.rmtree(external_id["folder"], ignore_errors=True)
        if self._result is None:
            raise AirflowException("the driver has ended without an answer: it was killed, or it found no cluster.")
        if "error" in self._result:
            raise task_support.task_failure(**self._result["error"])
        return task_support.skip_if_overtaken(self._result["done"])

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        path, stage, planned = self._stage_arguments()
        return lineage.task_datasets(path, stage, json.loads(planned), self.done)

    def on_kill(self) -> None:
        super().on_kill()
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process, signal.SIGKILL)

    def _stage_arguments(self) -> tuple[str, str, str]:
        path, stage, planned, *_ = (str(argument) for argument in self.application_args or [])
        return path, stage, planned

    def _connection_master(self) -> tuple[str, bool]:
        """Return the master of the connection, and whether its driver runs on another machine."""
        connection = self._get_hook()._connection
        return connection["master"], connection["deploy_mode"] == "cluster"

    @staticmethod
    def _read_answer(external_id: dict[str, Any]) -> dict[str, Any] | None:
        file = Path(external_id["folder"]) / "answer.json"
        return cast("dict[str, Any]", json.loads(file.read_text())) if file.exists() else None
