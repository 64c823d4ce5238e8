"""The bound of writing: the rows of a Parquet file, in memory already, into a new table by the driver's bulk way.

`python -m tests.benchmarks.bare_write PARQUET PLACE TABLE` prints the time in s of the writing alone. No stage, no
certificate, no swap; tags and times as the connector's own tables have them.
"""

import io
import sqlite3
import sys
import time
from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import sqlalchemy as sa

from connector.warehouse.columns import flatten_table

_BATCH = 16_384


def write_parquet(table: pa.Table, place: str, _: str) -> None:
    pq.write_table(table, place, compression="zstd")


def write_duckdb(table: pa.Table, place: str, name: str) -> None:
    with duckdb.connect(place.removeprefix("duckdb:///")) as connection:
        connection.register("staged", table)
        connection.execute(f"create table {name} as select * from staged")


def write_sqlite(table: pa.Table, place: str, name: str) -> None:
    columns = ", ".join(table.column_names)
    insert = f"insert into {name} values ({', '.join('?' * table.num_columns)})"
    with closing(sqlite3.connect(place.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(f"create table {name} ({columns})")
        for rows in _read_rows(table):
            connection.executemany(insert, rows)


def write_postgres(table: pa.Table, place: str, name: str) -> None:
    import psycopg

    types = {pa.int64(): "bigint", pa.bool_(): "boolean", pa.date32(): "date"}
    columns = ", ".join(f"{field.name} {types.get(field.type, 'text')}" for field in table.schema)
    with psycopg.connect(place) as connection, connection.cursor() as cursor:
        cursor.execute(f"create table {name} ({columns})")
        with cursor.copy(f"copy {name} from stdin with (format csv)") as copy:
            for batch in flatten_table(table).to_batches(_BATCH):
                text = io.BytesIO()
                arrow_csv.write_csv(batch, text, arrow_csv.WriteOptions(include_header=False))
                copy.write(text.getvalue())


def write_mysql(table: pa.Table, place: str, name: str) -> None:
    import pymysql

    url = sa.make_url(place)
    types = {pa.int64(): "bigint", pa.bool_(): "boolean", pa.date32(): "date"}
    columns = ", ".join(f"{field.name} {types.get(field.type, 'longtext')}" for field in table.schema)
    insert = f"insert into {name} values ({', '.join(['%s'] * table.num_columns)})"
    with closing(
        pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=url.password or "", database=url.database
        )
    ) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"create table {name} ({columns})")
            for rows in _read_rows(table):
                cursor.executemany(insert, rows)  # PyMySQL makes one statement of many rows of it
        connection.commit()


def _read_rows(table: pa.Table) -> "list[list[tuple[object, ...]]]":
    """Made before the clock runs would be fairer to the driver, but a connector has to make them, too."""
    flat = flatten_table(table)
    birthday = flat.schema.get_field_index("birthday")
    flat = flat.set_column(birthday, "birthday", flat["birthday"].cast(pa.string()))
    return [list(zip(*(each.to_pylist() for each in batch.columns), strict=True)) for batch in flat.to_batches(_BATCH)]


WRITERS = {
    "duckdb": write_duckdb,
    "sqlite": write_sqlite,
    "postgresql": write_postgres,
    "mariadb": write_mysql,
    "mysql": write_mysql,
}


def main() -> None:
    source, place, name = sys.argv[1:]
    scheme = place.partition("://")[0] if "://" in place else None
    write = WRITERS[scheme] if scheme else write_parquet
    table = pq.read_table(source)
    began = time.perf_counter()
    write(table, place, name)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
