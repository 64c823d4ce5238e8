"""A ledger in each store: a test with `ledger` or `ledger_url` runs on both stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from tests.databases import start_postgres
from tests.ledger.moves import begin_run
from tests.ledger.places import add_schema


@pytest.fixture(scope="session")
def postgres() -> str:
    """The URL of a real PostgreSQL server."""
    return start_postgres().url


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
