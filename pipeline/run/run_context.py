"""The context of a stage: the run, the state that it builds on, and the branches into which it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from altneu.algorithms.algebra import horizon

from ..errors import AltneuError, ForeignWrite
from ..home.home import Home
from ..home.queries import QueryDefinition, recorded_queries
from ..reading.engine_protocol import Tables
from ..state.fingerprint_sums import Prints
from ..state.ledger import Ledger
from ..state.records import SERVING_TABLES, Batch, Revision, RunKind
from ..state.stage_results import KINDS, EdgesFacts, Facts, IngestFacts
from ..state.totals import TotalDiff
from ..storage import graph_cache
from ..storage.file_tiers import MERGED_ROWS
from ..storage.horizons import Horizon, next_horizon, split_at_horizon
from ..storage.session import PARTITIONS
from ..storage.table_schemas import INTERVALS
from ..storage.warehouse import Warehouse, visible_rows
from . import query_changes
from .choices import learned_costs
from .choices.plan_choice import Number, PlanChoice, Scope
from .read_rows import TABLES as READ
from .read_rows import run_horizon, sum_read_rows

Say = Callable[[str], None]
D = TypeVar("D", bound=PlanChoice)
R = TypeVar("R", bound=Facts)


@dataclass
class RunContext:
    """One run: the revision that it builds on, the epochs whose batches it replaces, and the tables that it writes."""

    ledger: Ledger
    spark: SparkSession
    run_id: str
    parent: Revision
    epochs: list[int]
    say: Say = lambda text: None
    kind: RunKind = RunKind.RUN
    optional_epochs: Collection[int] = ()  # epochs that may be left out where their own batches are wrong
    accept: bool = False  # whether the gate accepts any number of rows
    reads: Collection[type[Facts]] = tuple(KINDS.values())  # the results that the running stage has declared to read
    new_snapshots: dict[str, int] = field(default_factory=dict)  # those that the running stage has written, by table

    @property
    def home(self) -> Home:
        return self.ledger.home

    @property
    def revision(self) -> int:
        return self.parent.revision + 1

    @property
    def scope(self) -> Scope:
        return Scope(self.parent, tuple(self.epochs), self.kind, self._rewritten_tables)

    @cached_property
    def maintained_queries(self) -> dict[str, QueryDefinition]:
        """Return the queries that the run maintains, as it has recorded them when it began."""
        return recorded_queries(self.ledger.runs.get(self.run_id).config)

    @cached_property
    def _rewritten_tables(self) -> frozenset[str]:
        return (
            query_changes.find_rewritten_tables(self.maintained_queries, self.ledger, self.parent)
            if self.maintained_queries
            else frozenset()
        )

    @property
    def frontier(self) -> int:
        """Return the greatest epoch whose state is final once this run is published."""
        frontier = self.scope.frontier
        assert frontier is not None
        return frontier

    def exclude_epochs(self, wrong: Mapping[int, AltneuError]) -> None:
        """Leave out epochs whose own batches are wrong, as if they had not landed.

        Where an epoch is wrong that may not be left out, restrict the run to the epochs that may not be left out, and
        raise the error of the first wrong one.
        """
        kept = [epoch for epoch in self.epochs if epoch not in wrong]
        required = [epoch for epoch in self.epochs if epoch not in self.optional_epochs]
        must = [epoch for epoch in required if epoch in wrong] or ([] if kept else sorted(wrong))
        if must:
            if self.optional_epochs and required:
                self.ledger.runs.restrict_to_epochs(self.run_id, required)
            raise wrong[must[0]]
        self.ledger.runs.restrict_to_epochs(self.run_id, kept, {epoch: error.what for epoch, error in wrong.items()})
        self.epochs[:] = kept
        for epoch, error in sorted(wrong.items()):
            self.say(
                f"epoch {self.home.schedule.format_label(epoch)} is left out, as if it had not landed: {error.what}"
            )

    def get_result(self, kind: type[R]) -> R:
        """Return the result of a finished stage of the run, which the running stage has declared (`Stage.reads`)."""
        assert kind in self.reads, f"the running stage does not declare that it reads {kind.__name__}"
        return self.ledger.stages.get_facts(self.run_id, kind)

    def choose(self, kind: type[D]) -> D:
        """Make a plan choice from what the finished stages have counted."""
        decision = kind.choose(self.scope, self.home.config, ActualCounts(self))
        assert decision is not None
        return decision

    @cached_property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.spark, self.home, self.maintained_queries)

    @cached_property
    def scanning_tables(self) -> Tables[Any]:
        """Return the tables for queries over all rows of a history with few results: in this process if possible.

        DuckDB reads a million rows in less time than Spark takes to plan the query.
        """
        from ..storage.duckdb_tables import DuckTables, are_files_local

        return DuckTables(self.home) if are_files_local(self.home) else self.warehouse

    def appends_to(self, table: str) -> bool:
        """Tell whether the run adds rows to a table instead of writing it again."""
        return self.scope.appends_to(table)

    def extends_published(self, table: str) -> bool:
        """Tell whether the run adds rows to what its parent has published of a table."""
        return self.appends_to(table) and self.parent.frontier is not None

    @cached_property
    def recorded_snapshots(self) -> dict[str, int]:
        """Return the snapshot of each table that its stage has written."""
        return self.ledger.stages.recorded_snapshots(self.run_id)

    def base_snapshot(self, table: str) -> int:
        return (
            self.warehouse.base_snapshot(table, self.parent)
            if self.appends_to(table)
            else self.warehouse.first_snapshot(table)
        )

    def read_before(self, table: str) -> DataFrame:
        """Read the rows of a table that the run builds on."""
        return (
            self.warehouse.read_table(table, self.parent)
            if self.appends_to(table)
            else self.warehouse.empty_rows(table)
        )

    def read_before_since(self, table: str) -> DataFrame:
        """Read the rows of a table that the run builds on, as they are from just before its first epoch on."""
        return self._cut_to_horizon(table, self.read_before(table))

    def read_after_since(self, table: str) -> DataFrame:
        """Read the rows that a reader will see, as they are from just before the first epoch of the run on."""
        return self._cut_to_horizon(table, self.read_after(table))

    def _cut_to_horizon(self, table: str, rows: DataFrame) -> DataFrame:
        if not self.appends_to(table):
            return rows
        first = self.scope.first_changed_epoch
        if table == "upserts":
            return horizon.upserts_since(rows, first, self.home.config.edges.live_for)
        if table in INTERVALS:
            return horizon.intervals_since(rows, first)
        key = [column for column in self.warehouse.column_names(table) if column not in ("epoch", "revision", "diff")]
        return horizon.sum_triples_since(rows, key, first)

    def read_delta(self, table: str) -> DataFrame:
        """Read the rows of a table that the run has written."""
        if self.verified_snapshot(table) == self.base_snapshot(table):
            return self.warehouse.empty_rows(table)
        return self.read_after(table).where(f"revision = {self.revision}")

    def read_after(self, table: str) -> DataFrame:
        """Read the rows of a table that a reader will see once the run is published."""
        rows = self.warehouse.read_snapshot(table, self.verified_snapshot(table))
        return rows if table in SERVING_TABLES else visible_rows(rows, self.parent)

    def verified_snapshot(self, table: str) -> int:
        """Return the snapshot of a table on the branch of the run, the same one to the end of the running stage.

        Raises:
            ForeignWrite: It is not the snapshot that the stage of the run has recorded.
        """
        if table not in self._verified_snapshots:
            self._verified_snapshots[table] = self._verify_snapshot(table)
        return self._verified_snapshots[table]

    @cached_property
    def _verified_snapshots(self) -> dict[str, int]:
        """Return the snapshots that the running stage has verified or written."""
        return {}

    def _verify_snapshot(self, table: str) -> int:
        head = self.warehouse.branch_snapshot(table, self.run_id, self.base_snapshot(table))
        if self.recorded_snapshots.get(table, head) != head:
            raise ForeignWrite(
                f"table {table} of run {self.run_id} is not as its stage has written it: another process, which was "
                "considered dead, has written to it since. Nothing of this run is published.",
                "run the same epochs again; in Airflow clear the run from ingest on",
            )
        return head

    def unpublished_revision(self) -> Revision:
        """Return the revision that the run would be if it were published now."""
        pins = {table: self.verified_snapshot(table) for table in self.warehouse.tables}
        return replace(self.parent, revision=self.revision, snapshots=pins)

    def horizon(self, table: str) -> Horizon | None:
        """Return the horizon from which on the run reads a table, or None where it reads all of its rows."""
        return run_horizon(self.ledger, self.scope, table)

    def count_read_rows(self) -> int:
        """Count about how many rows the stages after ingest read: those in files that its horizons do not skip.

        All choices by a number of rows use this one: how Spark plans, which engine audits, and whether a stage first
        selects what it needs.
        """
        pins = self.unpublished_revision().snapshots
        return sum_read_rows(self.ledger, self.scope, self.warehouse, pins)

    def count_stored_rows(self) -> int:
        """Count the rows of the same tables, whether or not the run reads them."""
        return sum(self.warehouse.snapshot_size(table, self.verified_snapshot(table)).rows for table in READ)

    def write_rows(self, table: str, frame: DataFrame | None) -> int:
        """Write the run's rows of a table, and return their number."""
        stamped = None if frame is None else frame.withColumn("revision", F.expr(f"{self.revision}L"))
        horizon = self._next_horizon(table)
        if stamped is not None and horizon is not None and len(self.epochs) != 1:  # much of it may have ended by now
            partitions = int(self.spark.conf.get(PARTITIONS) or 1)
            stamped = split_at_horizon(stamped, horizon, max(1, partitions // 2))
        return self.put_rows(table, stamped)

    def _next_horizon(self, table: str) -> Horizon | None:
        return next_horizon(table, self.frontier, self.home.config.edges.live_for)

    def put_rows(self, table: str, rows: Any | None) -> int:
        self.ledger.runs.renew_lease(self.run_id)  # a process that has lost the lease must not write to the branches
        base, horizon = self.base_snapshot(table), self._next_horizon(table)
        head = self.warehouse.write_to_branch(table, self.run_id, base, rows, self.parent.revision, horizon)
        self._record_snapshot(table, head)
        if head == base:
            return 0
        if merged := self.warehouse.count_merged_files(table, head):
            self.say(f"{table}: {merged} small files became one with the rows of this run")
        elif horizon is not None and not self.warehouse.lists_tiers(table, base):
            self._report_mixed_rows(table, self.warehouse.count_unskippable_rows(table, base))
        return self.warehouse.count_added_rows(table, head)

    def _report_mixed_rows(self, table: str, rows: int) -> None:
        """Say of a table that an earlier version has written and that is too large to be merged what makes it quick."""
        if rows > MERGED_ROWS:
            self.say(
                f"{table}: runs read all of the {rows:,} rows that were written before; "
                "after altneu compact they skip those that have ended"
            )

    def replace_rows(self, table: str, gone: Any | None, come: Any | None) -> None:
        """Write the changes of a serving table: remove the rows with a key in `gone`, and add the rows `come`."""
        self.ledger.runs.renew_lease(self.run_id)
        head = self.warehouse.replace_on_branch(table, self.run_id, self.base_snapshot(table), gone, come)
        self._record_snapshot(table, head)

    def _record_snapshot(self, table: str, head: int) -> None:
        """Note what the running stage has written: it goes on from there."""
        self.recorded_snapshots[table] = self.new_snapshots[table] = self._verified_snapshots[table] = head

    @cached_property
    def published_batches(self) -> Mapping[int, Batch]:
        """Return the batches that the run builds on: epoch → batch."""
        return self.ledger.outputs.published_batches(self.parent.revision)

    @cached_property
    def known_fingerprints(self) -> Prints:
        """Return the fingerprints of the tables that the run builds on, by epoch."""
        return self.ledger.outputs.fingerprints_of(self.parent.revision) if self.parent.revision else {}

    @cached_property
    def fingerprinted_tables(self) -> set[str]:
        """Return the tables that the run builds on and whose fingerprints are known."""
        return self.ledger.outputs.known_tables(self.parent.revision) if self.parent.revision else set()

    def known_fingerprints_since(self, first: int) -> Prints:
        """Return the fingerprints of the tables that the run builds on, with the sum of those before epoch `first` at
        `first` - 1."""
        return self.ledger.outputs.fingerprints_since(self.parent.revision, first) if self.parent.revision else {}

    def landed_epochs(self) -> set[int]:
        """Return the epochs that have a batch once this run is published."""
        staged = {batch.epoch: bool(batch.digest) for batch in self.ledger.outputs.staged_batches(self.run_id)}
        known = {*self.published_batches, *staged}
        return {epoch for epoch in known if staged.get(epoch, True)}

    def total_diffs(self, first: int | None = None) -> list[TotalDiff]:
        """Return the total diffs that would be read if the run were published now.

        With `first` they give the totals from epoch `first` - 1 on.
        """
        outputs = self.ledger.outputs
        return outputs.total_diffs(self.parent.revision, first) + outputs.staged_totals(self.run_id, self.revision)

    def put_totals(self, measures: list[str], rows: list[tuple[str, int, int, int]]) -> None:
        """Store the totals of what the run has written, as the difference to the parent's.

        What a rebuild finds before `since` is not history but what is in force at `since`, so that the totals before
        it do not change.

        Args:
            measures: The measures that the rows are about.
            rows: Total diffs `(measure, k, epoch, diff)`.
        """
        if self.appends_to("edges"):
            self.ledger.outputs.put_totals(self.run_id, measures, rows)
            return
        since = self.parent.since if self.appends_to("upserts") else None
        sums: Counter[tuple[str, int, int]] = Counter()
        for measure, k, epoch, diff in rows:
            sums[measure, k, epoch if since is None else max(epoch, since)] += diff
        for measure, k, epoch, _, diff in self.ledger.outputs.total_diffs(self.parent.revision):
            if measure in measures:
                sums[measure, k, epoch if since is None else max(epoch, since)] -= diff
        self.ledger.outputs.put_totals(self.run_id, measures, [(*key, diff) for key, diff in sums.items()])


@dataclass(frozen=True)
class ActualCounts:
    """The numbers for the plan choices, as the finished stages have counted them."""

    run: RunContext

    def changed_upserts(self) -> Number:
        if self.run.appends_to("edges"):
            return Number.exact(self.run.get_result(IngestFacts).changed_rows)
        return Number.exact(self.run.warehouse.snapshot_size("upserts", self.run.verified_snapshot("upserts")).rows)

    def stored_rows(self, table: str) -> int:
        return self.run.warehouse.snapshot_size(table, self.run.base_snapshot(table)).rows

    def edges_since(self) -> int:
        run, most = self.run, self.stored_rows("edges")
        return most and run.ledger.outputs.estimate_edges_since(
            run.parent.revision, run.scope.first_changed_epoch, most
        )

    def changed_rows(self, table: str) -> Number:
        facts = self.run.get_result(EdgesFacts)
        return Number.exact(facts.rows if table == "edges" else facts.motif_edges or 0)

    def first_change(self) -> int | None:
        return self.run.get_result(EdgesFacts).first_epoch

    def proposal_count(self) -> int | None:
        return None

    def cost_corrections(self) -> Mapping[str, float]:
        return learned_costs.triangle_corrections(self.run.ledger)

    def has_graph_cache(self) -> bool:
        return graph_cache.cached_graph_key(self.run.ledger, self.run.parent) is not None

    def has_checkpoint(self) -> bool:
        return graph_cache.saved_checkpoint(self.run.ledger, self.run.parent) is not None

    def published_epochs(self) -> Collection[int]:
        return self.run.published_batches
