"""What a ledger holds, seen from outside a run: its runs, and what is in doubt in each account. It only reads."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.ledger.schema import UNFINISHED
from connector.ledger.texts import keep_text
from connector.states import State


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the ledger has it: `started_at` in Unix seconds; `status` None: it goes on, or died."""

    run_id: str
    job: str
    command: str
    started_at: float
    status: str | None


def find_run(connection: Connection, run_id: str) -> RunRecord | None:
    """The run with this id, or None."""
    row = connection.execute(_FIND, {"run_id": keep_text(run_id)}).one_or_none()
    return None if row is None else RunRecord(*row)


def list_runs(connection: Connection, number: int) -> list[RunRecord]:
    """The latest runs, at most `number`, the last one first."""
    return [RunRecord(*row) for row in connection.execute(_LATEST, {"number": number})]


def count_doubts(connection: Connection) -> dict[str, int]:
    """How many entries of each account are in doubt (being sent, UNKNOWN, HELD); accounts without any are left out."""
    values = {"sending": State.SENDING, "unknown": State.UNKNOWN, "held": State.HELD}
    return dict(connection.execute(_DOUBTS, values).all())


_RUN = "SELECT run_id, job, command, started_at, status FROM run "
_FIND = text(_RUN + "WHERE run_id = :run_id")
_LATEST = text(_RUN + "ORDER BY run_key DESC LIMIT :number")
_DOUBTS = text(
    "SELECT account, count(*) FROM entry JOIN base USING (base_key) "  # noqa: S608 - constants
    f"WHERE state IN (:sending, :unknown, :held) AND {UNFINISHED} GROUP BY account ORDER BY account"
)
