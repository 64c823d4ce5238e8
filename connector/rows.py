"""The rows of a source: numbered chunks of text with their malformed records, and the rows that a run will load.

A chunk contains the cells of the source, unchanged. This module knows no fields, mapping or validation.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import orjson

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True, slots=True)
class MalformedRow:
    """A record that cannot be a row of a frame: ragged, undecodable, with a NUL byte or a stray quote.

    `number` is the record number, as in `Chunk.numbers`. `line` is the line on which the record starts, from 1 with the
    header counted; None if the source has no lines. `raw` is the record as text, and `code` a stable word.
    """

    number: int
    line: int | None
    raw: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of a source.

    `frame` has the source's columns in their order, as pandas `str`, on a RangeIndex from 0, and may be empty. A value
    is missing only if it is missing in the source (NULL). `numbers` (int64, one for each row of the frame) are record
    numbers from 1, which count malformed records too, or numbers of the source (rows of a sheet, lines of a file).
    `name` is the source's name in messages, or the name of the one file. `messages` say how the source was read; only
    the first chunk that a message concerns has the message. `number_cells` counts, for each column of a workbook, the
    cells with a number instead of text.
    """

    frame: "pd.DataFrame"
    numbers: "npt.NDArray[np.int64]"
    malformed: tuple[MalformedRow, ...]
    name: str
    messages: tuple[str, ...] = ()
    number_cells: Mapping[str, int] = field(default_factory=dict)
    share: float | None = None  # of the source that has been read after this chunk, 0 to 1; None if unknown

    @property
    def record_count(self) -> int:
        """The number of records, with malformed records."""
        return len(self.numbers) + len(self.malformed)

    def cut(self, record_count: int) -> "Chunk":
        """Return the first `record_count` records."""
        if self.record_count <= record_count:
            return self
        numbers = sorted([*self.numbers.tolist(), *(row.number for row in self.malformed)])
        last_number = numbers[record_count - 1]
        size = int((self.numbers <= last_number).sum())
        malformed = tuple(row for row in self.malformed if row.number <= last_number)
        return replace(self, frame=self.frame.iloc[:size], numbers=self.numbers[:size], malformed=malformed)


@dataclass(frozen=True, slots=True)
class Planned:
    """The rows of one chunk that the run will load. The index of `subscribers` is the position in the chunk.

    `identities` (S16) and `fingerprints` (S8) are in the order of `subscribers`. In one run no identity occurs twice in
    a base. `omitted_zips` are texts of zip codes that are not sent (zip: omit), by position; None if all are sent.
    """

    chunk: Chunk
    subscribers: "pd.DataFrame"
    identities: "npt.NDArray[np.bytes_]"
    fingerprints: "npt.NDArray[np.bytes_]"
    omitted_zips: "pd.Series | None" = None

    def select(self, indices: "npt.NDArray[np.int64]") -> "Planned":
        """Return the rows at these indices of `subscribers`, from 0."""
        rows = self.subscribers.iloc[indices]
        return Planned(self.chunk, rows, self.identities[indices], self.fingerprints[indices], self.omitted_zips)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the source, for a report to a person: record number (from 1), file, and unchanged cells."""

    number: int
    file: str
    columns: tuple[str, ...]
    cells: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Omission:
    """A zip code that is not sent: its row (without cells), the identity as the source has it, and the zip code."""

    row: Row
    identity: str
    zip: str


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A row that the run will load."""

    source: Row
    identity: bytes  # digest
    name: str = field(repr=False)  # the text of the identity
    fingerprint: bytes  # b"" if the row is compared with nothing
    values: Mapping[str, object] = field(repr=False)  # by field name
    omission: Omission | None = field(default=None, repr=False)  # a zip code that is not sent


class Closing(Protocol):
    """A context manager that calls its `close` at the end of `with`."""

    def close(self) -> None:
        """Release the file or connection; may be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Source(Closing, Protocol):
    """Rows of files or of a database, which can be read several times. Use the source with `with`, or close it."""

    @property
    def name(self) -> str:
        """The source's name in messages: a path, or a URL without its password."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in their order, without duplicates."""

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """Yield all records in order; each call begins with the first record.

        A record is malformed if a cell that is not text is in a column of `used` (None: in any column). In other
        columns such a cell is empty. Raises SourceError."""


@contextmanager
def closed_on_error(source: Closing) -> Iterator[None]:
    """Close the source if the body raises."""
    try:
        yield
    except BaseException:
        source.close()
        raise


def write_cell(value: object) -> str | None:
    """Return the value of one field as text; None for an empty one."""
    if isinstance(value, list):
        return orjson.dumps(value).decode()  # any separator could be part of a tag
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
