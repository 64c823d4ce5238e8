"""A source that may be read more than once: it is opened anew each time, for whoever surveys before loading."""

from collections.abc import Callable, Iterator

from connector.errors import SourceError
from connector.extract.chunk import Chunk, Source
from connector.extract.closing import Closing


class RepeatedSource(Closing):
    """What `open_repeatedly` opens: each call of `chunks` gives the records from the beginning, as they are by then."""

    def __init__(self, opener: Callable[[], Source], at_close: Callable[[], None]) -> None:
        self._opener, self._at_close = opener, at_close
        self._source = opener()
        self._is_fresh = True
        self.name, self.columns = self._source.name, self._source.columns

    @property
    def columns_by_file(self) -> dict[str, tuple[str, ...]]:
        """Of several files the columns of each; empty of one alone."""
        by_file: dict[str, tuple[str, ...]] = getattr(self._source, "columns_by_file", {})
        return by_file

    def chunks(self) -> Iterator[Chunk]:
        """Give the records, in order, as any source does. Raises SourceError, also for columns that have changed."""
        if not self._is_fresh:
            self._source.close()
            self._source = self._opener()
        self._is_fresh = False
        if self._source.columns != self.columns:
            raise SourceError(f"{self.name}: its columns have changed since the run began; run again")
        yield from self._source.chunks()

    def close(self) -> None:
        """Let go of all; may be called more than once."""
        self._source.close()
        self._at_close()


def open_repeatedly(opener: Callable[[], Source], at_close: Callable[[], None] = lambda: None) -> Source:
    """Open a source that may be read as often as `opener` can open it; `at_close` is done with its closing.

    Raises as `opener` does.
    """
    try:
        return RepeatedSource(opener, at_close)
    except BaseException:
        at_close()
        raise
