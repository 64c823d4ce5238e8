"""The runs that have written a ledger: who sent what, and how it ended."""

from sqlalchemy import Connection, text

from connector.ledger.texts import keep_optional, keep_text

_START = text(
    "INSERT INTO run (run_id, job, command, started_at, suppressed_by, is_holding, for_account) "
    "VALUES (:run_id, :job, :command, :at, :suppressed_by, :is_holding, :account) RETURNING run_key"
)
_FINISH = text("UPDATE run SET finished_at = :at, status = :status, rows_read = :rows_read WHERE run_key = :run")
_LAST_READ = text(
    "SELECT rows_read FROM run "
    "WHERE for_account = :account AND job = :job AND command = :command AND rows_read IS NOT NULL "
    "ORDER BY run_key DESC LIMIT 1"
)


def start_run(
    connection: Connection,
    run_id: str,
    job: str,
    command: str,
    at: float,
    suppressed_by: str | None = None,
    *,
    is_holding: bool = False,
    account: str | None = None,
) -> int:
    """Record that a run begins (`at`: Unix seconds); returns its key.

    `suppressed_by` is the job, if that has a suppression list: it must be read anew before anything that this run
    leaves is sent again. `is_holding`: what it leaves is not sent again unless a person says so (on_unknown: hold).
    `account` is the one that it is for.
    """
    texts = {"run_id": run_id, "job": job, "command": command}
    optional = {"suppressed_by": suppressed_by, "account": account}
    kept = {name: keep_text(each) for name, each in texts.items()}
    values = kept | {name: keep_optional(each) for name, each in optional.items()}
    return int(connection.execute(_START, values | {"at": at, "is_holding": is_holding}).scalar_one())


def finish_run(connection: Connection, run_key: int, status: str, at: float, rows_read: int | None = None) -> None:
    """Record how it ended; `rows_read` are its source's, if it came to its end and read all of it."""
    connection.execute(_FINISH, {"run": run_key, "status": status, "at": at, "rows_read": rows_read})


def find_rows_read(connection: Connection, account: str, job: str, command: str) -> int | None:
    """How many rows the last run of this job and command for this account read that read all of its source; None: there
    is none."""
    values = {"account": keep_text(account), "job": keep_text(job), "command": command}
    read: int | None = connection.execute(_LAST_READ, values).scalar_one_or_none()
    return read
