"""The truth log, which has one event for each change of the stored data, and the counts of requests.

An event is a JSON object with `sequence` (from 1), `at` (Unix seconds) and `kind`. Each kind has more keys:
  created | updated      id, base_id, email (as in the request), answered (an AnswerFate), subscriber (as stored);
  churn_inserted         the keys of `created`; answered is NO_REQUEST
  churn_deleted          id
  seeded                 first_id, count, step, base_id, base_name
  sent                   request_id, message_id, answered, email (an outbox entry)
"""

import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any

import orjson


class AnswerFate(StrEnum):
    """The fate of the answer to an executed request: whether and how the answer was sent. The value of a member is its
    name in the truth log."""

    ANSWERED = "answered"
    CUT = "cut"  # the request was executed, and no byte of the answer was sent
    CUT_IN_ANSWER = "cut_in_answer"
    HUNG = "hung"
    GARBAGE = "garbage"
    SERVER_ERROR = "server_error"
    ANSWERED_422 = "answered_422"
    ANSWERED_429 = "answered_429"
    ANSWERED_AS_REFUSED = "answered_as_refused"  # executed, but answered with a refusal (switch executed_status)
    WRONG = "wrong_answer"
    LATE = "late"  # executed after the connection had been cut
    REPEATED = "repeated"  # the first of two executions of a create; the answer has the subscriber of the second
    CLIENT_GONE = "gone"  # the client had closed the connection before the request was executed
    NO_REQUEST = "nobody"  # no request asked for the change (churn)


class EventLog:
    """A log of events in memory. With a `path`, the events are also appended to a file that only one process at a time
    can hold.

    The operating system has a line before `append` returns. So a killed process loses no event whose request was
    answered. An incomplete last line, which a kill may leave, is deleted. `wall_clock` returns Unix seconds.
    """

    def __init__(self, path: Path | None, wall_clock: Callable[[], float]) -> None:
        """Open the log. Raise ValueError if another process holds the file."""
        self._wall_clock = wall_clock
        self.lines: list[bytes] = []
        self._file: FileIO | None = None
        if path is None:
            return
        self._file = FileIO(path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{path} is in use by another sandbox. Stop the other sandbox, or name another directory"
            ) from None
        self._file.seek(0)
        content = self._file.readall()
        self._file.truncate(content.rfind(b"\n") + 1)
        self.lines = content.split(b"\n")[:-1]

    @property
    def last_sequence_number(self) -> int:
        """The sequence number of the last event."""
        return len(self.lines)

    def append(self, kind: str, **values: object) -> None:
        """Append an event. If the disk is full, raise OSError and leave the log unchanged."""
        line = orjson.dumps(
            {"sequence": self.last_sequence_number + 1, "at": round(self._wall_clock(), 6), "kind": kind, **values}
        )
        if self._file is not None:
            previous_size = self._file.seek(0, os.SEEK_END)
            if self._file.write(line + b"\n") != len(line) + 1:
                self._file.truncate(previous_size)
                raise OSError(f"{self._file.name}: the event was not written completely: free some disk space")
        self.lines.append(line)

    def read_events(self, after_sequence: int = 0) -> bytes:
        """Return a JSON array of the events after the sequence number `after_sequence`."""
        return b"[" + b",".join(self.lines[after_sequence:]) + b"]"

    def clear(self) -> None:
        """Delete all events and count from 1 again."""
        self.lines = []
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Close the file, which releases the lock. The log cannot be used afterwards."""
        if self._file is not None:
            self._file.close()


class Stats:
    """Counts of requests. Times are seconds of a clock that does not go back."""

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, Any]] = defaultdict(lambda: {"received": 0, "answers": Counter()})
        """For each operation: the number `received`, and the `answers` by status. For a fault without an answer, the
        key of `answers` says how the request ended."""
        self.faults: Counter[str] = Counter()
        self.limited = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._quiet_until = 0.0
        self._inside_retry_after = {"all": 0, "told": 0}

    def count_received_request(self, operation: str, now: float, paused_until: float) -> None:
        """Count a request of the API. Before `paused_until`, the client should send no request (Retry-After)."""
        self.requests[operation]["received"] += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._inside_retry_after["all"] += now < self._quiet_until
        self._inside_retry_after["told"] += now < paused_until

    def count_answer(self, operation: str, answer_label: str) -> None:
        """Count the answer to a request. Also count the end of a request that gets no answer."""
        self.requests[operation]["answers"][answer_label] += 1
        self.in_flight -= 1

    def record_retry_after(self, retry_at: float) -> None:
        """Record that a refusal asked a client for a pause until the time `retry_at`."""
        self._quiet_until = max(self._quiet_until, retry_at)

    def read(self) -> dict[str, Any]:
        """Return all counts. `limited` counts refusals because of the rate, also by the faults `refuse` and
        `created_429`.

        `inside_retry_after` counts requests that arrived although an answer had asked for a pause (Retry-After). `all`
        counts every such request, and `told` only requests on the connection that got the answer.
        """
        return {
            "requests": self.requests,
            "limited": self.limited,
            "inside_retry_after": self._inside_retry_after,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "faults": self.faults,
        }
