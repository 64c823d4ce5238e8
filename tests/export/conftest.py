"""Destinations of every kind, and servers for their tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.warehouse.destination import Destination, Format
from tests.databases import Database, open_mariadb, open_postgres
from tests.export.warehouses import DATABASE_FILES, DATABASES, FILES, open_destination


@pytest.fixture(scope="package")
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


@pytest.fixture(scope="package")
def mariadb() -> Iterator[Database]:
    with open_mariadb() as database:
        yield database


@pytest.fixture(params=[form for form in Format if form is not Format.DELTA])  # test_delta.py has those of Delta
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """Each, or those that the test names."""
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=[*FILES, *DATABASE_FILES])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=[(form, "replace") for form in DATABASES], ids=list(DATABASES))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """A table in each database, or in those formats and modes that the test names (`warehouses.into`)."""
    form, mode = request.param
    return open_destination(request, tmp_path, form, **({} if mode == "replace" else {"mode": mode}))
