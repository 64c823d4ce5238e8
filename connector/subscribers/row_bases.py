"""Which base each row is for, where a column of the source says it; whether there is such a base it does not know."""

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

    Places = npt.NDArray[np.int64]

_NAMED_AT_MOST = 10  # of the cells that a message allows: it stands in a line of the rejects file


@dataclass(frozen=True, slots=True)
class BaseColumn:
    """The column that says each row's base; `values` is the base by cell, and None: the cell is the base itself.

    Cells and the keys of `values` are trimmed. Raises ConfigurationError for what makes no sense, and where some values
    are ids and others are names (architecture 4.14).
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
        """The field that a cell without a base leaves empty: base_id where all are asked for by id."""
        is_by_id = self.values is not None and all(base.name is None for base in self.values.values())
        return "base_id" if is_by_id else "base_name"


@dataclass(frozen=True, slots=True)
class RowBases:
    """The base of each row of a frame, in its order: a place in `asked` (0-based), -1 for a row that has a fault."""

    places: Places
    asked: tuple[BaseRef, ...]

    def select(self, rows: slice | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> RowBases:
        """Return the same of some of the rows, by position or by a mask."""
        return RowBases(self.places[rows], self.asked)

    def split(self) -> Iterator[tuple[BaseRef, Places]]:
        """Yield each base that a row is for, with the positions of its rows: in the order in which the bases first
        appear."""
        import numpy as np

        order = np.argsort(self.places, kind="stable")
        found, begins = np.unique(self.places[order], return_index=True)
        groups = dict(zip(found.tolist(), np.split(order, begins[1:]), strict=True)) if len(found) else {}
        for place in sorted((each for each in groups if each >= 0), key=lambda each: int(groups[each][0])):
            yield self.asked[place], groups[place]


def list_columns(mapped: Iterable[str], base: BaseColumn | None) -> tuple[str, ...]:
    """Return the source's columns that are used, each once: those of the mapping, and that of the base."""
    return tuple(dict.fromkeys([*mapped, *([] if base is None else [base.column])]))


def parse_base(text: str) -> BaseRef:
    """Return the base that a text names, trimmed: digits are an id, anything else a name. Raises ValueError, in
    words."""
    word = text.strip()
    if word.isascii() and word.isdigit():
        number = int(word) if len(word) <= len(str(LARGEST_ID)) else 0
        if not 1 <= number <= LARGEST_ID:
            raise ValueError("no base has this id: ids are whole numbers from 1, of 64 bits")
        return BaseRef(service_id=number)
    if not word or not word.isprintable():
        raise ValueError("must be an id, or a name in printable characters")
    return BaseRef(name=word)


def refuse_mixed(column: str, asked: Iterable[BaseRef]) -> None:
    """Raise ConfigurationError if some of these bases are named by id and others by name: one base might be named both
    ways, and only the service could tell (architecture 4.14)."""
    bases = list(asked)
    by_id = next((base.service_id for base in bases if base.service_id is not None), None)
    by_name = next((base.name for base in bases if base.name is not None), None)
    if by_id is not None and by_name is not None:
        raise ConfigurationError(
            f"the column {column} names one base by its id ({by_id}) and another by its name ({by_name}): within a run "
            "all bases are named by ids or all by names. Correct the cells, or list under subscriber.base.values what "
            "they mean"
        )


def read_bases(frame: pd.DataFrame, rule: BaseColumn) -> tuple[RowBases, tuple[Fault, ...]]:
    """Return the base of each row of a chunk's frame (text columns), and the faults of the rows that name none."""
    import numpy as np
    import pyarrow.compute as pc

    from connector.subscribers.checks import read_cells

    if rule.values is None:
        allowed = "must hold a base's id (a whole number from 1) or its name"
    else:
        more = len(rule.values) - _NAMED_AT_MOST
        named = ", ".join(list(rule.values)[:_NAMED_AT_MOST])
        allowed = f"must hold one of {named}{f' and {more} more' if more > 0 else ''}"
    cells = pc.utf8_trim_whitespace(read_cells(frame[rule.column])).dictionary_encode()
    words = [*cells.dictionary.to_pylist(), ""]  # the last one stands for missing cells
    codes = cells.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    asked: dict[BaseRef, int] = {}
    place_of = np.full(len(words), -1, dtype=np.int64)
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
            place_of[code] = asked.setdefault(base, len(asked))
        else:
            fault, problem = ("base", "is not known") if word else ("required", "is missing")
            message = f"{wire_name(BY_NAME[field])} {problem}: the column {rule.column} {allowed}"
            faults[code] = (field, fault, message)
    places = place_of[codes]
    rows = np.flatnonzero(places < 0)
    return RowBases(places, tuple(asked)), tuple(Fault(int(row), *faults[int(codes[row])]) for row in rows)
