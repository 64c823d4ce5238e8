"""Reads a source to its end before anything is sent. Then the source is closed, and its rows are on the disk.

So a slow load holds no connection and no lock of the source's database. If the source cannot be read to its end,
nothing is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from connector.control import Stop
from connector.fields import SENT_FIELDS
from connector.rows import CloseableResource, Source
from connector.spool import Spool
from connector.subscribers.identity import Digests, Mask, Positions, Suppression, compute_field_digests
from connector.subscribers.preparation import Difference, PreparedChunk, build_inactive_mask
from connector.texts import choose_form, count

# Code for subscribers that have several rows

_MAX_SHOWN_ROWS = 10  # the largest number of rows that one message names

_RowReference = list[int]
"""The index of a file, and the number of a record in the file."""


@dataclass(frozen=True, slots=True)
class _RecordedRows:
    """Rows of the subscribers and identities that `Conflicts.add` has recorded, as one array for each property.
    `field_digests` has one column for each compared field, with the digests of the field's values."""

    subscriber_digests: Digests  # the digest of the subscriber of each row
    identities: Digests
    file_indices: Positions
    row_numbers: Positions  # the record number of each row
    inactive_mask: Mask
    duplicate_mask: Mask
    field_digests: npt.NDArray[np.bytes_]

    def select(self, indices: Positions) -> "_RecordedRows":
        """Return the rows at these indices."""
        return _RecordedRows(*(getattr(self, name)[indices] for name in self.__slots__))

    @classmethod
    def join_parts(cls, parts: Sequence["_RecordedRows"]) -> "_RecordedRows":
        """Return the rows of all parts."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


class Conflicts:
    """Decides which row of a subscriber is used if rows of the subscriber differ. Call `add` with each chunk of a
    source, then `choose_used_rows` with all chunks, and then `resolve` with each chunk."""

    def __init__(self, identity_field: str) -> None:
        self._field_names = tuple(field.name for field in SENT_FIELDS if field.name != identity_field)
        self._differing_subscribers: list[Digests] = []  # for each chunk, the digests of subscribers whose rows differ
        # For each chunk: the identities, file indices and record numbers of invalid rows.
        self._invalid_records: list[tuple[Digests, Positions, Positions]] = []
        self._file_indices: dict[str, int] = {}  # the index of each file, by the name of the file
        self._recorded_subscribers: Digests = np.empty(0, dtype="S16")  # sorted; set by `choose_used_rows`
        # Blocked identities, sorted: the identities of invalid rows that may say inactive. No active row of a blocked
        # identity is used.
        self._blocked_identities: Digests = self._recorded_subscribers
        # The used row of each recorded subscriber, sorted by subscriber; set by `choose_used_rows`.
        # A subscriber with a blocked identity has no used row, unless a valid row says inactive.
        self._used_rows: _RecordedRows
        self.messages: list[str] = []

    def add(self, prepared_chunk: PreparedChunk) -> None:
        """Record the subscribers of this chunk whose rows differ, and the identities of invalid rows. Invalid rows that
        say active are left out.
        """
        if prepared_chunk.different_row_mask.any():
            self._differing_subscribers.append(prepared_chunk.subscriber_digests[prepared_chunk.different_row_mask])
        if len(prepared_chunk.blocking_records[0]):
            identities, record_numbers = prepared_chunk.blocking_records
            file_indices = np.full(len(identities), self._find_file_index(prepared_chunk))
            self._invalid_records.append((identities, file_indices, record_numbers))

    def choose_used_rows(self, chunks: Iterable[PreparedChunk]) -> None:
        """Choose the used row of each subscriber that `add` has recorded. Read the chunks only if `add` has recorded a
        subscriber or an identity."""
        if not self._differing_subscribers and not self._invalid_records:
            return
        self._recorded_subscribers = np.unique(
            np.concatenate([self._recorded_subscribers, *self._differing_subscribers])
        )
        invalid_records = np.empty((0, 2), dtype=np.int64)  # the file index and record number of each invalid row
        if self._invalid_records:
            identities, file_indices, row_numbers = (
                np.concatenate(arrays) for arrays in zip(*self._invalid_records, strict=True)
            )
            self._blocked_identities, first_indices = np.unique(identities, return_index=True)
            invalid_records = np.stack([file_indices, row_numbers], axis=1)[first_indices]
        rows = _RecordedRows.join_parts([self._select_rows(prepared_chunk)[1] for prepared_chunk in chunks])
        usable_indices = np.flatnonzero(
            ~rows.duplicate_mask & (rows.inactive_mask | ~np.isin(rows.identities, self._blocked_identities))
        )
        # `np.unique` finds the first row of each subscriber. So the inactive rows of a subscriber are sorted first.
        usable_indices = usable_indices[
            np.lexsort((~rows.inactive_mask[usable_indices], rows.subscriber_digests[usable_indices]))
        ]
        _, first_indices = np.unique(rows.subscriber_digests[usable_indices], return_index=True)
        used_rows = self._used_rows = rows.select(usable_indices[first_indices])
        # An inactive row overrules nothing if all rows of the subscriber are inactive.
        digests_of_not_inactive_rows = np.unique(rows.subscriber_digests[~rows.inactive_mask])
        overruling_row_mask = used_rows.inactive_mask & np.isin(
            used_rows.subscriber_digests, digests_of_not_inactive_rows
        )
        unused_row_mask = ~rows.inactive_mask & ~np.isin(rows.subscriber_digests, used_rows.subscriber_digests)
        blocking_record_mask = np.isin(self._blocked_identities, rows.identities[unused_row_mask])
        used_records = np.stack([used_rows.file_indices, used_rows.row_numbers], axis=1)
        self.messages += self._describe_conflicts(
            used_records[overruling_row_mask].tolist(), invalid_records[blocking_record_mask].tolist()
        )

    def resolve(self, prepared_chunk: PreparedChunk) -> PreparedChunk:
        """Return the chunk with unused rows marked as duplicates, and with the fields in which these rows differ from
        the used rows."""
        if not len(self._recorded_subscribers) and not len(self._blocked_identities):
            return prepared_chunk
        indices, rows = self._select_rows(prepared_chunk)
        used_rows = self._used_rows
        used_row_indices = np.searchsorted(used_rows.subscriber_digests, rows.subscriber_digests)
        used_row_indices[used_row_indices == len(used_rows.subscriber_digests)] = 0
        used_row_mask = np.zeros(len(indices), dtype=bool)
        if len(used_rows.subscriber_digests):
            used_row_mask = used_rows.subscriber_digests[used_row_indices] == rows.subscriber_digests
        overruled_row_mask = ~rows.inactive_mask
        overruled_row_mask[used_row_mask] &= used_rows.inactive_mask[used_row_indices[used_row_mask]]
        duplicate_mask = prepared_chunk.duplicate_mask.copy()
        duplicate_mask[indices] |= overruled_row_mask & ~prepared_chunk.suppressed_mask[indices]
        positions, differences = prepared_chunk.valid_chunk.subscribers.index.to_numpy()[indices], list[Difference]()
        for index in np.flatnonzero(duplicate_mask[indices]).tolist():
            fields: tuple[str, ...] = ()
            if used_row_mask[index]:
                different_field_mask = rows.field_digests[index] != used_rows.field_digests[used_row_indices[index]]
                fields = tuple(compress(self._field_names, different_field_mask))
            if fields or not used_row_mask[index]:
                differences.append(Difference(int(positions[index]), fields, bool(overruled_row_mask[index])))
        return replace(prepared_chunk, duplicate_mask=duplicate_mask, differences=tuple(differences))

    def _select_rows(self, prepared_chunk: PreparedChunk) -> tuple[Positions, _RecordedRows]:
        """Return the valid rows of the subscribers and identities that `add` has recorded: the indices and the rows."""
        identities = prepared_chunk.valid_chunk.identities
        recorded_mask = np.isin(prepared_chunk.subscriber_digests, self._recorded_subscribers) | np.isin(
            identities, self._blocked_identities
        )
        indices = np.flatnonzero(recorded_mask)
        rows = prepared_chunk.valid_chunk.subscribers.iloc[indices]
        row_numbers = prepared_chunk.chunk.row_numbers[rows.index.to_numpy(dtype=np.int64)]
        field_digests = compute_field_digests(rows, self._field_names)
        return indices, _RecordedRows(
            prepared_chunk.subscriber_digests[indices],
            identities[indices],
            np.full(len(indices), self._find_file_index(prepared_chunk)),
            row_numbers,
            build_inactive_mask(rows),
            prepared_chunk.duplicate_mask[indices],
            field_digests,
        )

    def _find_file_index(self, prepared_chunk: PreparedChunk) -> int:
        return self._file_indices.setdefault(prepared_chunk.chunk.name, len(self._file_indices))

    def _describe_conflicts(
        self, overruling_rows: list[_RowReference], blocking_rows: list[_RowReference]
    ) -> Iterator[str]:
        """Yield messages about inactive rows that overrule other rows, and about invalid rows that block other rows."""
        if disagreeing_subscriber_count := len(overruling_rows):
            verb = choose_form(disagreeing_subscriber_count, "has", "have")
            yield (
                f"{count(disagreeing_subscriber_count, 'subscriber')} {verb} rows that disagree on is_active: the "
                f"inactive row is used ({self._format_row_numbers(overruling_rows)})"
            )
        if blocked_subscriber_count := len(blocking_rows):
            verb = choose_form(blocked_subscriber_count, "has", "have")
            yield (
                f"{count(blocked_subscriber_count, 'subscriber')} {verb} an invalid row that says inactive, or "
                f"that cannot be read ({self._format_row_numbers(blocking_rows)}), so no other row of "
                f"{choose_form(blocked_subscriber_count, 'this subscriber', 'these subscribers')} is used. Correct the "
                f"{choose_form(blocked_subscriber_count, 'invalid row', 'invalid rows')}"
            )

    def _format_row_numbers(self, rows: list[_RowReference]) -> str:
        file_names, shown_rows = list(self._file_indices), sorted(rows)[:_MAX_SHOWN_ROWS]
        further_rows_text = f" and {len(rows) - _MAX_SHOWN_ROWS:,} more" if len(rows) > _MAX_SHOWN_ROWS else ""
        if len(file_names) > 1:
            row_texts = [f"row {row_number:,} of {file_names[file_index]}" for file_index, row_number in shown_rows]
            return f"{', '.join(row_texts)}{further_rows_text}"
        numbers_text = ", ".join(f"{row_number:,}" for _, row_number in shown_rows)
        return f"{choose_form(len(rows), 'row', 'rows')} {numbers_text}{further_rows_text}"


_READING_GRACE_S = 2.0  # maximum seconds that a stopped run waits for the chunk that the thread is reading


class _ChunkReader:
    """An asynchronous iterator over chunks that ends if the run must stop. A thread reads the next chunk while the
    caller uses the current chunk."""

    def __init__(self, chunks: Iterator[PreparedChunk], stop: Stop) -> None:
        self._chunks, self._stop, self._thread = chunks, stop, ThreadPoolExecutor(1)
        self._next_chunk = self._read_next_chunk()

    def _read_next_chunk(self) -> asyncio.Future[PreparedChunk | None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, next, self._chunks, None)

    async def __aiter__(self) -> AsyncIterator[PreparedChunk]:
        while await self._stop.wait_for(self._next_chunk) and (chunk := self._next_chunk.result()) is not None:
            self._next_chunk = self._read_next_chunk()
            yield chunk
            if self._stop.is_stopping:
                return

    async def close(self) -> bool:
        """End the thread. Return False if the thread is still reading a chunk after `_READING_GRACE_S`."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.wait({self._next_chunk}, timeout=_READING_GRACE_S)
        return self._next_chunk.done()


class SpooledRows(CloseableResource):
    """The rows of a source. The source is read once, and its chunks can be read many times. `identity_field` is the
    field that identifies a subscriber."""

    def __init__(self, source: Source, identity_field: str) -> None:
        self._source, self._spool, self._conflicts = source, Spool(), Conflicts(identity_field)
        self._is_thread_reading = False  # while a thread reads, the source must not be closed
        self.is_read = False
        self.row_count = self.source_row_count = 0  # number of records in this shard, and in the whole source
        self.consent_columns: dict[str, None] = {}  # unmapped consent columns (connector.subscribers.consent)
        self.suppression: Suppression | None = None  # the list with which the rows were read; None: the job has no list

    @property
    def messages(self) -> list[str]:
        """Messages about subscribers that have several rows."""
        return self._conflicts.messages

    def spool(self, chunks: Iterator[PreparedChunk]) -> Iterator[PreparedChunk]:
        """Write each chunk to the disk, and then yield the chunk. Close the source after the last chunk. Raises the
        errors of the source. Raises RunAborted if the disk is full."""
        for prepared_chunk in chunks:
            self._append_chunk(prepared_chunk)
            yield prepared_chunk
        self._finish_reading()

    async def spool_in_thread(self, chunks: Iterator[PreparedChunk], stop: Stop) -> AsyncGenerator[PreparedChunk]:
        """Write and yield the chunks like `spool`, until the run must stop. A thread reads the source, because reading
        a chunk may take an hour and would block the event loop. Close the generator with `aclosing`."""
        chunk_reader = _ChunkReader(chunks, stop)
        try:
            async for prepared_chunk in chunk_reader:
                self._append_chunk(prepared_chunk)
                yield prepared_chunk
        finally:
            self._is_thread_reading = not await chunk_reader.close()
        if not stop.is_stopping:
            await asyncio.to_thread(self._finish_reading)

    def _append_chunk(self, prepared_chunk: PreparedChunk) -> None:
        self._spool.append(prepared_chunk)
        self._conflicts.add(prepared_chunk)
        self.row_count += prepared_chunk.chunk.record_count
        self.source_row_count += prepared_chunk.source_row_count
        self.consent_columns.update(dict.fromkeys(prepared_chunk.consent_columns))

    def _finish_reading(self) -> None:
        self._source.close()
        self._conflicts.choose_used_rows(self._spool.read())
        self.is_read = True

    def read(self, row_limit: int | None = None) -> Iterator[PreparedChunk]:
        """Yield the chunks, with at most `row_limit` records in total. In each chunk, rows that are not used are marked
        as duplicates."""
        remaining_row_count = row_limit
        for prepared_chunk in map(self._conflicts.resolve, self._spool.read()):
            if remaining_row_count is not None:
                prepared_chunk = prepared_chunk.truncate(remaining_row_count)
                remaining_row_count -= prepared_chunk.chunk.record_count
            yield prepared_chunk
            if remaining_row_count == 0:
                return

    async def read_in_thread(self, stop: Stop, row_limit: int | None) -> AsyncGenerator[PreparedChunk]:
        """Yield the chunks like `read` until the run must stop. A thread reads the next chunk. Close the generator with
        `aclosing`."""
        chunk_reader = _ChunkReader(self.read(row_limit), stop)
        try:
            async for prepared_chunk in chunk_reader:
                yield prepared_chunk
        finally:
            await chunk_reader.close()

    def close(self) -> None:
        """Close the source if it is still open, and delete the rows. Do nothing while a thread still reads the source.
        A second call does nothing."""
        if not self._is_thread_reading:
            self._spool.close()
            self._source.close()
