"""What came through a pipe, kept: it can be read but once there, and from here as often as is wanted."""

import os
import shutil
import tempfile
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

from connector.errors import SourceError
from connector.extract.files.content import STANDARD_INPUT, open_raw

_COPIED_BYTES = 1 << 20  # at a time


class KeptInput:
    """All of a pipe, in a temporary file that has no name: it goes with its process."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """`path` may be `-` for standard input. Raises SourceError when it cannot be read, or there is no room."""
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            with open_raw(path) as raw:
                shutil.copyfileobj(raw, self._file, _COPIED_BYTES)
            self._file.flush()
        except OSError as error:
            self.close()
            raise SourceError(
                f"{path}: is to be read twice, and cannot be kept in {tempfile.gettempdir()} ({error.strerror}): make "
                "room, or set TMPDIR to another folder"
            ) from None
        except BaseException:
            self.close()
            raise

    def open(self) -> BinaryIO:
        """A file of its own at the beginning of it; one at a time is read."""
        opened = os.fdopen(os.dup(self._file.fileno()), "rb")
        opened.seek(0)
        return opened

    def close(self) -> None:
        """Let go of it; may be called more than once."""
        self._file.close()


def keep_input(path: str | PathLike[str]) -> KeptInput | None:
    """What comes through the pipe at `path`; None for what is none and can be opened again. Raises SourceError."""
    is_pipe = fspath(path) == STANDARD_INPUT or (
        Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()
    )
    return KeptInput(path) if is_pipe else None
