"""The task `approve`: a person decides in Airflow whether a held run is published.

If there is nothing to approve, the task passes at once. While it waits it holds neither a worker nor the pool. The
approval is for what was computed on one revision: if another run is published meanwhile, the epochs are computed and
compared again, in this task, and the person is asked again.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

from ..errors import RevisionConflict
from ..tasks import base, run_tasks
from . import alerts, task_support

ASKED_XCOM = "asked"  # the XCom with the run that the person is asked about
DIFFERENCE = "difference"  # the XCom with what the run would change, as Markdown


class Approval(ApprovalOperator):
    """An operator that asks for an approval where `[publish] approve` says so, and returns the plan of the run to
    publish."""

    template_fields = (*ApprovalOperator.template_fields, "planned")

    def __init__(self, *, home: str, planned: Any, pages: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.home, self.planned, self.pages = home, planned, pages

    @task_support.translate_errors
    def execute(self, context: Any) -> Any:
        return self._request_approval(context, self.planned)

    def _request_approval(self, context: Any, planned: Any) -> Any:
        planned, question = run_tasks.request_approval(self.home, planned, task_support.log_progress, pages=self.pages)
        if (difference := run_tasks.describe_difference(self.home, planned)) is not None:
            context["ti"].xcom_push(key=DIFFERENCE, value=difference)
        if question is None:
            return planned
        links = [f"[the epoch]({task_support.page_address(base.last_label(planned) or '')})"]
        links += (
            [f"[all that would change]({task_support.report_address(question['page'])})"] if question["page"] else []
        )
        self.subject, self.body = question["subject"], f"{question['body']}\n\n{', '.join(links)}"
        context["ti"].xcom_push(key=ASKED_XCOM, value=planned)
        alerts.alert_approval_needed(self.home, context, planned["run_id"], question)
        return super().execute(context)

    @task_support.translate_errors
    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        planned = context["ti"].xcom_pull(task_ids=self.task_id, key=ASKED_XCOM)
        if "error" in event:
            raise task_support.task_failure(
                f"nobody has decided within {self.response_timeout}. Run {planned['run_id']} stays held, and nothing "
                f"of it is published.\nnext: altneu publish {planned['run_id']}, then clear this task",
                retry=False,
            )
        approved, user = event["chosen_options"] == [self.APPROVE], event.get("responded_by_user") or {}
        because = (event.get("params_input") or {}).get("because") or None
        person = run_tasks.identify_person(self.home, user)
        if not run_tasks.may_decide(self.home, person, approved=approved):
            task_support.log_progress(f"{person} may not approve ([publish] approve, by): asked again")
            return self._request_approval(context, planned)
        try:
            run_tasks.record_decision(self.home, planned, approved=approved, person=person, because=because)
        except RevisionConflict as overtaken:
            task_support.log_progress(overtaken.what)
            return self._request_approval(context, planned)
        super().execute_complete(context, event)  # after a rejection it skips the following tasks
        return planned
