"""One sandbox for this folder's tests, emptied and set back before each; and servers for their tables."""

from collections.abc import Iterator

import pytest

from tests.databases import Database, open_mariadb, open_postgres


@pytest.fixture(scope="package")
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


@pytest.fixture(scope="package")
def mariadb() -> Iterator[Database]:
    with open_mariadb() as database:
        yield database
