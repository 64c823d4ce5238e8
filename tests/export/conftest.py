"""Fixtures: destinations of every kind, and database servers for their tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.warehouse.destination import Destination, Format
from tests.databases import Database, open_mariadb, open_postgres
from tests.export.warehouses import DATABASE_FILE_FORMATS, DATABASE_FORMATS, FILE_FORMATS, open_destination


@pytest.fixture(scope="package")
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


@pytest.fixture(scope="package")
def mariadb() -> Iterator[Database]:
    with open_mariadb() as database:
        yield database


@pytest.fixture(
    params=[file_format for file_format in Format if file_format is not Format.DELTA]
)  # test_delta.py tests Delta
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """A new destination of each format, or of the formats that the test chooses."""
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=[*FILE_FORMATS, *DATABASE_FILE_FORMATS])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return open_destination(request, tmp_path, request.param)


@pytest.fixture(params=[(file_format, "replace") for file_format in DATABASE_FORMATS], ids=list(DATABASE_FORMATS))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """A table in each database, or in the formats and modes of the test's `parametrize_table`."""
    file_format, mode = request.param
    return open_destination(request, tmp_path, file_format, **({} if mode == "replace" else {"mode": mode}))
