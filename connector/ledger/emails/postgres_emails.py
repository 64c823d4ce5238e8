"""Campaigns held in PostgreSQL: by an advisory lock of the session that also writes, so that both are lost at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from connector.errors import LockedError
from connector.ledger.emails.place import digest_campaign
from connector.ledger.emails.store import Hold
from connector.ledger.postgres import compute_key, release_lock, take_lock
from connector.ledger.store import translated


def hold_in_session(connection: Connection, schema: str, ledger: str) -> Hold:
    """Campaigns held by advisory locks; `ledger` says in messages where they are."""
    held: set[int] = set()

    @contextmanager
    def hold(account: str, name: str, wait_s: float, is_stopped: Callable[[], bool]) -> Iterator[None]:
        key = compute_key(schema, b"connector mail", digest_campaign(account, name))
        if key in held:  # PostgreSQL would give it to the same session once more
            raise LockedError(f"the campaign {name} is held by this very run")
        with translated(ledger):
            take_lock(connection, key, f"the campaign {name}", wait_s, is_stopped)
        held.add(key)
        try:
            yield
        finally:
            held.remove(key)
            if not connection.invalidated:  # it would be made anew, and has no lock to give back
                with suppress(SQLAlchemyError):  # lost in this very moment, and the lock with it
                    release_lock(connection, key)

    return hold
