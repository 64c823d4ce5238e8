"""Reads the base of each row from a column of the source. Only the service knows whether the base exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.fields import BY_NAME, LARGEST_ID, BaseRef, wire_name
from connector.outcomes import Fault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    Indices = npt.NDArray[np.int64]

_MAX_CELLS_NAMED = 10  # allowed cells in a message, which is one cell of the rejects file


@dataclass(frozen=True, slots=True)
class BaseColumn:
    """The column that names the base of each row. `values` has the base by cell; None: each cell is an id or a name.

    Cells and the keys of `values` are trimmed. Raises ConfigurationError if `values` is empty, has an empty cell or a
    cell twice, or if some bases are ids and others are names (architecture 4.14).
    """

    column: str
    values: Mapping[str, BaseRef] | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            return
        trimmed = {cell.strip(): base for cell, base in self.values.items()}
        if not trimmed:
            raise ConfigurationError("values must name a base for one cell at least")
        if "" in trimmed:
            raise ConfigurationError("values: an empty cell names no base; a row without one is invalid")
        if len(trimmed) < len(self.values):
            raise ConfigurationError("values names a cell twice; white space around it does not count")
        object.__setattr__(self, "values", MappingProxyType(trimmed))
        refuse_mixed(self.column, trimmed.values())

    @property
    def field(self) -> str:
        """The field of a fault if a cell names no base: base_id if all `values` are ids, else base_name."""
        is_by_id = self.values is not None and all(base.name is None for base in self.values.values())
        return "base_id" if is_by_id else "base_name"


@dataclass(frozen=True, slots=True)
class RowBases:
    """The base of each row of a frame in its order: an index in `bases`, or -1 for a row that has a fault."""

    indices: Indices
    bases: tuple[BaseRef, ...]

    def select(self, rows: slice | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> RowBases:
        """Return the bases of the rows at these positions, or of the rows of a mask."""
        return RowBases(self.indices[rows], self.bases)

    def split(self) -> Iterator[tuple[BaseRef, Indices]]:
        """Yield each base with the positions of its rows, in the order in which the bases first appear."""
        import numpy as np

        order = np.argsort(self.indices, kind="stable")
        used, begins = np.unique(self.indices[order], return_index=True)
        groups = dict(zip(used.tolist(), np.split(order, begins[1:]), strict=True)) if len(used) else {}
        for index in sorted((index for index in groups if index >= 0), key=lambda index: int(groups[index][0])):
            yield self.bases[index], groups[index]


def list_columns(mapped: Iterable[str], base: BaseColumn | None) -> tuple[str, ...]:
    """Return the used columns of the source without duplicates: the columns of the mapping, and the column of the
    base."""
    return tuple(dict.fromkeys([*mapped, *([] if base is None else [base.column])]))


def parse_base(text: str) -> BaseRef:
    """Return the base that a text names. Digits are an id, any other text is a name. Raises ValueError with a
    message."""
    word = text.strip()
    if word.isascii() and word.isdigit():
        number = int(word) if len(word) <= len(str(LARGEST_ID)) else 0
        if not 1 <= number <= LARGEST_ID:
            raise ValueError("no base has this id: ids are whole numbers from 1, of 64 bits")
        return BaseRef(service_id=number)
    if not word or not word.isprintable():
        raise ValueError("must be an id, or a name in printable characters")
    return BaseRef(name=word)


def refuse_mixed(column: str, named_bases: Iterable[BaseRef]) -> None:
    """Raise ConfigurationError if some of these bases are named by id and others by name: both may be one base,
    and only the service knows that (architecture 4.14)."""
    bases = list(named_bases)
    by_id = next((base.service_id for base in bases if base.service_id is not None), None)
    by_name = next((base.name for base in bases if base.name is not None), None)
    if by_id is not None and by_name is not None:
        raise ConfigurationError(
            f"the column {column} names one base by its id ({by_id}) and another by its name ({by_name}): within a run "
            "all bases are named by ids or all by names. Correct the cells, or list the bases of the cells under "
            "subscriber.base.values"
        )


def read_bases(frame: pd.DataFrame, rule: BaseColumn) -> tuple[RowBases, tuple[Fault, ...]]:
    """Return the base of each row of a chunk's frame (text columns), and the faults of rows that name no base."""
    import numpy as np
    import pyarrow.compute as pc

    from connector.subscribers.checks import read_cells

    if rule.values is None:
        allowed = "must hold a base's id (a whole number from 1) or its name"
    else:
        more = len(rule.values) - _MAX_CELLS_NAMED
        named = ", ".join(list(rule.values)[:_MAX_CELLS_NAMED])
        allowed = f"must hold one of {named}{f' and {more} more' if more > 0 else ''}"
    cells = pc.utf8_trim_whitespace(read_cells(frame[rule.column])).dictionary_encode()
    words = [*cells.dictionary.to_pylist(), ""]  # the last word is for missing cells
    codes = cells.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    bases: dict[BaseRef, int] = {}
    index_by_code = np.full(len(words), -1, dtype=np.int64)
    faults: dict[int, tuple[str, str, str]] = {}  # field, code and message of the cells that name no base
    for code, word in enumerate(words):
        base, field = None, rule.field
        if rule.values is not None:
            base = rule.values.get(word)
        elif word:
            field = "base_id" if word.isdigit() else "base_name"
            with suppress(ValueError):
                base = parse_base(word)
        if base is not None:
            index_by_code[code] = bases.setdefault(base, len(bases))
        else:
            fault, problem = ("base", "is not known") if word else ("required", "is missing")
            message = f"{wire_name(BY_NAME[field])} {problem}: the column {rule.column} {allowed}"
            faults[code] = (field, fault, message)
    indices = index_by_code[codes]
    rows = np.flatnonzero(indices < 0)
    return RowBases(indices, tuple(bases)), tuple(Fault(int(row), *faults[int(codes[row])]) for row in rows)
