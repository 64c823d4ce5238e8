"""The truth log: one event for each thing that changed what exists, and what became of the answer.

An event is a JSON object: `sequence` (from 1), `at` (Unix seconds), `kind`, and by kind
  created | updated      id, base_id, email (as the request's body had it), answered (a Fate), subscriber (as stored)
  churn_inserted         the same, with answered `nobody`
  churn_deleted          id
  seeded                 first_id, count, step, base_id, base_name
  sent                   request_id, message_id, answered, email (an outbox entry)
"""

from collections.abc import Callable
from typing import Any

import orjson

from connector.sandbox.crowd import Crowd
from connector.sandbox.faults import Fate
from connector.sandbox.journal import Journal


class TruthLog:
    """Writes events into a journal; `wall` gives Unix seconds."""

    def __init__(self, journal: Journal, wall: Callable[[], float], sequence: int = 0) -> None:
        self._journal = journal
        self._wall = wall
        self.sequence = sequence

    def note_stored(
        self, kind: str, subscriber_id: int, base_id: int, email: str | None, fate: Fate, wire: bytes
    ) -> None:
        """A subscriber was created, updated or inserted by churn."""
        self._append(
            b'{"sequence":%d,"at":%.6f,"kind":"%s","id":%d,"base_id":%d,"email":%s,"answered":"%s","subscriber":%s}'
            % (
                self.sequence + 1,
                self._wall(),
                kind.encode(),
                subscriber_id,
                base_id,
                orjson.dumps(email),
                fate.encode(),
                wire,
            )
        )

    def note_deleted(self, subscriber_id: int) -> None:
        """A subscriber was deleted by churn."""
        self._note("churn_deleted", id=subscriber_id)

    def note_seeded(self, crowd: Crowd) -> None:
        """A crowd was seeded."""
        self._note(
            "seeded",
            first_id=crowd.first_id,
            count=crowd.count,
            step=crowd.step,
            base_id=crowd.base_id,
            base_name=crowd.base_name,
        )

    def note_sent(self, request_id: int, message_id: str, fate: Fate, email: dict[str, Any]) -> None:
        """An email was taken on."""
        self._note("sent", request_id=request_id, message_id=message_id, answered=fate, email=email)

    def read_events(self, after: int = 0) -> bytes:
        """The events after sequence `after`, a JSON array."""
        return b"[" + b",".join(self._journal.read_lines()[after:]) + b"]"  # sequence n is line n

    def clear(self) -> None:
        """Forgets everything and counts from 1 again."""
        self._journal.clear()
        self.sequence = 0

    def close(self) -> None:
        """Lets the journal go."""
        self._journal.close()

    def _note(self, kind: str, **values: object) -> None:
        event = {"sequence": self.sequence + 1, "at": round(self._wall(), 6), "kind": kind} | values
        self._append(orjson.dumps(event))

    def _append(self, line: bytes) -> None:
        self._journal.append(line)
        self.sequence += 1  # not before: a line that could not be written has no number
