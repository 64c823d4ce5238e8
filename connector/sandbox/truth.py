"""What really happened: the truth log, one event for each thing that changed what exists, and counts of requests.

An event is a JSON object: `sequence` (from 1), `at` (Unix seconds), `kind`, and by kind
  created | updated      id, base_id, email (as the request's body had it), answered (a Fate), subscriber (as stored)
  churn_inserted         the same, with the Fate UNASKED
  churn_deleted          id
  seeded                 first_id, count, step, base_id, base_name
  sent                   request_id, message_id, answered, email (an outbox entry)

A journal keeps the events, in memory or at the end of a file. A line is with the operating system before `append`
returns, so a killed process loses none that it answered for; `replay` makes the state again from the lines.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from connector.sandbox.faults import Fate
from connector.sandbox.store import SubscriberStore, SyntheticSubscribers


class Journal:
    """Lines in the order in which they came, kept in a file that one process at a time may hold, or in memory alone
    (`path` None). A last line of the file without an end, torn by a kill, is dropped."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._size = 0
        self._handle: int | None = None
        if path is None:
            return
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _lock(handle, path)
            content = path.read_bytes()
            self._size = content.rfind(b"\n") + 1
            os.ftruncate(handle, self._size)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        self._lines = content[: self._size].split(b"\n")[:-1]

    def append(self, line: bytes) -> None:
        """Append a line. If the line cannot be written whole, raise OSError and leave the file unchanged."""
        if self._handle is not None:
            data = line + b"\n"
            written = os.write(self._handle, data)
            if written != len(data):
                os.ftruncate(self._handle, self._size)
                raise OSError(f"{self._path}: only {written} of {len(data)} bytes could be written; is the disk full?")
            self._size += written
        self._lines.append(line)

    def read_lines(self) -> list[bytes]:
        """Return all lines, the oldest first."""
        return self._lines

    def clear(self) -> None:
        """Forget all lines."""
        self._lines, self._size = [], 0
        if self._handle is not None:
            os.ftruncate(self._handle, 0)

    def close(self) -> None:
        """Close the file, which releases the lock. The journal cannot be used afterwards."""
        if self._handle is not None:
            os.close(self._handle)


def _lock(handle: int, path: Path) -> None:
    if sys.platform == "win32":
        return  # there is no flock; two sandboxes on one directory are then the user's to avoid
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{path} is in use by another sandbox: end it, or give another directory") from None


class TruthLog:
    """Writes events into a journal; `wall` gives Unix seconds."""

    def __init__(self, journal: Journal, wall: Callable[[], float], sequence: int = 0) -> None:
        self._journal = journal
        self._wall = wall
        self.sequence = sequence

    def note_stored(
        self, kind: str, subscriber_id: int, base_id: int, email: str | None, fate: Fate, wire: bytes
    ) -> None:
        """Record that a subscriber was created, updated or inserted by churn."""
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
        """Record that a subscriber was deleted by churn."""
        self._note("churn_deleted", id=subscriber_id)

    def note_seeded(self, seeded: SyntheticSubscribers) -> None:
        """Record that synthetic subscribers were seeded."""
        self._note("seeded", **asdict(seeded))

    def note_sent(self, request_id: int, message_id: str, fate: Fate, email: dict[str, Any]) -> None:
        """Record that an email was accepted."""
        self._note("sent", request_id=request_id, message_id=message_id, answered=fate, email=email)

    def read_events(self, after: int = 0) -> bytes:
        """Return the events after sequence `after`, a JSON array."""
        return b"[" + b",".join(self._journal.read_lines()[after:]) + b"]"  # sequence n is line n

    def clear(self) -> None:
        """Forget everything and count from 1 again."""
        self._journal.clear()
        self.sequence = 0

    def close(self) -> None:
        """Let the journal go."""
        self._journal.close()

    def _note(self, kind: str, **values: object) -> None:
        event = {"sequence": self.sequence + 1, "at": round(self._wall(), 6), "kind": kind} | values
        self._append(orjson.dumps(event))

    def _append(self, line: bytes) -> None:
        self._journal.append(line)
        self.sequence += 1  # not before: a line that could not be written has no number


RestoreEmail = Callable[[int, str, dict[str, Any]], None]
"""Takes the request id, the Message-ID and the entry of an email that was accepted."""


def replay(lines: list[bytes], store: SubscriberStore, restore_email: RestoreEmail) -> int:
    """Apply all events to an empty store and an empty outbox; returns the last sequence.

    Raises ValueError naming the line that is no event: the journal is then not to be trusted.
    """
    for number, line in enumerate(lines, start=1):
        try:
            event = orjson.loads(line)
            if event["sequence"] != number:
                raise ValueError(f"its sequence is {event['sequence']}")  # noqa: TRY301 - reported as the others are
            _apply(event, store, restore_email)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of the sandbox's journal is no event: {error}") from error
    return len(lines)


def _apply(event: dict[str, Any], store: SubscriberStore, restore_email: RestoreEmail) -> None:
    match event["kind"]:
        case "created" | "churn_inserted":
            subscriber = event["subscriber"]
            store.bases.keep(subscriber["Base"]["Id"], subscriber["Base"]["Name"])
            store.add(
                event["id"],
                event["base_id"],
                subscriber.get("Email") or "",
                subscriber.get("ClientUserId") or "",
                orjson.dumps(subscriber),
            )
        case "updated":
            store.replace(event["id"], orjson.dumps(event["subscriber"]))
        case "churn_deleted":
            store.remove(event["id"])
        case "seeded":
            names = ("first_id", "count", "step", "base_id", "base_name")
            seeded = SyntheticSubscribers(**{name: event[name] for name in names})
            store.bases.keep(seeded.base_id, seeded.base_name)
            store.add_synthetic(seeded)
        case "sent":
            restore_email(event["request_id"], event["message_id"], event["email"])
        case other:
            raise ValueError(f"its kind is {other!r}")


class Stats:
    """Times are seconds of a clock that does not go back."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.answered: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.limited = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._window_until = 0.0
        self._inside_window = 0
        self._told = 0

    def note_received(self, operation: str, now: float, quiet_until: float) -> None:
        """Count a request of the API; a Retry-After by its connection asked to stay away until `quiet_until`."""
        self.received[operation] += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._inside_window += now < self._window_until
        self._told += now < quiet_until

    def note_answered(self, operation: str, answer: str) -> None:
        """Count an answer: a status, or the name of a fault's ending; a hung one is no longer in flight."""
        self.answered[operation, answer] += 1
        self.in_flight -= 1

    def note_retry_after(self, until: float) -> None:
        """Take note that a refusal asked a client to stay away until then."""
        self._window_until = max(self._window_until, until)

    def read(self) -> dict[str, Any]:
        """Return all counts: `requests {operation: {received, answers {answer: n}}}` where an answer is a status or the
        name of a fault, `limited` (how many were refused as beyond a limit), `inside_retry_after` (`all` that arrived
        while a Retry-After ran; `told`: those on the connection that had carried it, so the client knew of it),
        `in_flight`, `peak_in_flight`, `faults {name: n}`."""
        requests = {
            operation: {
                "received": count,
                "answers": {answer: n for (of, answer), n in self.answered.items() if of == operation},
            }
            for operation, count in self.received.items()
        }
        return {
            "requests": requests,
            "limited": self.limited,
            "inside_retry_after": {"all": self._inside_window, "told": self._told},
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "faults": dict(self.faults),
        }
