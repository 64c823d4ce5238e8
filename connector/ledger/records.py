"""Functions for bases, runs, lags, limits and cursors in the ledger, and for all details of one identity.

Call every function inside a transaction of `Ledger.transaction`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

from sqlalchemy import Connection, Table, bindparam, select, text

from connector.errors import ConfigurationError
from connector.fields import LARGEST_ID, fold_base_name
from connector.ledger.schema import CONFIRMATION_CODES, IDENTITY_FIELD_NUMBERS, IS_UNFINISHED_SQL
from connector.ledger.store import Base, make_storable, make_storable_or_none
from connector.pace.rate import FoundLimit
from connector.states import State, find_traits, list_states_sql
from connector.subscribers.identity import Suppression

SUPPRESSION_SIZE_KEY_PREFIX = "list "
"""The prefix of a name in the table `meta` or `email_meta` whose value is the size of a suppression list."""

# Bases. A base may be known only by its name until the service shows the Id of the base.


def find_or_add_base(connection: Connection, account: str, base_id: int | None, name: str | None) -> Base:
    """Return the account's base with the Id `base_id`. If `base_id` is None, return the base with this name, if
    possible a base that has an Id. If the ledger has no such base, add and return a new base.

    Raises ConfigurationError if several bases have the name, or if the Id is too large.
    """
    if base_id is not None and base_id > LARGEST_ID:
        raise ConfigurationError(
            f"no base has the id {base_id}, because it is beyond 64 bits: write the id that the service shows"
        )
    stored_name = make_storable_or_none(name)
    parameters = {"account": make_storable(account), "id": base_id, "name": stored_name, **_fold_name(stored_name)}
    query = _FIND_BASES_BY_NAME if base_id is None else _FIND_BASE_BY_ID
    rows = connection.execute(query, parameters).all()
    if not rows and connection.dialect.name != "sqlite":  # another shard may have added the base meanwhile
        connection.execute(_LOCK_BASES)
        rows = connection.execute(query, parameters).all()
    base_ids = sorted({row.service_id for row in rows if row.service_id is not None})
    if len(base_ids) > 1:
        ids_text = ", ".join(map(str, base_ids))
        raise ConfigurationError(
            f"the ledger has several bases with the name {name} (ids {ids_text}): name the base by its id"
        )
    if not rows:
        rows = connection.execute(_INSERT_BASE, parameters).all()
    return Base(*rows[0])


def list_bases(connection: Connection, account: str) -> list[Base]:
    """Return all bases of the account, in the order in which they were added to the ledger."""
    return [Base(*row) for row in connection.execute(_LIST_BASES, {"account": make_storable(account)})]


def count_unsettled_entries_of_possible_duplicate_bases(connection: Connection, base: Base) -> int:
    """Return the number of unsettled entries in bases that may be a second record of `base`. The ledger may have one
    base of the service twice: once with only the id, and once with only the name. If `base` has only an id, each base
    without an id counts. If `base` has only a name, each base without a name counts."""
    if base.service_id is not None and base.name is not None:
        return 0
    parameters = {"account": base.account, "key": base.key}
    query = _COUNT_UNSETTLED_WITHOUT_ID if base.service_id is not None else _COUNT_UNSETTLED_WITHOUT_NAME
    return int(connection.execute(query, parameters).scalar_one())


def record_base_id(connection: Connection, base: Base, base_id: int, name: str) -> Base:
    """Join the rows of a base in the ledger into one row, after the service has answered with the id and the name of
    the base. All entries of the base move to the joined row."""
    known_base = find_or_add_base(connection, base.account, base_id, name)
    stored_name = make_storable(name)
    connection.execute(_SET_BASE_NAME, {"key": known_base.key, "name": stored_name, **_fold_name(stored_name)})
    parameters = {"account": known_base.account, **_fold_name(stored_name)}
    for (old_key,) in connection.execute(_FIND_BASES_WITHOUT_ID, parameters).all():
        for statement in (
            _DELETE_DUPLICATE_ENTRIES_OF_OLD_BASE,
            _DELETE_DUPLICATE_ENTRIES_OF_NEW_BASE,
            _MOVE_ENTRIES,
            _DELETE_DUPLICATE_RECEIPTS,
            _MOVE_RECEIPTS,
            _DELETE_BASE,
        ):
            # If both bases have an entry of one identity, the more certain entry stays.
            connection.execute(statement, {"old": old_key, "new": known_base.key})
    return Base(known_base.key, known_base.account, base_id, stored_name)


def record_wrong_answer(connection: Connection, base: Base, answered_id: int | None, name: str | None) -> None:
    """Record that the answer to a create in this base named another base. Later runs then send nothing to this base
    (architecture 4.9).

    If `answered_id` and `name` are None, delete this record, because a person has decided that the base is right. Runs
    may then send again.
    """
    parameters = {"key": base.key, "answered_id": answered_id, "answered_name": make_storable_or_none(name)}
    connection.execute(_SET_ANSWERED_BASE, parameters)


def read_largest_lag(connection: Connection, account: str) -> float:
    """Return the largest recorded lag of the account's list in seconds (architecture 4.5 (c)), or 0 if no lag is
    recorded."""
    return connection.execute(_READ_LAG, {"account": make_storable(account)}).scalar_one_or_none() or 0.0


def record_lag(connection: Connection, account: str, lag_s: float) -> None:
    """Record a lag of the list in seconds, unless a larger lag is recorded already."""
    connection.execute(_SET_LAG, {"account": make_storable(account), "lag": lag_s})


def read_last_rate_limit(connection: Connection, account: str) -> tuple[FoundLimit, float] | None:
    """Return the rate limit that the latest run of the account has found, and the end of this run (Unix seconds).
    Return None if no run has found a limit."""
    row = connection.execute(_READ_LAST_RATE_LIMIT, {"account": make_storable(account)}).first()
    return None if row is None else (FoundLimit(*row[:4]), row[4])


def record_rate_limit(connection: Connection, account: str, found_limit: FoundLimit, measured_at: float) -> None:
    """Record the account's rate limit, which a run has found. `measured_at` is the end of the run (Unix seconds)."""
    parameters = {"account": make_storable(account), **asdict(found_limit), "at": measured_at}
    connection.execute(_SET_RATE_LIMIT, parameters)


def _fold_name(name: str | None) -> dict[str, str | None]:
    """Return the normal form of the name, and the normal form in ledgers from before December 2026."""
    if name is None:
        return {"folded": None, "folded_before": None}
    return {"folded": fold_base_name(name), "folded_before": name.strip().casefold()}


# Functions for runs, and for the sizes of sources and suppression lists


def start_run(
    connection: Connection,
    run_id: str,
    job: str,
    command: str,
    started_at: float,
    suppressing_job: str | None = None,
    *,
    holds_absent_creates: bool = False,
    account: str | None = None,
) -> int:
    """Record the beginning of a run at `started_at` (Unix seconds), and return the key of the run.

    `suppressing_job` is the name of the job if the job has a suppression list. Before a create of this run is sent
    again, this list must be read again. With `holds_absent_creates` (on_unknown: hold), an unknown create of this run
    that is proved absent is sent again only if a person decides so. `account` is the account of the run.
    """
    texts = {"run_id": run_id, "job": job, "command": command, "suppressed_by": suppressing_job, "account": account}
    storable_texts = {name: make_storable_or_none(value) for name, value in texts.items()}
    parameters = {**storable_texts, "at": started_at, "is_holding": holds_absent_creates}
    return int(connection.execute(_START_RUN, parameters).scalar_one())


def finish_run(
    connection: Connection, run_key: int, status: str, finished_at: float, source_row_count: int | None = None
) -> None:
    """Record the end of a run. `source_row_count` is the number of rows of the source, if the run finished and read
    the whole source."""
    connection.execute(
        _FINISH_RUN, {"run": run_key, "status": status, "at": finished_at, "rows_read": source_row_count}
    )


def end_dead_runs(connection: Connection, ended_at: float) -> None:
    """Record `ended_at` (Unix seconds) as the end of every dead run. A dead run has no recorded end, and no lease.

    Call this function at the beginning of a run, before the run is recorded. The status of dead runs stays unknown.
    """
    lease_condition_sql = "" if connection.dialect.name == "sqlite" else _HAS_NO_LEASE_SQL
    statement_sql = f"UPDATE run SET finished_at = :at WHERE finished_at IS NULL{lease_condition_sql}"
    connection.execute(text(statement_sql), {"at": ended_at})


def find_open_run(connection: Connection) -> str | None:
    """Return the id of the latest run without a recorded end, or None. This run is still active, or it has died and no
    other run has started since."""
    return connection.execute(_FIND_OPEN_RUN).scalar_one_or_none()


def find_source_row_count(connection: Connection, account: str, job: str, command: str) -> int | None:
    """Return the number of rows that the source had in the last run that read the whole source. Only runs of this
    account, job and command count. Return None if there is no such run."""
    parameters = {"account": make_storable(account), "job": make_storable(job), "command": command}
    return connection.execute(_FIND_SOURCE_ROW_COUNT, parameters).scalar_one_or_none()


def read_suppression_size(connection: Connection, table: Table, account: str, suppression: Suppression) -> int | None:
    """Return the number of identities that the job's suppression list had in the last run, or None if no run has
    recorded the number. `table` is the ledger's `meta`, or `email_meta` for a job that sends emails."""
    query = select(table.c.value).where(table.c.name == _format_suppression_size_key(account, suppression))
    size_text = connection.execute(query).scalar_one_or_none()
    return None if size_text is None else int(size_text)


def record_suppression_size(connection: Connection, table: Table, account: str, suppression: Suppression) -> None:
    """Record the number of identities on the job's suppression list. `read_suppression_size` returns this number."""
    statement_sql = f"INSERT INTO {table.name} (name, value) VALUES (:name, :size) ON CONFLICT (name) DO UPDATE SET "
    parameters = {"name": _format_suppression_size_key(account, suppression), "size": str(suppression.size)}
    connection.execute(text(statement_sql + "value = excluded.value"), parameters)


def _format_suppression_size_key(account: str, suppression: Suppression) -> str:
    """Return the key under which the size of this suppression list is stored. Each account, job and identity field has
    its own key."""
    key = "\0".join((account, suppression.job, suppression.field)).encode("utf-8", "backslashreplace")
    return SUPPRESSION_SIZE_KEY_PREFIX + blake2b(key, digest_size=16).hexdigest()


def find_job_of_run(connection: Connection, run_id: str) -> str | None:
    """Return the name of the job of this run, or None if the ledger has no such run."""
    return connection.execute(_FIND_JOB_OF_RUN, {"run_id": make_storable(run_id)}).scalar_one_or_none()


# Cursors of incremental sources (architecture 4.11). Only the source can compare two values of a cursor


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """The position of a cursor: the largest value that runs have read from the cursor column, and the run that read the
    value."""

    value: str
    run_id: str


def read_cursor(connection: Connection, job: str, source_digest: bytes) -> StoredCursor | None:
    """Return the cursor of this job and source (a digest), or None if no run has moved the cursor."""
    row = connection.execute(_READ_CURSOR, {"job": make_storable(job), "source": source_digest}).first()
    return None if row is None else StoredCursor(*row)


def move_cursor(connection: Connection, job: str, source_digest: bytes, value: str, run_key: int) -> None:
    """Move the cursor to this value, because the run has read the whole source and has sent all rows."""
    parameters = {"job": make_storable(job), "source": source_digest, "value": make_storable(value), "run": run_key}
    connection.execute(_MOVE_CURSOR, parameters)


@dataclass(frozen=True, slots=True)
class RunWithRefusals:
    """A run that is recorded in REJECTED or DROPPED entries: the run sent the create last, or looked the subscriber up
    after the refusal. `has_finished` is true if the run ended with the status `ok` or `partial`. `ended_at` is the
    latest possible end of the run (Unix seconds; None: not known)."""

    run_key: int
    has_finished: bool
    ended_at: float | None


def find_runs_with_refusals(connection: Connection, base: Base) -> list[RunWithRefusals]:
    """Return the runs that are recorded in the REJECTED and DROPPED entries of the base."""
    rows = connection.execute(_FIND_RUNS_WITH_REFUSALS, {"base": base.key})
    return [RunWithRefusals(run_key, bool(has_finished), ended_at) for run_key, has_finished, ended_at in rows]


_BASE_COLUMNS = "base_key, account, service_id, name, answered_id, answered_name"
_LIST_BASES = text(f"SELECT {_BASE_COLUMNS} FROM base WHERE account = :account ORDER BY base_key")
_FIND_BASE_BY_ID = text(f"SELECT {_BASE_COLUMNS} FROM base WHERE account = :account AND service_id = :id")
_FIND_BASES_BY_NAME = text(
    f"SELECT {_BASE_COLUMNS} FROM base WHERE account = :account AND folded IN (:folded, :folded_before) "
    "ORDER BY service_id IS NULL, base_key"
)
_COUNT_UNSETTLED_ENTRIES_SQL = (
    "SELECT count(*) FROM entry JOIN base USING (base_key) "
    "WHERE account = :account AND base_key <> :key AND "
    f"state IN {list_states_sql(lambda traits: traits.waits_for_retry)} AND {IS_UNFINISHED_SQL} AND "
)
_COUNT_UNSETTLED_WITHOUT_ID = text(_COUNT_UNSETTLED_ENTRIES_SQL + "service_id IS NULL")
_COUNT_UNSETTLED_WITHOUT_NAME = text(_COUNT_UNSETTLED_ENTRIES_SQL + "name IS NULL")
_LOCK_BASES = text("LOCK TABLE base IN SHARE ROW EXCLUSIVE MODE")
_INSERT_BASE = text(
    "INSERT INTO base (account, service_id, name, folded) VALUES (:account, :id, :name, :folded) RETURNING "
    f"{_BASE_COLUMNS}"
)
_SET_BASE_NAME = text("UPDATE base SET name = :name, folded = :folded WHERE base_key = :key")
_SET_ANSWERED_BASE = text(
    "UPDATE base SET answered_id = :answered_id, answered_name = :answered_name WHERE base_key = :key"
)
_READ_LAG = text("SELECT largest_lag_s FROM account WHERE account = :account")
_SET_LAG = text(
    "INSERT INTO account (account, largest_lag_s) VALUES (:account, :lag) ON CONFLICT (account) DO UPDATE "
    "SET largest_lag_s = excluded.largest_lag_s WHERE account.largest_lag_s < excluded.largest_lag_s"
)
_READ_LAST_RATE_LIMIT = text(
    "SELECT limit_low, limit_high, limit_pause_s, limit_window_s, limit_found_at FROM account "
    "WHERE account = :account AND limit_low IS NOT NULL"
)
_SET_RATE_LIMIT = text(
    "INSERT INTO account "
    "(account, largest_lag_s, limit_low, limit_high, limit_pause_s, limit_window_s, limit_found_at) "
    "VALUES (:account, 0, :ramp_start_rate, :ramp_end_rate, :pause_s, :window_s, :at) ON CONFLICT (account) DO UPDATE "
    "SET limit_low = :ramp_start_rate, limit_high = :ramp_end_rate, limit_pause_s = :pause_s, "
    "limit_window_s = :window_s, limit_found_at = :at"
)
_FIND_BASES_WITHOUT_ID = text(
    "SELECT base_key FROM base WHERE account = :account AND folded IN (:folded, :folded_before) AND service_id IS NULL"
)
_STATE_RANK_SQL = (
    f"CASE {{0}}.state {' '.join(f'WHEN {state.value} THEN {find_traits(state).rank}' for state in State)} END"
)
_DELETE_DUPLICATE_ENTRIES_OF_OLD_BASE = text(
    "DELETE FROM entry WHERE base_key = :old AND EXISTS (SELECT 1 FROM entry AS other WHERE other.base_key = :new "
    f"AND other.identity = entry.identity AND {_STATE_RANK_SQL.format('other')} <= {_STATE_RANK_SQL.format('entry')})"
)
_DELETE_DUPLICATE_ENTRIES_OF_NEW_BASE = text(
    "DELETE FROM entry WHERE base_key = :new AND identity IN (SELECT identity FROM entry WHERE base_key = :old)"
)
_MOVE_ENTRIES = text("UPDATE entry SET base_key = :new WHERE base_key = :old")
_DELETE_DUPLICATE_RECEIPTS = text(
    "DELETE FROM receipt WHERE base_key = :new AND EXISTS (SELECT 1 FROM receipt AS other WHERE "
    "other.base_key = :old AND other.run_key = receipt.run_key AND other.identity = receipt.identity)"
)
_MOVE_RECEIPTS = text("UPDATE receipt SET base_key = :new WHERE base_key = :old")
_DELETE_BASE = text("DELETE FROM base WHERE base_key = :old")
_START_RUN = text(
    "INSERT INTO run (run_id, job, command, started_at, suppressed_by, is_holding, for_account) "
    "VALUES (:run_id, :job, :command, :at, :suppressed_by, :is_holding, :account) RETURNING run_key"
)
_FINISH_RUN = text("UPDATE run SET finished_at = :at, status = :status, rows_read = :rows_read WHERE run_key = :run")
_FIND_SOURCE_ROW_COUNT = text(
    "SELECT rows_read FROM run "
    "WHERE for_account = :account AND job = :job AND command = :command AND rows_read IS NOT NULL "
    "ORDER BY run_key DESC LIMIT 1"
)
_HAS_NO_LEASE_SQL = " AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.run_key = run.run_key)"
_FIND_OPEN_RUN = text("SELECT run_id FROM run WHERE finished_at IS NULL ORDER BY run_key DESC LIMIT 1")
_FIND_JOB_OF_RUN = text("SELECT job FROM run WHERE run_id = :run_id")
_READ_CURSOR = text(
    "SELECT value, run_id FROM source_cursor AS stored JOIN run USING (run_key) "
    "WHERE stored.job = :job AND stored.source = :source"
)
_MOVE_CURSOR = text(
    "INSERT INTO source_cursor (job, source, value, run_key) VALUES (:job, :source, :value, :run) "
    "ON CONFLICT (job, source) DO UPDATE SET value = :value, run_key = :run"
)
_FIND_RUNS_WITH_REFUSALS = text(
    "SELECT DISTINCT run_key, coalesce(run.status IN ('ok', 'partial'), false), run.finished_at "
    "FROM entry JOIN run USING (run_key) WHERE base_key = :base "
    f"AND state IN {list_states_sql(lambda traits: traits.counts_as_rejected)} AND {IS_UNFINISHED_SQL}"
)


@dataclass(frozen=True, slots=True)
class EntryDetails:
    """An entry with its base and its run.

    `confirmation` is a key of CONFIRMATION_CODES, or None if the state is not CONFIRMED.

    `run_id`, `job`, `command`, `started_at` and `finished_at` (Unix seconds), and `run_status` describe the last run
    that sent the create, or that looked up the subscriber after a refusal. They are None if only the list has shown the
    subscriber.

    `reported_or_checked_at` is the time at which a changed row was reported. If the state is REJECTED or DROPPED, it is
    the time at which a later run looked up the subscriber.
    """

    account: str
    base_id: int | None
    base_name: str | None
    identity_field: str
    state: State
    confirmation: str | None
    subscriber_id: int | None
    status: int | None
    message: str | None
    attempt_count: int
    reported_or_checked_at: float | None
    altered_fields: str | None
    opt_out_job: str | None
    run_id: str | None
    job: str | None
    command: str | None
    started_at: float | None
    finished_at: float | None
    run_status: str | None


def find_details(connection: Connection, identities: Sequence[bytes]) -> list[EntryDetails]:
    """Return the entries of these identities (digests), ordered by account and base."""
    rows = connection.execute(_FIND_DETAILS, {"identities": list(identities)})
    return [
        EntryDetails(
            account,
            base_id,
            base_name,
            _FIELD_BY_NUMBER[field],
            State(state),
            _CONFIRMATION_BY_CODE.get(confirmation_code),
            *other_values,
        )
        for account, base_id, base_name, field, state, confirmation_code, *other_values in rows
    ]


_FIELD_BY_NUMBER = {field_number: field for field, field_number in IDENTITY_FIELD_NUMBERS.items()}
_CONFIRMATION_BY_CODE = {confirmation_code: name for name, confirmation_code in CONFIRMATION_CODES.items()}

# The statement searches every base, because each index of `entry` begins with the base and none with the identity.
_FIND_DETAILS = text(
    "SELECT account, service_id, base.name, identity_field, state, how, subscriber_id, entry.status, message, "
    "attempts, reported_at, altered, opted_out, run_id, job, command, started_at, finished_at, run.status "
    "FROM base JOIN entry ON entry.base_key = base.base_key LEFT JOIN run ON run.run_key = entry.run_key "
    "WHERE identity IN :identities ORDER BY account, base.base_key, identity_field"
).bindparams(bindparam("identities", expanding=True))
