"""The tables of a home's database: the ledger and the other small state of a home.

Rows that a run writes have its `run_id`, and exist for readers as soon as the ledger has a row of that run. `totals` is
a collection like every other: diff triples `((measure, k), (epoch, revision), diff)`. Its measures are `edges`,
`vertices`, `triangles`, `wedges`, `truss` (the number of edges of trussness k) and `motif` (the number of occurrences
of the k-th motif).

A change of these tables needs a script in `migrations/versions/` for existing databases.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("parent", sa.BigInteger, nullable=False),  # the revision on which the run builds; 0: the empty state
    sa.Column("epochs", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # running, published, done (compact), and:
    # failed; interrupted (by a signal or a timeout); superseded (another run has published on its parent);
    # held (computed and checked; it waits for an approval); rejected (by a person, or because it was held too long)
    sa.Column("error", sa.Text),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
    # run (or null, in rows from before there were kinds), rebuild, reload, rollback, compact
    sa.Column("kind", sa.String(16)),
    sa.Column("beat_at", sa.String(32)),  # the last heartbeat of the process that works on the run
    # values of its parent's ledger row when it began, {"since", "snapshots"}: a later compaction changes that row
    sa.Column("base", sa.JSON),
    sa.Column("owner", sa.String(128)),  # the process that holds the lease, see `lease`; null: none
    sa.Column("discarded", sa.Boolean),  # the run has no branches any more: it is published, or cannot be continued
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False, unique=True),
    sa.Column("frontier", sa.BigInteger, nullable=False),
    # table → Iceberg snapshot id, as text (64 bits do not fit JSON); empty: a compaction has expired the revision
    sa.Column("snapshots", sa.JSON, nullable=False),
    sa.Column("config_digest", sa.String(16), nullable=False),
    sa.Column("mark", sa.String(16)),  # 'warning': a check warned
    sa.Column("published_at", sa.String(32), nullable=False),
    # ranges of revisions that rollbacks have taken back, and whose rows the snapshots may contain
    sa.Column("hidden", sa.JSON),
    sa.Column("since", sa.BigInteger),  # the tables answer from this epoch on; null: from the first one
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    # the digest of the landed content; "": a rollback took the batch back
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bad_rows", sa.BigInteger, nullable=False),
    sa.Index("ix_batches_epoch", "epoch"),
)

totals = sa.Table(
    "totals",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("measure", sa.String(16), primary_key=True),
    sa.Column("k", sa.BigInteger, primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("diff", sa.BigInteger, nullable=False),
    sa.Index("ix_totals_epoch", "epoch"),
)

fingerprints = sa.Table(  # of what a run changes in each Iceberg table, by epoch, see `altneu.algorithms.fingerprint`
    "fingerprints",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    # the name of a table; rows of intervals count as their two diff triples
    sa.Column("collection", sa.String(32), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("fingerprint", sa.String(32), nullable=False),
)

proofs = (
    sa.Table(  # what a run's truss stage proves at each replayed epoch, see `altneu.algorithms.graph.proof_records`
        "proofs",
        metadata,
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("proof", sa.Text, nullable=False),
    )
)

approvals = sa.Table(  # the decisions of people about held runs, see `approvals`
    "approvals",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("verdict", sa.String(16), nullable=False),  # wanted (the run will be held), approved, rejected
    sa.Column("person", sa.String(256)),  # who has decided; null: unknown
    sa.Column("because", sa.Text),
    sa.Column("at", sa.String(32), nullable=False),
)

stages = sa.Table(
    "stages",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),  # running, failed, done
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("seconds", sa.Float),
    sa.Column("facts", sa.JSON, nullable=False),  # the result of the stage: rows, plans, snapshot ids
)

checks = sa.Table(
    "checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.String(64), index=True),  # null: an audit outside a run
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, index=True),
    sa.Column("suite", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("severity", sa.String(16), nullable=False),  # critical, warning, info
    sa.Column("passed", sa.Boolean, nullable=False),
    sa.Column("meaning", sa.Text, nullable=False),
    sa.Column("remedy", sa.Text, nullable=False),
    sa.Column("observed", sa.Text, nullable=False),
    sa.Column("rows", sa.JSON, nullable=False),  # the first offending rows
    sa.Column("at", sa.String(32), nullable=False),
    sa.Index("ix_checks_suite_name", "suite", "name"),  # for the history of one check
    # all that the status of an epoch needs of its audits and proofs: the rows themselves are long
    sa.Index("ix_checks_audits", "suite", "epoch", "at", "passed", "revision", "run_id"),
    # what has failed is little of a long history; `_limit_failed_index` has the same for PostgreSQL
    sa.Index("ix_checks_failed", "id", sqlite_where=sa.text("passed = 0")),
)


@sa.event.listens_for(checks, "before_create")
def _limit_failed_index(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    """Limit the index of failed checks where its table is made in PostgreSQL.

    Stated with the index, the condition would import that dialect into every process, which takes a tenth of a second.
    """
    if connection.dialect.name == "postgresql":
        index = next(each for each in table.indexes if each.name == "ix_checks_failed")
        index.dialect_options["postgresql"]["where"] = sa.text("NOT passed")


notes = sa.Table(  # notes of people about incidents, which are themselves derived from `checks`, see `incidents`
    "notes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("suite", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    # the run that opened the incident, or the time at which an audit did
    sa.Column("opened", sa.String(64), nullable=False),
    sa.Column("by", sa.String(128)),
    sa.Column("because", sa.Text),
    sa.Column("until", sa.String(32)),  # the incident is muted until then; null: an acknowledgement
    sa.Column("at", sa.String(32), nullable=False),
)

alerts = sa.Table(  # the messages that were sent about incidents and other problems, see `alert_log`
    "alerts",
    metadata,
    # with `name` and `opened` the key of the problem, as in `notes`
    sa.Column("suite", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(256), primary_key=True),
    sa.Column("opened", sa.String(256), primary_key=True),
    sa.Column("channel", sa.String(128), primary_key=True),  # where the message was sent, without passwords
    sa.Column("said", sa.String(16), primary_key=True),  # opened, closed
    # the epoch whose publication ends the problem; null: the problem is an incident, or has no epoch
    sa.Column("epoch", sa.BigInteger),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("claimed_at", sa.String(32), nullable=False),  # when a process began to send the message
    sa.Column("sent_at", sa.String(32)),  # null: the message was not received yet
)

delivery_cursors = sa.Table(  # how far events were delivered, or consumers have processed, see `delivery_cursors`
    "delivery_cursors",
    metadata,
    # the URI of an asset, or the name of a partition of a consumer
    sa.Column("asset", sa.String(256), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),  # all up to this revision is delivered
    sa.Column("claimed", sa.BigInteger),  # a task delivers what follows, up to this revision; null: no task does
    sa.Column("claimed_by", sa.Text),  # that task
)

digests = sa.Table(  # the digests of landed files, and of the batches in folders, so that each is read only once
    "digests",
    metadata,
    sa.Column("path", sa.String(1024), primary_key=True),
    sa.Column("stamp", sa.String(128), nullable=False),  # size (of a file), mtime, ctime, inode
    sa.Column("digest", sa.String(64), nullable=False),
)

homes = sa.Table(  # the identity of the home, see `home_identity`
    "home",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # 1: a database has one home
    sa.Column("catalog", sa.String(64), nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("warehouse", sa.Text, nullable=False),  # the place that the tables' metadata name
    sa.Column("database", sa.Text, nullable=False),  # where this database was when the tables were made; "": unknown
    sa.Column("made_at", sa.String(32), nullable=False),
)

version = sa.Table(  # the migration script of the newest change, in Alembic's form, see `versions`
    "altneu_version",
    metadata,
    sa.Column("version_num", sa.String(32), primary_key=True),
)

NOTHING = -(2**63)  # stands for the frontier of a revision that is the empty state again
