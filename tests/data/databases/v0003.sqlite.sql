CREATE TABLE runs (
    run_id VARCHAR(64) NOT NULL,
    parent BIGINT NOT NULL,
    epochs JSON NOT NULL,
    state VARCHAR(16) NOT NULL,
    error TEXT,
    config JSON NOT NULL,
    started_at VARCHAR(32) NOT NULL,
    finished_at VARCHAR(32),
    kind VARCHAR(16),
    beat_at VARCHAR(32),
    base JSON,
    discarded BOOLEAN,
    PRIMARY KEY (run_id)
);

CREATE TABLE batches (
    run_id VARCHAR(64) NOT NULL,
    epoch BIGINT NOT NULL,
    digest VARCHAR(64) NOT NULL,
    files INTEGER NOT NULL,
    rows BIGINT NOT NULL,
    bad_rows BIGINT NOT NULL,
    PRIMARY KEY (run_id, epoch)
);

CREATE TABLE totals (
    run_id VARCHAR(64) NOT NULL,
    measure VARCHAR(16) NOT NULL,
    k BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    diff BIGINT NOT NULL,
    PRIMARY KEY (run_id, measure, k, epoch)
);

CREATE TABLE stages (
    run_id VARCHAR(64) NOT NULL,
    stage VARCHAR(16) NOT NULL,
    state VARCHAR(16) NOT NULL,
    started_at VARCHAR(32) NOT NULL,
    seconds FLOAT,
    facts JSON NOT NULL,
    PRIMARY KEY (run_id, stage)
);

CREATE TABLE checks (
    id INTEGER NOT NULL,
    run_id VARCHAR(64),
    revision BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    suite VARCHAR(64) NOT NULL,
    name VARCHAR(128) NOT NULL,
    severity VARCHAR(16) NOT NULL,
    passed BOOLEAN NOT NULL,
    meaning TEXT NOT NULL,
    remedy TEXT NOT NULL,
    observed TEXT NOT NULL,
    rows JSON NOT NULL,
    at VARCHAR(32) NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX ix_checks_epoch ON checks (epoch);

CREATE INDEX ix_checks_run_id ON checks (run_id);

CREATE TABLE digests (
    path VARCHAR(1024) NOT NULL,
    stamp VARCHAR(128) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    PRIMARY KEY (path)
);

CREATE TABLE ledger (
    revision BIGINT NOT NULL,
    parent BIGINT NOT NULL,
    run_id VARCHAR(64) NOT NULL,
    frontier BIGINT NOT NULL,
    snapshots JSON NOT NULL,
    config_digest VARCHAR(16) NOT NULL,
    mark VARCHAR(16),
    published_at VARCHAR(32) NOT NULL,
    since BIGINT,
    PRIMARY KEY (revision),
    UNIQUE (run_id),
    FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
