"""What Airflow calls when a task has ended well, or has failed for good."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

from . import alerts
from .sites import current_site

log = logging.getLogger("altneu.tasks")


def on_success(context: dict[str, Any]) -> None:
    """Send what a task that has ended well has found, or what is over because of it."""
    alerts.send_alerts(current_site().home, context)


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
