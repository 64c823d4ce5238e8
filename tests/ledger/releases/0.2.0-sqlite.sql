CREATE TABLE accepted_row (
	account TEXT NOT NULL,
	digest BLOB NOT NULL,
	job TEXT NOT NULL,
	accepted_at FLOAT NOT NULL,
	PRIMARY KEY (account, digest)
);
CREATE TABLE account (
	account TEXT NOT NULL,
	largest_lag_s FLOAT NOT NULL,
	limit_low FLOAT,
	limit_high FLOAT,
	limit_burst FLOAT,
	limit_pause_s FLOAT,
	limit_window_s FLOAT,
	limit_found_at FLOAT,
	PRIMARY KEY (account)
);
CREATE TABLE base (
	base_key INTEGER NOT NULL,
	account TEXT NOT NULL,
	service_id BIGINT,
	name TEXT,
	folded TEXT,
	answered_id BIGINT,
	answered_name TEXT,
	PRIMARY KEY (base_key),
	CONSTRAINT base_is_named CHECK (service_id IS NOT NULL OR name IS NOT NULL),
	CONSTRAINT one_line_a_base UNIQUE (account, service_id)
);
CREATE TABLE habit (
	account TEXT NOT NULL,
	name VARCHAR(40) NOT NULL,
	seen TEXT NOT NULL,
	seen_at FLOAT NOT NULL,
	PRIMARY KEY (account, name)
);
CREATE TABLE meta (
	name VARCHAR(40) NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE run (
	run_key INTEGER NOT NULL,
	run_id VARCHAR(40) NOT NULL,
	job TEXT NOT NULL,
	command TEXT NOT NULL,
	started_at FLOAT NOT NULL,
	finished_at FLOAT,
	status VARCHAR(10),
	suppressed_by TEXT,
	is_holding BOOLEAN,
	rows_read BIGINT,
	for_account TEXT,
	PRIMARY KEY (run_key),
	UNIQUE (run_id)
);
CREATE TABLE entry (
	base_key INTEGER NOT NULL,
	identity BLOB NOT NULL,
	identity_field SMALLINT NOT NULL,
	state SMALLINT NOT NULL,
	how SMALLINT,
	subscriber_id BIGINT,
	fingerprint BLOB,
	body BLOB,
	status SMALLINT,
	message TEXT,
	attempts SMALLINT DEFAULT '0' NOT NULL,
	run_key INTEGER,
	reported BLOB,
	reported_at FLOAT,
	altered TEXT,
	PRIMARY KEY (base_key, identity),
	CONSTRAINT identity_is_whole CHECK (length(identity) = 16),
	CONSTRAINT state_is_known CHECK (state BETWEEN 1 AND 5),
	CONSTRAINT confirmed_means_an_id CHECK (state <> 4 OR subscriber_id IS NOT NULL),
	CONSTRAINT an_id_means_that_it_was_answered CHECK (state IN (4, 3) OR subscriber_id IS NULL),
	CONSTRAINT a_body_until_final CHECK (state NOT IN (1, 2, 3) OR body IS NOT NULL),
	CONSTRAINT no_body_once_confirmed CHECK (state <> 4 OR body IS NULL),
	CONSTRAINT rejected_means_a_status CHECK ((state = 5) = (status IS NOT NULL)),
	CONSTRAINT confirmed_says_how CHECK ((state = 4) = (how IS NOT NULL)),
	CONSTRAINT reported_at_a_time CHECK ((reported IS NULL) = (reported_at IS NULL)),
	FOREIGN KEY(base_key) REFERENCES base (base_key),
	FOREIGN KEY(run_key) REFERENCES run (run_key)
) WITHOUT ROWID;
CREATE TABLE refusal (
	account TEXT NOT NULL,
	kind TEXT NOT NULL,
	base_key INTEGER NOT NULL,
	identity BLOB NOT NULL,
	has_created BOOLEAN NOT NULL,
	is_checked BOOLEAN NOT NULL,
	PRIMARY KEY (account, kind, base_key),
	FOREIGN KEY(base_key) REFERENCES base (base_key)
);
CREATE TABLE source_cursor (
	job TEXT NOT NULL,
	source BLOB NOT NULL,
	value TEXT NOT NULL,
	run_key INTEGER NOT NULL,
	PRIMARY KEY (job, source),
	CONSTRAINT source_is_whole CHECK (length(source) = 16),
	FOREIGN KEY(run_key) REFERENCES run (run_key)
);
CREATE INDEX unfinished_entries ON entry (state, base_key) WHERE state <> 4;
INSERT INTO meta (name, value) VALUES ('schema_version', '1'), ('identity_rule', '1');
