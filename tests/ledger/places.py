"""URLs of ledgers for tests: SQLite files, and schemas on a PostgreSQL server."""

from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from connector.errors import LockedError
from connector.ledger import postgres

SCHEMA_NUMBERS = count()
ON_SQLITE = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
"""Run a test with the fixture `ledger_url` or `ledger` only on SQLite."""


def add_schema(server_url: str) -> str:
    """Create an empty schema on the server at `server_url`, and return its URL."""
    schema_name = f"ledger_{next(SCHEMA_NUMBERS)}"
    run_sql(server_url, f"CREATE SCHEMA {schema_name}")
    url = make_url(server_url).update_query_dict({"options": f"-csearch_path={schema_name}"})
    return url.render_as_string(hide_password=False)


def run_sql(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run and commit a statement in PostgreSQL on a new connection, and return the rows."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []


def build_file_url(path: Path) -> str:
    """Return the URL of a ledger in this file."""
    return f"sqlite:///{path}"


def check_opening_fails(
    open_context: AbstractContextManager[object], error_type: type[Exception], message_pattern: str
) -> str:
    """Check that opening a ledger raises this error. Return the message of the error.

    A ledger that another run holds stays held, so a refusal does not wait for the end of other sessions.
    """
    session_end_wait_s = 0.0 if error_type is LockedError else postgres._SESSION_END_WAIT_S
    with (
        patch.object(postgres, "_SESSION_END_WAIT_S", session_end_wait_s),
        pytest.raises(error_type, match=message_pattern) as error_info,
        open_context,
    ):
        pass
    return str(error_info.value)
