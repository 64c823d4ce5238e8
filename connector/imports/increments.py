"""Decides the value from which a run reads an incremental source, and the value to which the run moves the cursor
(architecture 4.11).

The ledger stores the cursor. The cursor can move only in the transaction that records the end of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from connector.ledger.entries import Ledger
from connector.ledger.records import move_cursor, read_cursor
from connector.sources.cursor import (
    CursorValue,
    find_latest_allowed_unix_time,
    find_latest_allowed_value,
    format_cursor,
    is_larger,
    parse_cursor,
    subtract_lookback,
)
from connector.sources.sql import IncrementalSource
from connector.texts import choose_form, count


@dataclass(frozen=True, slots=True)
class Increment:
    """The source of a job from which a run reads only new and changed rows, with the settings of the run."""

    job: str
    digest: bytes  # digest of the source and the target; the job has a cursor for each digest
    source: IncrementalSource
    start: CursorValue  # the value at which the first run begins
    lookback_s: float  # seconds before the cursor from which a run reads again
    is_full: bool  # the option --full of this run
    since: CursorValue | None  # the option --since of this run


def read_saved_cursor(ledger: Ledger, increment: Increment) -> CursorValue | None:
    """Return the value of the cursor in the ledger, or None if no run has moved the cursor yet. Call this function
    inside a transaction."""
    cursor_record = read_cursor(ledger.connection, increment.job, increment.digest)
    if cursor_record is None:
        return None
    return increment.source.convert_saved_value(parse_cursor(cursor_record.value, increment.source.watch.kind))


def find_start_value(increment: Increment, saved_value: CursorValue | None) -> CursorValue:
    """Return the value from which a run reads by default: `lookback_s` before the cursor, but not before the start."""
    if saved_value is None:
        return increment.start
    start_value = subtract_lookback(saved_value, increment.lookback_s)
    return increment.start if is_larger(increment.start, start_value) else start_value


class IncrementalRun:
    """One run over an incremental source. The run began at the time `now`. `saved_value` is the value of the cursor, or
    None before the first run."""

    def __init__(self, increment: Increment, saved_value: CursorValue | None, now: datetime) -> None:
        self._increment, self._saved_value = increment, saved_value
        self._default_start_value = find_start_value(increment, saved_value)
        requested_value = increment.start if increment.is_full else increment.since
        self._start_value = self._default_start_value if requested_value is None else requested_value
        latest_allowed_value = find_latest_allowed_value(increment.start, now) or find_latest_allowed_unix_time(
            saved_value, now
        )
        increment.source.set_start(self._start_value, now=now, latest_allowed_value=latest_allowed_value)

    def describe_start(self) -> str:
        """Return a message with the value from which the run reads, and the reason."""
        source, saved_value = self._increment.source, self._saved_value
        if self._increment.is_full:
            reason = "--full"
        elif self._increment.since is not None:
            reason = "--since"
        else:
            reason = (
                "the start value: no cursor is recorded yet"
                if saved_value is None
                else f"the cursor was {format_cursor(saved_value)}"
            )
        return f"read {source.name}, starting at {source.watch.column} {format_cursor(self._start_value)} ({reason})"

    def choose_cursor(self) -> CursorValue | None:
        """Return the new value of the cursor after all rows were read, or None if the cursor does not move.

        A run with --full may move the cursor back, which corrects a cursor in the future. If `since` is later than the
        default start value, the run has not read the rows between the two values, so the cursor does not move. A value
        in the future does not move the cursor.
        """
        largest_value = self._increment.source.watch.largest_value
        if largest_value is None or self._increment.is_full:
            return largest_value
        starts_after_default = is_larger(self._start_value, self._default_start_value)
        if starts_after_default or (self._saved_value is not None and not is_larger(largest_value, self._saved_value)):
            return None
        return largest_value

    def describe_future_values(self) -> Iterator[str]:
        """Yield messages about values in the future. If a value in the future moved the cursor, later runs would not
        read new rows. A run with this message is partial, because a person must correct the values."""
        cursor_watch = self._increment.source.watch
        if cursor_watch.future_value_example is not None:
            row_number, example_value = cursor_watch.future_value_example
            row_count = cursor_watch.future_value_count
            yield (
                f"{count(row_count, 'row')} {choose_form(row_count, 'has', 'have')} a value in the "
                f"column {cursor_watch.column} that is later than tomorrow (for example row {row_number}: "
                f"{format_cursor(example_value)}). Such a value does not move the cursor. "
                f"Correct {choose_form(row_count, 'the row', 'the rows')} in the source"
            )
        saved_value = None if self._increment.is_full else self._saved_value
        if (
            saved_value is not None
            and cursor_watch.latest_allowed_value is not None
            and is_larger(saved_value, cursor_watch.latest_allowed_value)
        ):
            yield (
                f"the cursor is in the future ({format_cursor(saved_value)}), so changes before this value are not "
                "read. Correct the row that has this value, and run connector sync --full once"
            )

    def move_cursor(self, ledger: Ledger, run_key: int, obstacle: str | None) -> Iterator[str]:
        """Move the cursor, unless there is an `obstacle` (a message). Yield a message with the cursor's value.

        Call this method inside the transaction that records the end of the run.
        """
        cursor_watch = self._increment.source.watch
        if row_count := cursor_watch.missing_value_count:
            yield (
                f"{count(row_count, 'row')} {choose_form(row_count, 'has', 'have')} no value in the "
                f"column {cursor_watch.column}: {choose_form(row_count, 'it does', 'they do')} not move the "
                f"cursor, and each run reads {choose_form(row_count, 'the row', 'the rows')} again"
            )
        new_value = None if obstacle is not None else self.choose_cursor()
        if new_value is not None:
            move_cursor(
                ledger.connection, self._increment.job, self._increment.digest, format_cursor(new_value), run_key
            )
            yield f"the cursor is now {format_cursor(new_value)}"
        else:
            saved_value = self._saved_value
            position_message = (
                "no cursor is recorded" if saved_value is None else f"the cursor stays at {format_cursor(saved_value)}"
            )
            yield f"{position_message}: {obstacle or self._explain_unmoved_cursor()}"

    def _explain_unmoved_cursor(self) -> str:
        cursor_watch = self._increment.source.watch
        if cursor_watch.largest_value is None:
            usable_text = "usable " if cursor_watch.future_value_count else ""
            return f"no row had a {usable_text}value in the column {cursor_watch.column}"
        if is_larger(self._start_value, self._default_start_value):
            default_start_text, start_text = format_cursor(self._default_start_value), format_cursor(self._start_value)
            return (
                f"--since left out the rows from {default_start_text} to {start_text}, "
                "and the next run reads these rows"
            )
        return "no newer row was read"
