"""Foreign exceptions become the ledger's own, here and nowhere else; no statement's values get into a message."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from connector.errors import LedgerError


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise LedgerError in place of what the database or the file system raised."""
    try:
        yield
    except DBAPIError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used: {error.orig}. Nothing more was sent; "
            "look at the file, its disk and its permissions before you run again"
        ) from None
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be used: {error.strerror}: {error.filename}") from error
