"""Who hears of a run's rows one by one: a load writes its rejects and its drift file, a plan a line for each row."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from connector.load import Problem, Tally
from connector.subscribers import PreparedChunk
from pipelines.rows.drift import DriftFile
from pipelines.rows.rejects import RejectsFile


class RowListener(Protocol):
    """A context manager that hears of rows; `failure` is why it could not keep what it heard, which ends the run."""

    @property
    def failure(self) -> str | None: ...

    @property
    def rejects_path(self) -> str | None:
        """Of the file that was written, if any; `drift_path` likewise."""

    @property
    def drift_path(self) -> str | None: ...

    @property
    def lines(self) -> list[dict[str, object]] | None:
        """The rows one by one for the report, if it is to hold them, once the context has ended."""

    def build_tally(self) -> Tally:
        """The sums of the run, and this listener told of rows."""

    def begin_chunk(self, prepared: PreparedChunk) -> None:
        """The outcomes of these rows are told next."""

    def write(self, problem: Problem, raw: str | None = None) -> None:
        """A row that a person must see; `raw` is a record that is no row."""

    def remark(self) -> Iterator[str]:
        """What a person should know of all that was told."""

    def begin_anew(self) -> None:
        """All rows were surveyed, and are read again: what was heard of them is forgotten."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LoadFiles:
    """The files of one load in the state folder, each there once it has a line."""

    lines: list[dict[str, object]] | None = None

    def __init__(self, state_dir: Path, columns: Sequence[str], run_id: str, now: Callable[[], datetime]) -> None:
        self._rejects = RejectsFile(state_dir / "rejects" / f"{run_id}.csv", columns, run_id, now)
        self._drift = DriftFile(state_dir / "drift" / f"{run_id}.csv", run_id, now)
        self._opened = ExitStack()

    @property
    def failure(self) -> str | None:
        """Why one of them could not be written."""
        return self._rejects.failure or self._drift.failure

    @property
    def rejects_path(self) -> str | None:
        """The rejects file, or None if no row was written."""
        return self._rejects.path

    @property
    def drift_path(self) -> str | None:
        """The drift file, or None if no line was written."""
        return self._drift.path

    def build_tally(self) -> Tally:
        """The sums of the run; those whom a person must see, and those who have changed, are written as they come."""
        return Tally(self._rejects.write, self._drift.write_change, self._drift.write_omission)

    def begin_chunk(self, prepared: PreparedChunk) -> None:
        """Nothing: rows are written as they come."""

    def write(self, problem: Problem, raw: str | None = None) -> None:
        """A row for the rejects file."""
        self._rejects.write(problem, raw)

    def remark(self) -> Iterator[str]:
        """What a person should know of those who have changed."""
        return self._drift.remark()

    def begin_anew(self) -> None:
        """Throw both files away."""
        self._rejects.begin_anew()
        self._drift.begin_anew()

    def __enter__(self) -> Self:
        self._opened.enter_context(self._rejects)
        self._opened.enter_context(self._drift)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)
