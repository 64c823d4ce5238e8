"""Reads a source to its end before anything is sent. Then the source is closed, and its rows are on disk.

So a slow service keeps no connection and no lock of the source's database. If the source cannot be read to its end,
nothing is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from connector.conflicts import Conflicts
from connector.control import Stop
from connector.rows import Closing, Source
from connector.spool import Spool
from connector.subscribers.preparation import PreparedChunk
from connector.subscribers.suppression import Suppression

_READING_GRACE_S = 2.0  # seconds that a stopped run waits for the chunk that the thread is reading


class _ReadAhead:
    """Yields the chunks of an iterator until the run must stop. A thread reads the next chunk meanwhile."""

    def __init__(self, chunks: Iterator[PreparedChunk], stop: Stop) -> None:
        self._chunks, self._stop, self._thread = chunks, stop, ThreadPoolExecutor(1)
        self._next_chunk = self._read_next()

    def _read_next(self) -> asyncio.Future[PreparedChunk | None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, next, self._chunks, None)

    async def __aiter__(self) -> AsyncIterator[PreparedChunk]:
        while await self._stop.wait_for(self._next_chunk) and (chunk := self._next_chunk.result()) is not None:
            self._next_chunk = self._read_next()
            yield chunk
            if self._stop.is_stopping:
                return

    async def close(self) -> bool:
        """End the thread. Return False if the thread is still reading a chunk after `_READING_GRACE_S`."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.wait({self._next_chunk}, timeout=_READING_GRACE_S)
        return self._next_chunk.done()


class SpooledRows(Closing):
    """Reads a source once, and yields its chunks as often as needed. `identity` is the field that identifies a row."""

    def __init__(self, source: Source, identity: str) -> None:
        self._source, self._spool, self._conflicts = source, Spool(), Conflicts(identity)
        self._is_thread_reading = False  # if true, the source must not be closed
        self.is_read = False
        self.row_count = self.source_row_count = 0  # records of this shard, and of the whole source
        self.consent: dict[str, None] = {}  # unmapped columns that say who wants no email
        self.suppression: Suppression | None = None  # the list that has suppressed rows

    @property
    def messages(self) -> list[str]:
        """Messages about subscribers with several rows."""
        return self._conflicts.messages

    def spool(self, chunks: Iterator[PreparedChunk]) -> Iterator[PreparedChunk]:
        """Write each chunk to disk, then yield the chunk. Close the source at its end. Raises the errors of the
        source, and RunAborted if the disk is full."""
        for prepared in chunks:
            self._append(prepared)
            yield prepared
        self._end()

    async def spool_in_thread(self, chunks: Iterator[PreparedChunk], stop: Stop) -> AsyncGenerator[PreparedChunk]:
        """Spool the chunks until the run must stop. A thread reads the source, because a chunk may take an hour. Close
        the generator with `aclosing`."""
        ahead = _ReadAhead(chunks, stop)
        try:
            async for prepared in ahead:
                self._append(prepared)
                yield prepared
        finally:
            self._is_thread_reading = not await ahead.close()
        if not stop.is_stopping:
            await asyncio.to_thread(self._end)

    def _append(self, prepared: PreparedChunk) -> None:
        self._spool.append(prepared)
        self._conflicts.add(prepared)
        self.row_count += prepared.chunk.record_count
        self.source_row_count += prepared.source_rows
        self.consent.update(dict.fromkeys(prepared.consent))

    def _end(self) -> None:
        self._source.close()
        self._conflicts.settle(self._spool.read())
        self.is_read = True

    def read(self, limit: int | None = None) -> Iterator[PreparedChunk]:
        """Yield the chunks, up to `limit` records. In each chunk, the rows that are not used are duplicates."""
        remaining = limit
        for prepared in map(self._conflicts.resolve, self._spool.read()):
            if remaining is None:
                yield prepared
            else:
                yield (part := prepared.cut(remaining))
                remaining -= part.chunk.record_count
            if remaining == 0:
                return

    async def read_in_thread(self, stop: Stop, limit: int | None = None) -> AsyncGenerator[PreparedChunk]:
        """Yield the chunks like `read` until the run must stop. A thread reads the next chunk. Close the generator with
        `aclosing`."""
        ahead = _ReadAhead(self.read(limit), stop)
        try:
            async for prepared in ahead:
                yield prepared
        finally:
            await ahead.close()

    def close(self) -> None:
        """Close the source if it is still open, and delete the rows. May be called more than once."""
        if not self._is_thread_reading:
            self._spool.close()
            self._source.close()
