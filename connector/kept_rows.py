"""The rows of a source, read to its end before anything is sent: the source is closed then, and the rows wait on disk.

So a slow service costs no database connection, holds no lock in the source's database, and nothing is sent of a source
that cannot be read to its end.
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

_READING_GRACE_S = 2.0  # for a chunk that is being read when the run is stopped; then the process ends without it


class _Ahead:
    """Yields what an iterator yields until the run must stop; a thread takes the next item meanwhile."""

    def __init__(self, items: Iterator[PreparedChunk], stop: Stop) -> None:
        self._items, self._stop, self._thread = items, stop, ThreadPoolExecutor(1)
        self._next = self._begin()

    def _begin(self) -> asyncio.Future[PreparedChunk | None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, next, self._items, None)

    async def __aiter__(self) -> AsyncIterator[PreparedChunk]:
        while await self._stop.wait_for(self._next) and (item := self._next.result()) is not None:
            self._next = self._begin()
            yield item
            if self._stop.is_stopping:
                return

    async def close(self) -> bool:
        """End the thread, and return whether the thread has ended: it may still wait for its item."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.wait({self._next}, timeout=_READING_GRACE_S)
        return self._next.done()


class KeptRows(Closing):
    """Reads a source once, and yields its chunks as often as needed. `identity` is the field that rows are known by."""

    def __init__(self, source: Source, identity: str) -> None:
        self._source, self._spool, self._conflicts = source, Spool(), Conflicts(identity)
        self._is_left_behind = False  # a thread still reads the source, which must not be closed then
        self.is_read = False
        self.row_count = self.source_row_count = 0  # records of this shard, and of the whole source
        self.consent: dict[str, None] = {}  # columns that say who wants no email, and that nothing reads
        self.suppression: Suppression | None = None  # the list that the rows were compared with

    @property
    def messages(self) -> list[str]:
        """Messages about subscribers with several rows."""
        return self._conflicts.messages

    def keep(self, chunks: Iterator[PreparedChunk]) -> Iterator[PreparedChunk]:
        """Yield each chunk of the source once it is on disk; close the source at its end. Raises what the source
        raises, and RunAborted if the disk is full."""
        for prepared in chunks:
            self._append(prepared)
            yield prepared
        self._end()

    async def keep_in_thread(self, chunks: Iterator[PreparedChunk], stop: Stop) -> AsyncGenerator[PreparedChunk]:
        """Do the same until the run must stop, and read the source in a thread: it may take an hour for a chunk. To be
        closed (aclosing)."""
        ahead = _Ahead(chunks, stop)
        try:
            async for prepared in ahead:
                self._append(prepared)
                yield prepared
        finally:
            self._is_left_behind = not await ahead.close()
        if not stop.is_stopping:
            await asyncio.to_thread(self._end)

    def _append(self, prepared: PreparedChunk) -> None:
        self._spool.append(prepared)
        self._conflicts.note(prepared)
        self.row_count += prepared.read
        self.source_row_count += prepared.source_rows
        self.consent.update(dict.fromkeys(prepared.consent))

    def _end(self) -> None:
        self._source.close()
        self._conflicts.settle(self._spool.read())
        self.is_read = True

    def read(self, limit: int | None = None) -> Iterator[PreparedChunk]:
        """Yield the chunks, up to `limit` records, with the row that is used for each subscriber known."""
        remaining = limit
        for prepared in map(self._conflicts.resolve, self._spool.read()):
            if remaining is None:
                yield prepared
            else:
                yield (part := prepared.cut(remaining))
                remaining -= part.read
            if remaining == 0:
                return

    async def read_in_thread(self, stop: Stop, limit: int | None = None) -> AsyncGenerator[PreparedChunk]:
        """Yield the same until the run must stop, and read the next chunk in a thread. To be closed (aclosing)."""
        ahead = _Ahead(self.read(limit), stop)
        try:
            async for prepared in ahead:
                yield prepared
        finally:
            await ahead.close()

    def close(self) -> None:
        """Close the source, if it is still open, and forget its rows; may be called more than once."""
        if not self._is_left_behind:
            self._spool.close()
            self._source.close()
