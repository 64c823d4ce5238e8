"""Foreign exceptions become the ledger's own, here and nowhere else; no statement's values get into a message."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from connector.driver_words import say_safely
from connector.errors import LedgerError


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise LedgerError in place of what the database raised; `name` says which ledger, without a password."""
    try:
        yield
    except SQLAlchemyError as error:
        raise build_error(name, say_safely(error)) from None
    except (OverflowError, UnicodeEncodeError):  # the driver's own, before the database sees the value
        raise build_error(name, "it was to keep a number or a text that no database can") from None


def build_error(name: str, reason: str) -> LedgerError:
    """The error for a ledger that cannot be read or written."""
    return LedgerError(
        f"the ledger {name} cannot be used: {reason}. Nothing more was sent; "
        "look at the file or the server, its disk and its permissions before you run again"
    )


def build_missing(name: str) -> LedgerError:
    """The error of what works on a ledger that is there, where there is none."""
    return LedgerError(f"there is no ledger at {name}: see CONNECTOR_LEDGER and CONNECTOR_STATE_DIR")
