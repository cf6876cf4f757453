"""The landed rows of the declared relations: a part of the stage `ingest`, as the rows of the edges are.

The rows of a relation are the difference to those of the published batches, with file and line. What is in force of
them is computed by the stage `queries`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...errors import RunFailed
from ...home.queries import QueryDefinition
from ...landing import BatchFiles, spark_reader
from ..run_context import RunContext


class LandedRelations:
    """The rows of the declared relations in the landed batches of a run."""

    def __init__(self, run: RunContext, batches: Sequence[BatchFiles]) -> None:
        self.run = run
        self.rows = {
            relation.name: spark_reader.read_relation_rows(run.spark, run.home, batches, relation.name)
            for relation in _list_relations(run)
            if any(batch.files_of(relation.name) for batch in batches)
        }

    def add_ids(self, ids: DataFrame) -> DataFrame:
        """Add the string ids of the relations' vertices to those of the edges, in a column `name`."""
        for relation in _list_relations(self.run):
            if relation.vertices and relation.name in self.rows:
                ids = ids.unionByName(spark_reader.list_ids(self.rows[relation.name], relation.vertices))
        return ids

    def write(self, again: Sequence[int]) -> dict[str, int]:
        """Write the changes of all relations, and return the numbers of changed rows; `again` are the epochs whose
        batches are replaced.
        """
        return {relation.name: self._write_relation(relation, again) for relation in _list_relations(self.run)}

    def _write_relation(self, relation: QueryDefinition, again: Sequence[int]) -> int:
        run, table = self.run, relation.state_table
        old = run.read_before(table).where(F.col("epoch").isin(*again)) if again and run.appends_to(table) else None
        rows = self.rows.get(relation.name)
        if rows is None:
            if old is None:
                return run.write_rows(table, None)
            rows = run.warehouse.empty_rows(table).drop("revision", "diff")
        elif relation.vertices:
            rows = spark_reader.replace_names_by_ids(rows, run.read_after("names"), relation.vertices)
        return run.write_rows(table, spark_reader.subtract_published(rows, old))


def leave_rows(run: RunContext) -> None:
    """Leave the landed rows as they are, in a run that computes from what is stored.

    Raises:
        RunFailed: A relation has other columns than its stored rows, which the landing has to give again.
    """
    for relation in _list_relations(run):
        if not run.appends_to(relation.state_table) and relation.state_table in run.parent.snapshots:
            raise RunFailed(
                f"[relations] {relation.name} has other columns than the stored rows. Nothing was published.",
                "altneu rebuild --from-landing",
            )
        run.write_rows(relation.state_table, None)


def _list_relations(run: RunContext) -> list[QueryDefinition]:
    return [each for each in run.maintained_queries.values() if each.has_landed]
