"""Where a database lives: in a file, which may have to be made, or on a server, which is there."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from connector.errors import ConfigurationError
from connector.export.writers.session import Place
from connector.export.writers.staging import open_nameless_beside, open_room_beside, put_in_free_place, read_target


class Home(Protocol):
    """What an export needs to know of it."""

    @property
    def is_there(self) -> bool:
        """Whether there is a database already."""

    @property
    def place(self) -> Place:
        """The database."""

    def open_stage(self) -> BinaryIO:
        """A file for rows on their way, the owner's only, which ends with the process; raises ConfigurationError."""

    def check(self) -> None:
        """Raise ConfigurationError for what keeps it from being written, before anything is asked of the service."""

    def make(self) -> AbstractContextManager[Place]:
        """The database to write to, as a context: a new one appears whole at its end, or not at all."""


class FileHome:
    """A file; one that is new is readable by its owner only, one that was there keeps its mode."""

    def __init__(self, path: Path, make_place: Callable[[Path], Place]) -> None:
        self._path = read_target(path)
        self._make_place = make_place

    @property
    def is_there(self) -> bool:
        """Whether there is such a file."""
        return self._path.exists()

    @property
    def place(self) -> Place:
        """The database in the file."""
        return self._make_place(self._path)

    def open_stage(self) -> BinaryIO:
        """Beside the file: there is room for it where there is room for the database."""
        return open_nameless_beside(self._path)

    def check(self) -> None:
        """A file that may not be written; and, beside a new database, the journal of one that is gone, which would be
        taken for its own, and undo it."""
        path = self._path
        if path.exists() and not os.access(path, os.W_OK):
            raise ConfigurationError(f"{path} may not be written to: allow it, or export elsewhere")
        strays = [path.with_name(path.name + suffix) for suffix in ("-journal", "-wal", ".wal")]
        found = [stray for stray in strays if stray.exists()]
        if found and not path.exists():
            raise ConfigurationError(
                f"{found[0]} is left of a database that is gone; a new {path.name} beside it would be spoilt: "
                "move it away, or export elsewhere"
            )

    @contextmanager
    def make(self) -> Iterator[Place]:
        """A new database is made in a room of its own, with its journals, and moved out when whole."""
        if self.is_there:
            yield self.place
            return
        with open_room_beside(self._path) as room:
            new = room / self._path.name
            yield self._make_place(new)
            new.chmod(0o600)
            self.check()
            put_in_free_place(new, self._path)


class ServerHome:
    """A server's database. Rows on their way are in the system's temporary folder."""

    is_there = True

    def __init__(self, place: Place) -> None:
        self.place = place

    def open_stage(self) -> BinaryIO:
        """A file without a name: nobody else can open it."""
        try:
            return cast(BinaryIO, tempfile.TemporaryFile())
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(f"Cannot write in {tempfile.gettempdir()} ({reason}): allow it.") from error

    def check(self) -> None:
        """The rehearsal finds what there is to find."""

    @contextmanager
    def make(self) -> Iterator[Place]:
        """The database that is there."""
        yield self.place
