"""The differences one by one, as a CSV for people: a line for each, and for each field that drifted.

Lines are gathered in a temporary file that has no name, and take the place of the file that was asked for at the end.
"""

import csv
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.atomic_file import PartialFile, TargetKind, guard_formula, read_target_kind
from connector.errors import ConfigurationError, RunAborted

DIFFERENCE_COLUMNS = {
    "difference": "missing, extra, duplicated, drifted or vanished.",
    "base": "The base, by name and id as far as they are known.",
    "identity": "Email or client_user_id, as the source has it, or else the service; empty for whom only the ledger "
    "knows, which keeps digests, and for whom the service lists without one.",
    "ids": "Subscriber ids in the service; of a vanished one the id that it had.",
    "field": "The field that drifted.",
    "source": "What the source says, as it would be sent.",
    "service": "What the service has.",
    "ledger": "What the ledger says: none, sending, unknown, held, rejected or confirmed; empty where not asked.",
    "message": "What that means, with the service's words for a refusal.",
}


class DifferenceFile:
    """A context manager; `publish` is the last that is done with it. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = None if path is None else tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._text = (
            None if self._file is None else io.TextIOWrapper(self._file, "utf-8", "backslashreplace", newline="")
        )
        if self._text is not None:
            csv.writer(self._text).writerow(DIFFERENCE_COLUMNS)

    def write(
        self,
        difference: str,
        base: str,
        identity: str,
        ids: Sequence[int],
        *,
        field: str = "",
        source: str = "",
        service: str = "",
        ledger: str = "",
        message: str = "",
    ) -> None:
        """Add a line. Raises RunAborted when it cannot be kept."""
        if self._text is None:
            return
        told = "; ".join(map(str, ids))
        cells = [difference, base, identity, told, field, source, service, ledger, message]
        try:
            csv.writer(self._text).writerow(map(guard_formula, cells))
        except OSError as error:
            raise RunAborted(
                f"the differences cannot be kept in {tempfile.gettempdir()} ({error.strerror}): make room, or set "
                "TMPDIR to another folder"
            ) from None

    def publish(self) -> str | None:
        """Put the lines where they were asked for, readable by their owner alone; the path. Raises RunAborted."""
        if self._path is None or self._text is None:
            return None
        try:
            self._text.seek(0)  # writes what it holds
            self._copy(self._path)
        except OSError as error:
            raise RunAborted(f"--to {self._path} cannot be written: {error.strerror}") from None
        except ConfigurationError as error:
            raise RunAborted(f"--to {self._path}: {error}") from None
        return str(self._path)

    def _copy(self, path: Path) -> None:
        """Beside the target first, then in its place."""
        with PartialFile(path) as partial:
            while self._file is not None and (part := self._file.read(1 << 20)):
                partial.file.write(part)
            partial.put_in_place()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._text is not None:
            self._text.close()


def check_difference_path(path: Path | None, report: Path | None) -> None:
    """Raise ConfigurationError if the differences cannot be written there: of files that are there they take the place
    only of one like themselves."""
    if path is None:
        return
    if path.suffix.lower() != ".csv":
        raise ConfigurationError(f"--to {path}: the differences are written as CSV; name a file ending in .csv")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigurationError(f"--to {path}: name a file in a folder that exists")
    kind = read_target_kind(path)
    if not (kind is TargetKind.FREE or (kind is TargetKind.FILE and _is_ours(path))):
        raise ConfigurationError(f"--to {path}: that file is something else, and is not replaced; name another")
    if report is not None and report.absolute() == path.absolute():
        raise ConfigurationError(f"--to {path}: that is the report's file, too; name another")


def _is_ours(path: Path) -> bool:
    """Whether an earlier run wrote it."""
    header = (",".join(DIFFERENCE_COLUMNS) + "\r\n").encode()
    try:
        with path.open("rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False
