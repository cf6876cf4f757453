"""The tables of a home's database: the ledger, and the other small state beside it.

What a run writes has its `run_id`, and exists for readers from the moment on at which the ledger has a row of that run.
`totals` is a collection like every other: diff triples `((measure, k), (epoch, revision), diff)`. Measures: `edges`,
`vertices`, `triangles`, `wedges`, `truss` (how many edges have trussness k) and `motif` (how often the k-th occurs).

What is changed here needs a script in `migrations/versions/`, for the databases that there are.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("parent", sa.BigInteger, nullable=False),  # the revision it builds on; 0 = the empty state
    sa.Column("epochs", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # running, published, done (compact), and:
    # failed; interrupted (a signal, a timeout); superseded (another run has published on its parent);
    # held (computed and checked; a person decides); rejected (a person has decided, or nobody in time)
    sa.Column("error", sa.Text),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
    sa.Column("kind", sa.String(16)),  # run (null: of before there were kinds), rebuild, reload, rollback, compact
    sa.Column("beat_at", sa.String(32)),  # the last heartbeat of the process that works on it
    # what its parent's ledger row said when it began, {"since", "snapshots"}: a compaction meanwhile changes that row
    sa.Column("base", sa.JSON),
    sa.Column("owner", sa.String(128)),  # the process that holds the lease, see `lease`; null: none
    sa.Column("discarded", sa.Boolean),  # it has no branches any more: it is published, or cannot be taken up again
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False, unique=True),
    sa.Column("frontier", sa.BigInteger, nullable=False),
    # table -> Iceberg snapshot id, as text (64 bits do not fit JSON); empty: a compaction has expired the revision
    sa.Column("snapshots", sa.JSON, nullable=False),
    sa.Column("config_digest", sa.String(16), nullable=False),
    sa.Column("mark", sa.String(16)),  # 'warning' when a check warned
    sa.Column("published_at", sa.String(32), nullable=False),
    sa.Column("hidden", sa.JSON),  # ranges of revisions, taken back by rollbacks, whose rows its snapshots may hold
    sa.Column("since", sa.BigInteger),  # the tables answer from this epoch on; null: from the first one
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),  # of the landed content; "": a rollback took the batch back
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bad_rows", sa.BigInteger, nullable=False),
)

totals = sa.Table(
    "totals",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("measure", sa.String(16), primary_key=True),
    sa.Column("k", sa.BigInteger, primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("diff", sa.BigInteger, nullable=False),
)

fingerprints = sa.Table(  # of the big tables, by epoch: what a run changes of each, see `algorithms.fingerprint`
    "fingerprints",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("collection", sa.String(32), primary_key=True),  # a table's name; of intervals: their steps
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("fingerprint", sa.String(32), nullable=False),
)

proofs = sa.Table(  # what a run's truss stage proves of every epoch that it replays, see `algorithms.proof_records`
    "proofs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("proof", sa.Text, nullable=False),
)

approvals = sa.Table(  # what people have said of runs that wait for them, see `approvals`
    "approvals",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("verdict", sa.String(16), nullable=False),  # wanted (the run was begun to be held), approved, rejected
    sa.Column("person", sa.String(256)),  # who; null: nobody said
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
    sa.Column("facts", sa.JSON, nullable=False),  # rows, plans, snapshot ids: what the stage has to say
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
    sa.Index("ix_checks_suite_name", "suite", "name"),  # the history of one
)

notes = sa.Table(  # what people have said of incidents, which themselves are a rule over `checks`, see `incidents`
    "notes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("suite", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("opened", sa.String(64), nullable=False),  # the run that opened the incident, or when an audit did
    sa.Column("by", sa.String(128)),
    sa.Column("because", sa.Text),
    sa.Column("until", sa.String(32)),  # nothing more is said until then; null: an acknowledgement
    sa.Column("at", sa.String(32), nullable=False),
)

alerts = sa.Table(  # what was sent of incidents and other problems, and to whom, see `alerts`
    "alerts",
    metadata,
    sa.Column("suite", sa.String(64), primary_key=True),  # with `name` and `opened`: which problem, as in `notes`
    sa.Column("name", sa.String(256), primary_key=True),
    sa.Column("opened", sa.String(256), primary_key=True),
    sa.Column("channel", sa.String(128), primary_key=True),  # to whom, without passwords
    sa.Column("said", sa.String(16), primary_key=True),  # opened, closed
    sa.Column("epoch", sa.BigInteger),  # whose publication ends it; null: of an incident, of no epoch
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("claimed_at", sa.String(32), nullable=False),  # when a process began to send it
    sa.Column("sent_at", sa.String(32)),  # null: it was not received yet
)

told = sa.Table(  # how far the followers of an asset were told what is published, see `told`
    "told",
    metadata,
    sa.Column("asset", sa.String(256), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),  # all up to it
    sa.Column("claimed", sa.BigInteger),  # what is being told: up to it; null: nothing is
    sa.Column("teller", sa.Text),  # the task that does
)

digests = sa.Table(  # of landed files, so that an unchanged file is read once
    "digests",
    metadata,
    sa.Column("path", sa.String(1024), primary_key=True),
    sa.Column("stamp", sa.String(128), nullable=False),  # size, mtime, inode
    sa.Column("digest", sa.String(64), nullable=False),
)

homes = sa.Table(  # the identity of the home, see `place`
    "home",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # 1: a database has one home
    sa.Column("catalog", sa.String(64), nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("warehouse", sa.Text, nullable=False),  # of which the tables' metadata speak
    sa.Column("database", sa.Text, nullable=False),  # where this database was then; "": nobody knows
    sa.Column("made_at", sa.String(32), nullable=False),
)

version = sa.Table(  # which of the scripts of `migrations/` these tables come from, see `versions`; Alembic's form
    "altneu_version",
    metadata,
    sa.Column("version_num", sa.String(32), primary_key=True),
)

NOTHING = -(2**63)  # the frontier of a revision that is the empty state again
