"""A fan-out: one correction reaches several consumers, each with a policy of its own.

Each consumer is a DAG with one run for a correction, whatever epochs it has changed, neighbours or not. The features of
a model are computed again at once; figures that were sent to somebody wait until a person approves the correction; the
dashboard of last year stays as it is, and its asset says that it is stale.

`ALTNEU_HOME` is the home, `FAN_OUT` a file to which each consumer appends a line: put your work in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from airflow.sdk import DAG

from altneu.pipeline.scheduling.consumers import PartitionChange, process_changes, schedule_on

CONSUMERS = {"features": "reprocess", "sent_figures": "hold", "old_dashboard": "mark stale"}


def make_work(consumer: str) -> Callable[[PartitionChange], str]:
    """Return the work of a consumer: here it writes which epochs it would process, as of which revision."""

    def write_line(change: PartitionChange) -> str:
        line = f"{consumer} revision {change['revision']} {change['kind']}: {change['ranges']}"
        with open(os.environ["FAN_OUT"], "a") as file:
            file.write(f"{line}\n")
        return line

    return write_line


for consumer, policy in CONSUMERS.items():
    with DAG(consumer, schedule=schedule_on("graph"), doc_md=__doc__, tags=["altneu"]):
        process_changes(make_work(consumer), unit="graph", on_correction=policy)
