"""Reads a rejects file as a source, after a person has corrected its rows."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from connector.rows import Chunk, CloseableResource, MalformedRow, Source
from connector.texts import ESCAPED_FORMULA_PATTERN

ADDED_COLUMNS = (
    "_row", "_file", "_outcome", "_field", "_code", "_message", "_http_status", "_attempts", "_run_id", "_at", "_raw",
)  # fmt: skip
"""The columns that a rejects file adds to the columns of the source."""

_WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xls")


def is_workbook_name(name: str) -> bool:
    """Return whether a file or a source with this name is a workbook."""
    return name.lower().endswith(_WORKBOOK_SUFFIXES)


class CorrectedRejects(CloseableResource):
    """A rejects file as a source. In a CSV file, the apostrophes before formulas are removed from the cells. If a line
    has its text only in the column `_raw`, the line stays malformed until a person fills the other cells."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._has_escaped_formulas = not is_workbook_name(source.name)
        self.name, self.columns = source.name, source.columns

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        for chunk in self._source.read_chunks(used_columns):
            frame = (
                chunk.frame.replace(ESCAPED_FORMULA_PATTERN, r"\1", regex=True)
                if self._has_escaped_formulas
                else chunk.frame
            )
            source_columns = list(select_source_columns([str(name) for name in frame.columns]))
            uncorrected_mask = ((frame[source_columns] == "").all(axis=1) & (frame["_raw"] != "")).to_numpy()
            uncorrected_rows = frame[uncorrected_mask]
            message = "is not corrected yet: write the cells of {!r} into their columns"
            malformed_rows = [
                MalformedRow(int(row_number), None, raw_record, code or "ragged", message.format(raw_record))
                for row_number, raw_record, code in zip(
                    chunk.row_numbers[uncorrected_mask],
                    uncorrected_rows["_raw"],
                    uncorrected_rows["_code"],
                    strict=True,
                )
            ]
            yield replace(
                chunk,
                frame=frame[~uncorrected_mask].reset_index(drop=True),
                row_numbers=chunk.row_numbers[~uncorrected_mask],
                malformed_rows=tuple(sorted([*chunk.malformed_rows, *malformed_rows], key=lambda row: row.number)),
            )

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        self._source.close()


def read_corrections(source: Source) -> Source:
    """Return a rejects file as `CorrectedRejects`, and any other source unchanged."""
    return CorrectedRejects(source) if is_rejects_file(source.columns) else source


def is_rejects_file(columns: Sequence[str]) -> bool:
    """Return whether a file with these columns is a rejects file."""
    return set(ADDED_COLUMNS) <= set(columns)


def select_source_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the source. If `columns` are the columns of a rejects file, leave out the added columns."""
    if not is_rejects_file(columns):
        return tuple(columns)
    return tuple(name for name in columns if name not in ADDED_COLUMNS)
