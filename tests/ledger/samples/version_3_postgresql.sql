CREATE TABLE base (
    base_key SERIAL NOT NULL,
    account TEXT NOT NULL,
    service_id BIGINT,
    name TEXT,
    PRIMARY KEY (base_key),
    CONSTRAINT base_is_named CHECK (service_id IS NOT NULL OR name IS NOT NULL),
    CONSTRAINT one_line_a_base UNIQUE (account, service_id)
);
INSERT INTO base (base_key, account, service_id, name) VALUES (1, 'account', 7, 'News');
INSERT INTO base (base_key, account, service_id, name) VALUES (2, 'account', NULL, 'Shop');
CREATE TABLE meta (
    name VARCHAR(40) NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);
INSERT INTO meta (name, value) VALUES ('identity_rule', '1');
INSERT INTO meta (name, value) VALUES ('schema_version', '3');
CREATE TABLE run (
    run_key SERIAL NOT NULL,
    run_id VARCHAR(40) NOT NULL,
    job TEXT NOT NULL,
    command TEXT NOT NULL,
    started_at FLOAT NOT NULL,
    finished_at FLOAT,
    status VARCHAR(10),
    suppressed_by TEXT,
    is_holding BOOLEAN,
    PRIMARY KEY (run_key),
    UNIQUE (run_id)
);
INSERT INTO run (run_key, run_id, job, command, started_at, finished_at, status, suppressed_by, is_holding) VALUES (1, 'run-old', 'crm-nightly', 'sync', 1763000000.25, 1763000060.5, 'partial', NULL, FALSE);
INSERT INTO run (run_key, run_id, job, command, started_at, finished_at, status, suppressed_by, is_holding) VALUES (2, 'run-died', 'crm-nightly', 'sync', 1763086400.0, NULL, NULL, 'crm-nightly', TRUE);
CREATE TABLE entry (
    base_key INTEGER NOT NULL,
    identity BYTEA NOT NULL,
    identity_field SMALLINT NOT NULL,
    state SMALLINT NOT NULL,
    how SMALLINT,
    subscriber_id BIGINT,
    fingerprint BYTEA,
    body BYTEA,
    status SMALLINT,
    message TEXT,
    attempts SMALLINT DEFAULT '0' NOT NULL,
    run_key INTEGER,
    PRIMARY KEY (base_key, identity),
    CONSTRAINT identity_is_whole CHECK (length(identity) = 16),
    CONSTRAINT state_is_known CHECK (state BETWEEN 1 AND 5),
    CONSTRAINT confirmed_means_an_id CHECK ((state = 4) = (subscriber_id IS NOT NULL)),
    CONSTRAINT a_body_until_final CHECK (state NOT IN (1, 2, 3) OR body IS NOT NULL),
    CONSTRAINT no_body_once_confirmed CHECK (state <> 4 OR body IS NULL),
    CONSTRAINT rejected_means_a_status CHECK ((state = 5) = (status IS NOT NULL)),
    CONSTRAINT confirmed_says_how CHECK ((state = 4) = (how IS NOT NULL)),
    FOREIGN KEY(base_key) REFERENCES base (base_key),
    FOREIGN KEY(run_key) REFERENCES run (run_key)
);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x01010101010101010101010101010101', 1, 4, 1, 101, '\x0101010101010101', NULL, NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x02020202020202020202020202020202', 1, 4, 1, 102, '\x0202020202020202', NULL, NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x03030303030303030303030303030303', 1, 2, NULL, NULL, '\x0303030303030303', '\x7b2253756273637269626572223a7b22456d61696c223a22706572736f6e33406578616d706c652e636f6d227d7d', NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x04040404040404040404040404040404', 1, 4, 2, 104, '\x0404040404040404', NULL, NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x05050505050505050505050505050505', 1, 3, NULL, NULL, '\x0505050505050505', '\x7b2253756273637269626572223a7b22456d61696c223a22706572736f6e35406578616d706c652e636f6d227d7d', NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x06060606060606060606060606060606', 1, 5, NULL, NULL, '\x0606060606060606', '\x7b2253756273637269626572223a7b22456d61696c223a22706572736f6e36406578616d706c652e636f6d227d7d', 422, 'Email is not valid: "x"
second line', 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x07070707070707070707070707070707', 1, 5, NULL, NULL, '\x0707070707070707', '\x7b2253756273637269626572223a7b22456d61696c223a22706572736f6e37406578616d706c652e636f6d227d7d', 400, 'no', 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x08080808080808080808080808080808', 1, 1, NULL, NULL, '\x0808080808080808', '\x7b2253756273637269626572223a7b22456d61696c223a22706572736f6e38406578616d706c652e636f6d227d7d', NULL, NULL, 1, 1);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (1, '\x09090909090909090909090909090909', 1, 4, 3, 109, NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO entry (base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, run_key) VALUES (2, '\x0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a', 2, 1, NULL, NULL, '\x0a0a0a0a0a0a0a0a', '\x7b2253756273637269626572223a7b7d7d', NULL, NULL, 1, 2);
CREATE TABLE refusal (
    account TEXT NOT NULL,
    kind TEXT NOT NULL,
    base_key INTEGER NOT NULL,
    identity BYTEA NOT NULL,
    has_created BOOLEAN NOT NULL,
    is_checked BOOLEAN NOT NULL,
    PRIMARY KEY (account, kind),
    FOREIGN KEY(base_key) REFERENCES base (base_key)
);
INSERT INTO refusal (account, kind, base_key, identity, has_created, is_checked) VALUES ('account', '400 no', 1, '\x07070707070707070707070707070707', TRUE, FALSE);
INSERT INTO refusal (account, kind, base_key, identity, has_created, is_checked) VALUES ('account', '422 Email is not valid', 1, '\x06060606060606060606060606060606', FALSE, FALSE);
CREATE TABLE source_cursor (
    job TEXT NOT NULL,
    source BYTEA NOT NULL,
    value TEXT NOT NULL,
    run_key INTEGER NOT NULL,
    PRIMARY KEY (job, source),
    CONSTRAINT source_is_whole CHECK (length(source) = 16),
    FOREIGN KEY(run_key) REFERENCES run (run_key)
);
INSERT INTO source_cursor (job, source, value, run_key) VALUES ('crm-nightly', '\x73737373737373737373737373737373', '2026-11-14T02:00:00', 1);
SELECT setval(pg_get_serial_sequence('base', 'base_key'), (SELECT max(base_key) FROM base));
SELECT setval(pg_get_serial_sequence('run', 'run_key'), (SELECT max(run_key) FROM run));
