"""Ledgers for the tests. A test with the fixture `ledger` or `ledger_url` runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from tests.databases import start_postgres
from tests.ledger.places import add_schema
from tests.ledger.transitions import begin_run


@pytest.fixture(scope="session")
def server_url() -> str:
    """The URL of a real PostgreSQL server."""
    return start_postgres().url


@pytest.fixture
def postgres_url(server_url: str) -> str:
    """The URL of an empty schema in PostgreSQL."""
    return add_schema(server_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that does not exist yet, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An open ledger in which a run has begun, on SQLite and on PostgreSQL."""
    with open_ledger(ledger_url) as new_ledger:
        begin_run(new_ledger)
        yield new_ledger
