"""The runs that have written a ledger: who sent what, and how it ended."""

from sqlalchemy import Connection, text

from connector.ledger.texts import keep_optional, keep_text

_START = text(
    "INSERT INTO run (run_id, job, command, started_at, suppressed_by, is_holding) "
    "VALUES (:run_id, :job, :command, :at, :suppressed_by, :is_holding) RETURNING run_key"
)
_FINISH = text("UPDATE run SET finished_at = :at, status = :status WHERE run_key = :run")


def start_run(
    connection: Connection,
    run_id: str,
    job: str,
    command: str,
    at: float,
    suppressed_by: str | None = None,
    *,
    is_holding: bool = False,
) -> int:
    """Record that a run begins (`at`: Unix seconds); returns its key.

    `suppressed_by` is the job, if that has a suppression list: it must be read anew before anything that this run
    leaves is sent again. `is_holding`: what it leaves is not sent again unless a person says so (on_unknown: hold).
    """
    texts = {"run_id": run_id, "job": job, "command": command}
    values = {name: keep_text(each) for name, each in texts.items()} | {"suppressed_by": keep_optional(suppressed_by)}
    return int(connection.execute(_START, values | {"at": at, "is_holding": is_holding}).scalar_one())


def finish_run(connection: Connection, run_key: int, status: str, at: float) -> None:
    """Record how it ended."""
    connection.execute(_FINISH, {"run": run_key, "status": status, "at": at})
