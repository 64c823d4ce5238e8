"""What a source gives: chunks of rows as text, numbered, with the malformed records beside them; and rows to be loaded.

A cell of a chunk is what the source holds: fields, mapping and validity are unknown here.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import orjson

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True, slots=True)
class MalformedRow:
    """A record that has no place in a frame: ragged, undecodable, with a NUL byte or a stray quote.

    `number` counts records from 1 (or is as in `Chunk.numbers`), `line` is the physical line it starts on (1-based, the
    header's line included; None where a source has no lines), `raw` the record as text, `code` a stable word.
    """

    number: int
    line: int | None
    raw: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of a source.

    `frame` has the source's own columns in order, as pandas `str`, on a RangeIndex from 0 (a missing value only where
    the source has one: SQL's NULL); it may be empty. `numbers` (int64, one per frame row) are record numbers from 1,
    running over good and malformed records alike, or the source's own numbers (a sheet's rows, a file's lines). `name`
    is the source's name for messages: of several files, the one that these rows are from. `messages` say how the source
    was read, each once in a source, with the first chunk that it concerns. `number_cells` counts, for each column of a
    workbook, the cells that hold a number and no text.
    """

    frame: "pd.DataFrame"
    numbers: "npt.NDArray[np.int64]"
    malformed: tuple[MalformedRow, ...]
    name: str
    messages: tuple[str, ...] = ()
    number_cells: Mapping[str, int] = field(default_factory=dict)
    share: float | None = None  # of the source that had been read with it, 0 to 1; None: not known


@dataclass(frozen=True, slots=True)
class Planned:
    """The rows of one chunk that are to be loaded: `subscribers` is indexed by position in the chunk.

    `identities` (S16) and `fingerprints` (S8) are in the order of `subscribers`; in one run no identity occurs twice in
    a base. `omitted_zips` are the texts of zips that are not sent (zip: omit), by position; None: there are none.
    """

    chunk: Chunk
    subscribers: "pd.DataFrame"
    identities: "npt.NDArray[np.bytes_]"
    fingerprints: "npt.NDArray[np.bytes_]"
    omitted_zips: "pd.Series | None" = None

    def select(self, indices: "npt.NDArray[np.int64]") -> "Planned":
        """Return some of the rows, by their indices in `subscribers` (0-based)."""
        rows = self.subscribers.iloc[indices]
        return Planned(self.chunk, rows, self.identities[indices], self.fingerprints[indices], self.omitted_zips)


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its source gave it, for a person who looks for it: record number (from 1), file, cells as they came."""

    number: int
    file: str
    columns: tuple[str, ...]
    cells: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Omission:
    """A zip that is left out of what is sent: the row (without its cells), its identity as the source has it, and the
    zip."""

    row: Row
    identity: str
    zip: str


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A row to be loaded: as its source gave it, digest and text of its identity, fingerprint (b"": it is compared
    with nothing), values by field name, and a zip that would not be sent."""

    source: Row
    identity: bytes
    name: str = field(repr=False)
    fingerprint: bytes
    values: Mapping[str, object] = field(repr=False)
    omission: Omission | None = field(default=None, repr=False)


class Closing(Protocol):
    """Something with a `close`, which a `with` calls at its end in any case."""

    def close(self) -> None:
        """Release the file or connection; may be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Source(Closing, Protocol):
    """Rows from a file, files or a database, to be read as often as is wanted; to be closed, or used with `with`."""

    @property
    def name(self) -> str:
        """Its name in messages: a file's path, a table; never with a password in it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order, each once."""

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """Yield the records in order, from the first, each time; none for a source without records.

        A record is malformed if a cell of a column in `used` (None: of any column) holds no text. Such a cell in
        another column is empty. Raises SourceError."""


def write_cell(value: object) -> str | None:
    """Return the value of one field as text; None for an empty one."""
    if isinstance(value, list):
        return orjson.dumps(value).decode()  # a tag may hold whatever else could separate it from the next
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
