"""How far incremental sources have been read (design 4.11), each by its job and a digest of what it reads.

A value is text here: which values come after which, the source knows.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.ledger.texts import keep_text


@dataclass(frozen=True, slots=True)
class KeptCursor:
    """The largest value that was read, and which run read it."""

    value: str
    run_id: str


def read_cursor(connection: Connection, job: str, source: bytes) -> KeptCursor | None:
    """Where the cursor of this job and source (a digest) stands; None if it was never moved."""
    row = connection.execute(_READ, {"job": keep_text(job), "source": source}).first()
    return None if row is None else KeptCursor(*row)


def move_cursor(connection: Connection, job: str, source: bytes, value: str, run_key: int) -> None:
    """The run has read the source up to this value, to its end, and left no row of it unsent."""
    values = {"job": keep_text(job), "source": source, "value": keep_text(value), "run": run_key}
    connection.execute(_MOVE, values)


_READ = text(
    "SELECT value, run_id FROM source_cursor AS kept JOIN run USING (run_key) "
    "WHERE kept.job = :job AND kept.source = :source"
)
_MOVE = text(
    "INSERT INTO source_cursor (job, source, value, run_key) VALUES (:job, :source, :value, :run) "
    "ON CONFLICT (job, source) DO UPDATE SET value = :value, run_key = :run"
)
