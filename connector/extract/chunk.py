"""What every source gives: chunks of rows as text, numbered, and beside them the records that are no rows.

It knows nothing of fields, mapping or validity: a cell is what the source said, and no more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from connector.extract.closing import Closing


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

    `frame` has the source's own columns in order, as pandas `str`, on a RangeIndex from 0 (a missing value
    only where the source has one: SQL's NULL); `numbers` (int64, one per frame row) are record numbers from 1,
    running over good and malformed records alike, or what else the source itself shows them by (a sheet's rows, a
    file's lines); `name` is the source's, for people: of several files the one that these are from. `frame` may be
    empty. `messages` tell a person how the source was read, each once in a source, with the first chunk that it is
    about. `number_cells` tells of a workbook's columns how many of their cells were numbers, and no text.
    """

    frame: pd.DataFrame
    numbers: npt.NDArray[np.int64]
    malformed: tuple[MalformedRow, ...]
    name: str
    messages: tuple[str, ...] = ()
    number_cells: Mapping[str, int] = field(default_factory=dict)


class Source(Closing, Protocol):
    """Rows from somewhere, read once from the beginning; to be closed, or used as a context manager."""

    @property
    def name(self) -> str:
        """What a person calls it: a file's path, a table; never with a password in it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order, each once."""

    def chunks(self) -> Iterator[Chunk]:
        """Give the records, once, in order; none for a source without records. Raises SourceError."""
