"""The rejects file: rows that a person must look at, with the source's own columns as they came."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.atomic_file import GUARDED
from connector.load import Problem, Row
from connector.load.candidates import take_row
from connector.outcomes import Fault, Outcome
from connector.rows import Chunk, Closing, MalformedRow, Source
from pipelines.rows.row_file import RowFile

ADDED_COLUMNS = (
    "_row", "_file", "_outcome", "_field", "_code", "_message", "_http_status", "_attempts", "_run_id", "_at", "_raw",
)  # fmt: skip


class RejectsFile:
    """Written as the run goes, a line for each problem."""

    def __init__(self, path: Path, columns: Sequence[str], run_id: str, now: Callable[[], datetime]) -> None:
        self._columns = own_columns(columns)
        self._run_id = run_id
        self._now = now
        header = [*self._columns, *ADDED_COLUMNS]
        self._file = RowFile(path, header, "rejects file", "rows that a person should see")

    @property
    def path(self) -> str | None:
        """Where it is, or None if no row was written."""
        return self._file.path

    @property
    def failure(self) -> str | None:
        """Why it could not be written, which ends the run at the next chunk."""
        return self._file.failure

    def write(self, problem: Problem, raw: str | None = None) -> None:
        """Add one row."""
        row, at = problem.row, self._now().isoformat(timespec="seconds")
        cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
        written: list[object] = [
            *(cells.get(name) for name in self._columns),
            *(row.number, row.file, problem.outcome, problem.field, problem.code, problem.message),
            *(problem.http_status, problem.attempts, self._run_id, at, raw),
        ]
        self._file.write(written)

    def begin_anew(self) -> None:
        """Throw away what was written: all rows are read again."""
        self._file.begin_anew()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class CorrectedRejects(Closing):
    """A rejects file as a source: its cells unguarded, and a record that is still no row as malformed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.columns = source.name, source.columns

    def chunks(self) -> Iterator[Chunk]:
        """Give the rows, once, in order. Raises SourceError."""
        return map(_take_corrections, self._source.chunks())

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._source.close()


def read_corrections(source: Source) -> Source:
    """The source itself, or its corrections if it is a rejects file."""
    return CorrectedRejects(source) if is_rejects(source.columns) else source


def _take_corrections(chunk: Chunk) -> Chunk:
    frame = chunk.frame.replace(GUARDED, r"\1", regex=True)
    own = list(own_columns([str(name) for name in frame.columns]))
    is_left = ((frame[own] == "").all(axis=1) & (frame["_raw"] != "")).to_numpy()
    if not is_left.any():
        return replace(chunk, frame=frame)
    left = frame[is_left]
    malformed = [
        MalformedRow(
            int(number),
            None,
            raw,
            code or "ragged",
            f"is not corrected yet: write the cells of {raw!r} into their columns",
        )
        for number, raw, code in zip(chunk.numbers[is_left], left["_raw"], left["_code"], strict=True)
    ]
    both = sorted([*chunk.malformed, *malformed], key=lambda row: row.number)
    good = frame[~is_left].reset_index(drop=True)
    return replace(chunk, frame=good, numbers=chunk.numbers[~is_left], malformed=tuple(both))


def is_rejects(columns: Sequence[str]) -> bool:
    """Whether these are the columns of a rejects file."""
    return set(ADDED_COLUMNS) <= set(columns)


def own_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The source's own columns: of a rejects file those of the source that it came from."""
    return tuple(name for name in columns if not (is_rejects(columns) and name in ADDED_COLUMNS))


def build_malformed(row: MalformedRow, file: str) -> Problem:
    """A record that could not be read as a row."""
    where = f"line {row.line}: " if row.line is not None else ""
    return Problem(Row(row.number, file, (), ()), Outcome.INVALID, "", row.code, where + row.message)


def build_invalid(chunk: Chunk, faults: Sequence[Fault]) -> list[Problem]:
    """The invalid rows of a chunk, each with all that is wrong with it in one line."""
    by_position: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_position[fault.position].append(fault)
    return [
        Problem(
            take_row(chunk, position),
            Outcome.INVALID,
            "; ".join(fault.field for fault in of_row),
            "; ".join(fault.code for fault in of_row),
            "; ".join(fault.message for fault in of_row),
        )
        for position, of_row in sorted(by_position.items())
    ]


def build_different(chunk: Chunk, position: int, identity: str) -> Problem:
    """A repeated row that says something else than the first one of its identity."""
    message = f"an earlier row has the same {identity} and other values; that one was used"
    return Problem(take_row(chunk, position), Outcome.DUPLICATE, identity, "differs", message)
