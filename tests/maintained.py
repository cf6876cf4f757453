"""What the tables of a home hold as of some epochs, and how the product's audit judges them: for tests that compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from altneu.expectations.model import Check
from altneu.expectations.suite import check_differences
from altneu.pipeline.checking import audit, audited_rows, epoch_recount
from altneu.pipeline.storage.warehouse import Warehouse

RESULTS = "epoch bigint, what string, a bigint, b bigint, value bigint"


def select_maintained(read: Callable[[str], DataFrame], epochs: list[int]) -> DataFrame:
    """Select the maintained results at some epochs, from the tables as a reader sees them.

    Returns:
        Rows of epoch, what, a, b, value, without zeros. `what` is `edge` (a, b; the value is its number of copies),
        `trussness_of_edge` (a, b), `triangles_at_vertex` (a), `motif_at_vertex` (a; b is the motif's index in
        `[motifs]`), or one of the totals `edges`, `vertices`, `triangles` and `max_trussness` (a and b are null).
    """

    def read_maintained(rows: pa.Table) -> pa.Table:
        epoch, found = rows["epoch"][0].as_py(), epoch_recount.maintained_results(rows)
        return pa.concat_tables(
            epoch_recount.result_table(RESULTS, epoch, what, a, b, value) for what, (a, b, value) in found.items()
        )

    return audited_rows.select_stored_rows(read, epochs).groupBy("epoch").applyInArrow(read_maintained, RESULTS)


def check_against_recomputation(
    warehouse: Warehouse, read: Callable[[str], DataFrame], epochs: list[int], **options: Any
) -> list[Check]:
    """Compare the maintained results with a full recomputation: one check per epoch and kind of result.

    `read` reads a table as a reader sees it; `options` are those of `audit.find_differences`.
    """
    return check_differences(*audit.find_differences(warehouse, read, epochs, say=lambda text: None, **options))
