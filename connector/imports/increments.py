"""An incremental source as one run reads it: where it begins, and where its cursor stands afterwards (architecture
4.11).

The cursor is the ledger's. It moves in the transaction that records how the run ended, or not at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from connector.ledger.entries import Ledger
from connector.ledger.records import move_cursor, read_cursor
from connector.plurals import agree, count
from connector.sources.cursor import (
    CursorValue,
    find_latest,
    find_latest_unix,
    is_larger,
    look_back,
    parse_cursor,
    write_cursor,
)
from connector.sources.sql import IncrementalSource


@dataclass(frozen=True, slots=True)
class Increment:
    """An incremental source of a job; `digest` tells it from whatever else the job may read, or read into.

    `start` is where the first run begins; `is_full` and `since` are what a person asked of this run.
    """

    job: str
    digest: bytes
    source: IncrementalSource
    start: CursorValue
    lookback_s: float
    is_full: bool
    since: CursorValue | None


def read_kept(ledger: Ledger, increment: Increment) -> CursorValue | None:
    """Return where the increment's cursor stands; None if no run has moved it yet. Call it inside a transaction."""
    kept = read_cursor(ledger.connection, increment.job, increment.digest)
    if kept is None:
        return None
    return increment.source.convert_kept(parse_cursor(kept.value, increment.source.watch.kind))


def find_beginning(increment: Increment, kept: CursorValue | None) -> CursorValue:
    """Return where a run begins by default: the look-back before the cursor, and never before the start."""
    if kept is None:
        return increment.start
    back = look_back(kept, increment.lookback_s)
    return increment.start if is_larger(increment.start, back) else back


class IncrementReading:
    """One run's reading, at `now`, of an increment whose cursor stands at `kept` (None: it has none yet)."""

    def __init__(self, increment: Increment, kept: CursorValue | None, now: datetime) -> None:
        self._increment, self._kept = increment, kept
        self._usual = find_beginning(increment, kept)
        asked = increment.start if increment.is_full else increment.since
        self._begins_at = self._usual if asked is None else asked
        latest = find_latest(increment.start, now) or find_latest_unix(kept, now)
        increment.source.begin_at(self._begins_at, now=now, latest=latest)

    def describe(self) -> str:
        """Return from where on it reads, and why from there."""
        source, kept = self._increment.source, self._kept
        if self._increment.is_full:
            why = "--full"
        elif self._increment.since is not None:
            why = "--since"
        else:
            why = "the start: no cursor is kept yet" if kept is None else f"the cursor stood at {_show(kept)}"
        return f"read {source.name} from {source.watch.column} {_show(self._begins_at)} on ({why})"

    def decide(self) -> CursorValue | None:
        """Return where the cursor is to stand now that all was read; None: where it stood.

        A full reading may take it back, which mends one that stands in the future. One that began later than usual
        leaves it, since it has not read what lies between. A value in the future moves no cursor.
        """
        largest = self._increment.source.watch.largest
        if largest is None or self._increment.is_full:
            return largest
        if is_larger(self._begins_at, self._usual) or (self._kept is not None and not is_larger(largest, self._kept)):
            return None
        return largest

    def describe_future(self) -> Iterator[str]:
        """Yield messages about values in the future, which keep later runs from reading what is new. A person must
        correct them, so a run with such a message is partial."""
        watch = self._increment.source.watch
        if watch.first_ahead is not None:
            record, value = watch.first_ahead
            yield (
                f"{count(watch.ahead, 'row')} {agree(watch.ahead, 'has', 'have')} a value in {watch.column} that "
                f"lies beyond tomorrow (for example record {record}: {_show(value)}). "
                "Such a value does not move the cursor. "
                f"Correct {agree(watch.ahead, 'the row', 'the rows')} in the source"
            )
        kept = None if self._increment.is_full else self._kept
        if kept is not None and watch.latest is not None and is_larger(kept, watch.latest):
            yield (
                f"the cursor stands in the future ({_show(kept)}), so changes before then are not read. Correct "
                "the row that has this value, and run connector sync --full once"
            )

    def end(self, ledger: Ledger, run_key: int, hindrance: str | None) -> Iterator[str]:
        """Move the cursor, unless something hinders that (its words), and tell where it stands.

        Call it inside the transaction that records the run's end.
        """
        watch = self._increment.source.watch
        if watch.missing:
            yield (
                f"{count(watch.missing, 'row')} {agree(watch.missing, 'has', 'have')} no value in {watch.column}: "
                f"{agree(watch.missing, 'it does', 'they do')} not move the cursor, and each run reads "
                f"{agree(watch.missing, 'it', 'them')} again"
            )
        value = None if hindrance is not None else self.decide()
        if value is not None:
            move_cursor(ledger.connection, self._increment.job, self._increment.digest, write_cursor(value), run_key)
            yield f"the cursor stands at {_show(value)} now"
        else:
            stands = "no cursor is kept" if self._kept is None else f"the cursor stays at {_show(self._kept)}"
            yield f"{stands}: {hindrance or self._explain_staying()}"

    def _explain_staying(self) -> str:
        watch = self._increment.source.watch
        if watch.largest is None:
            return f"no row had a {'usable ' if watch.ahead else ''}value in {watch.column}"
        if is_larger(self._begins_at, self._usual):
            return f"--since left out what lies after {_show(self._usual)}, which the next run reads"
        return "nothing newer was read"


def _show(value: CursorValue) -> str:
    """Return the value for a report; a text is not shown, since it may be a name or an address."""
    return "a text that is not shown" if isinstance(value, str) else write_cursor(value)
