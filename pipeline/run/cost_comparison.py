"""A comparison of what incremental maintenance and full recomputation cost, in a scratch home on the same landing.

Everything before the first chosen epoch is published there in one pass. Then each chosen epoch is maintained by a run
of its own, recomputed from scratch in the same session, and compared. The home itself is not touched. The seconds of
the first epoch include the warm-up of the session: look at the later ones.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ..checking import audit
from ..home.home import Home
from ..home.settings import Landing, Publish, Storage
from ..state.home_identity import open_ledger
from ..state.records import Revision
from ..state.stage_results import EdgesFacts, IngestFacts
from ..storage.warehouse import Warehouse
from . import planning, runner
from .stages import STAGES


def compare_costs(
    home: Home, epochs: list[int], spark: SparkSession, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Maintain and recompute each epoch, and return a row of costs for each.

    Args:
        home: The home whose landing and settings are used; it is not changed.
        epochs: The epochs to compare.
        spark: A session with Iceberg.
        say: A function that takes lines about the progress.

    Returns:
        One row per epoch: epoch, label, landed rows, changed edges, seconds of maintenance and of recomputation, their
        ratio, and the number of checks that found a difference.
    """
    rows = []
    maintained = [stage.name for stage in STAGES if stage.maintains]
    with tempfile.TemporaryDirectory(prefix="altneu-shadow-") as folder:
        path = Path(folder)
        places = {"storage": Storage(), "publish": Publish(), "landing": Landing(uri=home.landed_at)}
        copy = Home(path, home.config.model_copy(update=places))
        ledger = open_ledger(copy, writes=True)
        for epoch in sorted(epochs):
            missing = planning.plan_run(ledger, lambda e, epoch=epoch: e.epoch < epoch)  # type: ignore[misc]
            if missing.run:
                say(
                    f"publishing {len(missing.run)} epoch(s) before {home.schedule.format_label(epoch)} "
                    f"in the scratch home"
                )
                runner.execute_run(ledger, missing)
            say(f"{home.schedule.format_label(epoch)}: maintaining")
            row = runner.execute_run(ledger, planning.plan_epochs(ledger, [epoch]))
            assert isinstance(row, Revision)
            seconds = {stage.stage: stage.seconds for stage in ledger.stages.select(row.run_id)}
            say(f"{home.schedule.format_label(epoch)}: recomputing")
            warehouse = Warehouse(spark, copy)
            began = time.perf_counter()
            checks = audit.audit_published(warehouse, row, [epoch], lambda text: None)
            recomputed = time.perf_counter() - began
            maintained_seconds = sum(seconds[name] or 0.0 for name in maintained)
            rows.append(
                {
                    "epoch": epoch,
                    "label": home.schedule.format_label(epoch),
                    "rows": ledger.stages.get_facts(row.run_id, IngestFacts).rows,
                    "changes": ledger.stages.get_facts(row.run_id, EdgesFacts).rows,
                    "maintained_s": round(maintained_seconds, 2),
                    "recomputed_s": round(recomputed, 2),
                    "ratio": round(recomputed / maintained_seconds, 2),
                    "differences": sum(not check["passed"] for check in checks),
                }
            )
    return rows
