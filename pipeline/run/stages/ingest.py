"""The stage `ingest`: it turns landed files into upserts and quarantine, as the difference to published batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Row
from pyspark.sql import functions as F

from ... import landing
from ...errors import RunFailed, Unavailable
from ...landing import predicate_validation, spark_reader
from ...state.records import LANDED_TABLES, Batch, RunKind, StagedBatch
from ...state.stage_results import IngestFacts, QuarantinedRow
from ..run_context import RunContext
from . import landed_relations, row_count_gate

ENDS = ("src", "dst")
SAMPLE = 20  # quarantined rows kept for the report


@dataclass(frozen=True)
class Accepted:
    """The batches that a run accepts, with their rows and digests by epoch, and the published batches."""

    batches: list[landing.BatchFiles]
    counts: dict[int, tuple[int, int]]  # number of good rows, and of quarantined rows
    digests: dict[int, str]
    published_batches: Mapping[int, Batch]


def accept_batches(run: RunContext) -> Accepted:
    """Judge the landed batches of the run's epochs. Raise the error of a wrong batch that the run may not leave out."""
    everything = landing.list_batches(run.home, set(run.epochs))
    batches = [everything.get(e) or landing.BatchFiles(e, run.home.schedule.format_label(e), ()) for e in run.epochs]
    batches = _without_wrong_batches(
        run,
        batches,
        {
            batch.epoch: Unavailable(
                f"epoch {batch.label} is not landed completely: {batch.incomplete}. Nothing was published.",
                "run the same command again",
            )
            for batch in batches
            if batch.incomplete and batch.all_files
        },
    )
    digests = landing.digest_batches(run.ledger, batches)
    run.say(f"reading {sum(len(batch.all_files) for batch in batches)} files of {len(batches)} epochs")
    conditions = predicate_validation.fallible_conditions(run.home)

    def count_failures(some: Sequence[landing.BatchFiles]) -> list[Row]:
        with predicate_validation.name_conditions(run.home):
            return predicate_validation.count_failures(
                spark_reader.read_good_rows(run.spark, run.home, some), conditions
            ).collect()

    judged = count_failures if conditions else None
    counts, wrong = spark_reader.count_rows(
        run.spark, run.home, batches, apart=bool(run.optional_epochs), count_failures=judged
    )
    batches = _without_wrong_batches(run, batches, wrong)
    published = run.published_batches if run.appends_to("upserts") else {}
    if run.kind is RunKind.RUN and not run.accept:
        good = {batch.epoch: counts[batch.epoch][0] for batch in batches if batch.epoch in counts}
        batches = _without_wrong_batches(
            run, batches, row_count_gate.find_unusual_batches(run.home, published, good, digests)
        )
    return Accepted(
        batches,
        {epoch: count for epoch, count in counts.items() if epoch in run.epochs},
        {epoch: digest for epoch, digest in digests.items() if epoch in run.epochs},
        published,
    )


def ingest(run: RunContext) -> IngestFacts:
    predicate_validation.require_conditions(run.spark, run.home)
    if not run.epochs and run.kind is RunKind.RUN:
        return _leave_landed_rows(run)
    if run.kind is RunKind.REBUILD and not run.epochs:
        same_filter = run.ledger.runs.get(run.parent.run_id).config.get("where") == run.home.config.edges.where
        stored = run.read_before("upserts"), run.read_before("quarantine")
        predicate_validation.require_decided(run.home, *stored, same_filter=same_filter)
        return _leave_landed_rows(run)
    accepted = accept_batches(run)
    batches, counts, digests, published = (
        accepted.batches,
        accepted.counts,
        accepted.digests,
        accepted.published_batches,
    )
    source = run.spark, run.home, batches
    landed, quarantined = (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0)
    again = [epoch for epoch in run.epochs if epoch in published]
    rows, malformed = spark_reader.read_good_rows(*source), spark_reader.read_bad_rows(*source)
    conditions = predicate_validation.fallible_conditions(run.home)
    if conditions and quarantined:
        malformed = malformed.unionByName(predicate_validation.quarantine_failures(rows, conditions))
        rows = predicate_validation.keep_decided(rows, conditions)
    try:
        relations = landed_relations.LandedRelations(run, batches)
        if run.home.config.vertices.ids == "string":
            always = F.lit(min(run.epochs)).cast("bigint").alias("epoch"), F.lit(1).cast("bigint").alias("diff")
            ids = relations.add_ids(spark_reader.list_ids(rows, ENDS))
            run.write_rows(
                "names", spark_reader.select_new_names(ids, run.read_before("names")).select("id", "name", *always)
            )
            rows = spark_reader.replace_names_by_ids(rows, run.read_after("names"), ENDS)
        else:
            run.write_rows("names", None)
        old_rows = run.read_before("upserts").where(F.col("epoch").isin(again)) if again else None
        old_bad = run.read_before("quarantine").where(F.col("epoch").isin(again)) if again else None
        changed_relations = relations.write(again)
        changed = run.write_rows("upserts", spark_reader.subtract_published(rows, old_rows))
        some = again or quarantined
        run.write_rows("quarantine", spark_reader.subtract_published(malformed, old_bad) if some else None)
    finally:  # a landing that changes may also be the reason of another error
        if not landing.is_unchanged(run.ledger, batches, digests):
            raise Unavailable(
                "the landing changed while it was read. Nothing was published.", "run the same command again"
            )
    run.ledger.outputs.put_batches(
        run.run_id,
        [
            StagedBatch(batch.epoch, digests[batch.epoch], len(batch.all_files), *counts.get(batch.epoch, (0, 0)))
            for batch in batches
        ],
    )
    sample = run.read_delta("quarantine").where("diff > 0").orderBy("epoch", "file", "line").limit(SAMPLE)
    shown = sample.select("epoch", "file", "line", "reason", "text").collect() if quarantined else []
    return IngestFacts(
        rows=landed,
        quarantined=quarantined,
        changed_rows=changed,
        replaced_epochs=len(again),
        rows_before=sum(published[epoch].rows for epoch in again) if again else None,
        quarantine_sample=[QuarantinedRow(**row.asDict()) for row in shown],
        relations=changed_relations,
    )


def _leave_landed_rows(run: RunContext) -> IngestFacts:
    """Leave the landed rows as they are, in a run that computes from what is stored."""
    for table in LANDED_TABLES:
        run.write_rows(table, None)
    landed_relations.leave_rows(run)
    run.ledger.outputs.put_batches(run.run_id, [])
    return IngestFacts(rows=0, quarantined=0, changed_rows=0, replaced_epochs=0, quarantine_sample=())


def _without_wrong_batches(
    run: RunContext, batches: list[landing.BatchFiles], wrong: Mapping[int, RunFailed]
) -> list[landing.BatchFiles]:
    """Return the batches without the wrong ones. Raise the error of a wrong one that may not be left out."""
    if wrong:
        run.exclude_epochs(wrong)
    return [batch for batch in batches if batch.epoch not in wrong]
