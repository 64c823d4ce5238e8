"""Where the tests keep ledgers in PostgreSQL: schemas of their own in one real server."""

from itertools import count

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
