"""The rows of a source: numbered chunks of text with their malformed records, and the rows that a run will load.

A chunk has the unchanged cells of the source. Fields, mapping and validation belong to other modules.
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
    """A record that cannot be a row of a frame: it has too many or too few cells, bytes that cannot be decoded, a NUL
    byte or a stray quote."""

    number: int  # the number of the record, as in `Chunk.row_numbers`
    line: int | None  # the line on which the record starts (1 = first line of the file); None: the source has no lines
    raw_record: str  # the record as text
    code: str  # the kind of the fault; a code never changes its meaning, so that programs can use the code
    message: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of a source.

    `frame` has the source's columns in their order, as pandas `str`, on a RangeIndex from 0, and may be empty. A value
    is missing only if it is missing in the source (NULL).

    `row_numbers` (int64, one for each row of the frame) are the numbers by which a person finds the rows. A row of a
    CSV file or of a workbook has the number that a spreadsheet program shows. So titles, blank lines and the header
    are counted, too. A line of JSON Lines has the number of the line. Other sources count their rows from 1. Malformed
    records are also numbered.
    """

    frame: "pd.DataFrame"
    row_numbers: "npt.NDArray[np.int64]"
    malformed_rows: tuple[MalformedRow, ...]
    name: str  # for messages: the name of the source, or of the file from which the chunk comes
    messages: tuple[str, ...] = ()
    """Messages about the reading of the source. Only the first chunk that a message concerns has the message."""
    number_cell_counts: Mapping[str, int] = field(default_factory=dict)
    """For each column of a workbook: the number of cells that have a number instead of text."""
    read_share: float | None = None  # share (0 to 1) of the source up to the end of this chunk; None: unknown

    @property
    def record_count(self) -> int:
        """The number of records, including malformed records."""
        return len(self.row_numbers) + len(self.malformed_rows)

    def truncate(self, record_count: int) -> "Chunk":
        """Return the first `record_count` records."""
        if self.record_count <= record_count:
            return self
        sorted_record_numbers = sorted([*self.row_numbers.tolist(), *(row.number for row in self.malformed_rows)])
        last_record_number = sorted_record_numbers[record_count - 1]
        row_count = int((self.row_numbers <= last_record_number).sum())
        malformed_rows = tuple(row for row in self.malformed_rows if row.number <= last_record_number)
        return replace(
            self,
            frame=self.frame.iloc[:row_count],
            row_numbers=self.row_numbers[:row_count],
            malformed_rows=malformed_rows,
        )


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """The rows of one chunk that the run will load. The index of the DataFrame `subscribers` has the rows' positions in
    the chunk.

    `identities` (S16) and `fingerprints` (S8) are in the order of `subscribers`. In one run, an identity occurs at most
    once in a base. `omitted_zips` has the texts of zip codes that are not sent (`zip: omit`), by position in the chunk.
    """

    chunk: Chunk
    subscribers: "pd.DataFrame"
    identities: "npt.NDArray[np.bytes_]"
    fingerprints: "npt.NDArray[np.bytes_]"
    omitted_zips: "pd.Series | None" = None

    def select(self, indices: "npt.NDArray[np.int64]") -> "PlannedChunk":
        """Return the rows at these indices of `subscribers` (0 = first)."""
        rows = self.subscribers.iloc[indices]
        return PlannedChunk(self.chunk, rows, self.identities[indices], self.fingerprints[indices], self.omitted_zips)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the source, for a report to a person: its number as in `Chunk.row_numbers`, its file, and its unchanged
    cells."""

    number: int
    file: str
    columns: tuple[str, ...]
    cells: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class OmittedZip:
    """A zip code that is not sent: the row (without cells), the identity as in the source, and the zip code."""

    row: Row
    identity: str
    zip_code: str


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A row that the run will load."""

    source: Row
    identity: bytes  # the digest of the identity
    identity_text: str = field(repr=False)  # the text of the identity
    fingerprint: bytes  # b"" if the row is not compared with the ledger
    values: Mapping[str, object] = field(repr=False)  # by field name
    omitted_zip: OmittedZip | None = field(default=None, repr=False)  # a zip code that is not sent


class CloseableResource(Protocol):
    """A context manager that calls `close` at the end of `with`."""

    def close(self) -> None:
        """Release the file or connection. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Source(CloseableResource, Protocol):
    """A source of rows: files or a database. The rows can be read several times. Use a source with `with`, or close
    the source."""

    @property
    def name(self) -> str:
        """The source's name in messages: a path, or a URL without its password."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in their order, without duplicates."""

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """Yield all records in order. Each call begins with the first record.

        A record is malformed if a column of `used_columns` (None: any column) has a cell that is not text. In other
        columns, such a cell is read as empty. Raises SourceError."""


@contextmanager
def closed_on_error(source: CloseableResource) -> Iterator[None]:
    """Close the source if the body of `with` raises an error."""
    try:
        yield
    except BaseException:
        source.close()
        raise


def format_cell(value: object) -> str | None:
    """Return the value of a field as text, or None for an empty value."""
    if isinstance(value, list):
        return orjson.dumps(value).decode()  # JSON, because any separator could be part of a tag
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
