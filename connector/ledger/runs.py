"""The runs that have written a ledger: who sent what, and how it ended."""

from sqlalchemy import Connection, text

_START = text(
    "INSERT INTO run (run_id, job, command, started_at) VALUES (:run_id, :job, :command, :at) RETURNING run_key"
)
_FINISH = text("UPDATE run SET finished_at = :at, status = :status WHERE run_key = :run")


def start_run(connection: Connection, run_id: str, job: str, command: str, at: float) -> int:
    """Record that a run begins (`at`: Unix seconds); returns its key."""
    values = {"run_id": run_id, "job": job, "command": command, "at": at}
    return int(connection.execute(_START, values).scalar_one())


def finish_run(connection: Connection, run_key: int, status: str, at: float) -> None:
    """Record how it ended."""
    connection.execute(_FINISH, {"run": run_key, "status": status, "at": at})
