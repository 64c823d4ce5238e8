"""The places of ledgers in tests: SQLite files, and schemas in a real PostgreSQL server."""

from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, make_url

SCHEMAS = count()


def add_schema(postgres: str) -> str:
    """The URL of an empty schema in the server at `postgres`."""
    name = f"ledger_{next(SCHEMAS)}"
    run_sql(postgres, f"CREATE SCHEMA {name}")
    url = make_url(postgres).update_query_dict({"options": f"-csearch_path={name}"})
    return url.render_as_string(hide_password=False)


def run_sql(url: str, statement: str) -> list[tuple[object, ...]]:
    """What one statement gives, carried out in PostgreSQL by somebody else than the ledger, and committed."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []


def url_of(path: Path) -> str:
    """The URL of a ledger in a SQLite file."""
    return f"sqlite:///{path}"


def check_refused(opening: AbstractContextManager[object], error: type[Exception], match: str) -> str:
    """What is said of a ledger that is not opened."""
    with pytest.raises(error, match=match) as raised, opening:
        pass
    return str(raised.value)
