"""The values of exported columns: a value that does not fit its column is in `_invalid`. A formula or a backslash is
written as text."""

import io
import json
import re
from datetime import date
from typing import Any

import orjson
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st

from connector.databases import build_engine
from connector.fields import FIELD_BY_NAME, FIELD_NAMES
from connector.texts import ESCAPED_FORMULA_PATTERN, escape_formula
from connector.warehouse.columns import SCHEMA, format_lists_as_json, move_nuls_to_invalid
from connector.warehouse.database import Interruption, Statement
from connector.warehouse.destination import FileOptions
from connector.warehouse.file_formats import CsvFormat
from connector.warehouse.servers import MysqlDatabase, format_inserts
from tests.databases import Database
from tests.export.people import (
    BARE_SUBSCRIBER,
    BROKEN_SUBSCRIBER,
    EXPORT_TIME,
    FULL_SUBSCRIBER,
    RUN_ID,
    build_table,
    build_test_table,
)

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=6,
)


def build_subscriber_object(name: str, value: object) -> dict[str, Any]:
    *parent_keys, key = FIELD_BY_NAME[name].path
    return {parent_keys[0]: {key: value}} if parent_keys else {key: value}


def read_value(name: str, value: object) -> tuple[object, object]:
    """Export a subscriber with this value. Return the value in the column `name`, and the value in `_invalid`."""
    table = build_table([build_subscriber_object(name, value), FULL_SUBSCRIBER], run_id=RUN_ID, exported_at=EXPORT_TIME)
    invalid_values = table["_invalid"][0].as_py()
    return table[name][0].as_py(), json.loads(invalid_values)[name] if invalid_values else None


def test_a_table_has_a_column_for_each_field_and_the_columns_about_the_run() -> None:
    assert tuple(SCHEMA.names) == (*FIELD_NAMES, "_run_id", "_exported_at", "_invalid")
    column_types = {
        name: str(SCHEMA.field(name).type) for name in ("id", "is_active", "birthday", "address_zip", "tags")
    }
    assert column_types == {
        "id": "int64", "is_active": "bool", "birthday": "date32[day]", "address_zip": "string",
        "tags": "list<item: string>",
    }  # fmt: skip


def test_a_table_has_the_value_of_every_field_of_a_subscriber() -> None:
    row = build_test_table(FULL_SUBSCRIBER).to_pylist()[0]
    assert row["id"] == FULL_SUBSCRIBER["Id"]
    assert (row["base_id"], row["base_name"]) == (7, "Newsletter, weekly")
    assert row["birthday"] == date(1904, 2, 29)
    assert row["tags"] == FULL_SUBSCRIBER["Tags"]
    assert (row["address_zip"], row["address_state"], row["address_line3"]) == ("02134", "", "")
    assert (row["_run_id"], row["_exported_at"], row["_invalid"]) == (RUN_ID, EXPORT_TIME, None)
    assert all(value is not None for name, value in row.items() if name != "_invalid")


def test_an_absent_field_is_null_and_is_not_in_the_invalid_values() -> None:
    row = build_test_table(BARE_SUBSCRIBER).to_pylist()[0]
    assert {name for name, value in row.items() if value is not None} == {
        "id", "base_id", "base_name", "is_active", "tags", "_run_id", "_exported_at",
    }  # fmt: skip


def test_a_value_that_fits_its_column_gets_the_type_of_the_column() -> None:
    fitting_values: list[tuple[str, object, object]] = [
        ("birthday", "1990-05-04", date(1990, 5, 4)),
        ("birthday", "", None),
        ("address_zip", 12345, "12345"),
        ("id", -(2**63), -(2**63)),
        ("tags", None, None),
        ("gender", "", ""),
    ]
    for name, value, expected_value in fitting_values:
        assert read_value(name, value) == (expected_value, None)


def test_a_value_that_does_not_fit_its_column_moves_to_the_invalid_values() -> None:
    unfit_values: list[tuple[str, object]] = [
        ("birthday", "1990-02-30"),
        ("birthday", "0000-01-01"),
        ("birthday", "0000-00-00"),
        ("birthday", "19900504"),
        ("birthday", "1990-5-4"),
        ("birthday", "1990-05-04 "),
        ("birthday", "１９９０-05-04"),
        ("birthday", 19900504),
        ("is_active", 1),
        ("is_active", "true"),
        ("id", True),
        ("id", "5"),
        ("id", 1.5),
        ("base_id", 2**63),
        ("email", 5),
        ("email", ["a@b.example"]),
        ("first_name", "\ud800"),
        ("tags", "a,b"),
        ("tags", ["a", None]),
        ("tags", ["a", 1]),
        ("tags", {"a": 1}),
        ("address_zip", 1.5),
        ("address_zip", True),
    ]
    for name, value in unfit_values:
        assert read_value(name, value) == (None, value)


def test_a_base_or_address_that_is_not_an_object_is_in_the_invalid_values() -> None:
    row = build_test_table({"Id": 1, "Base": "News", "Address": ["x"]}).to_pylist()[0]
    assert (row["base_id"], row["address_city"]) == (None, None)
    assert json.loads(row["_invalid"]) == {"Base": "News", "Address": ["x"]}


def test_a_broken_row_does_not_change_other_rows() -> None:
    mixed_table, table_of_one_row = (
        build_test_table(FULL_SUBSCRIBER, BROKEN_SUBSCRIBER, BARE_SUBSCRIBER),
        build_test_table(FULL_SUBSCRIBER),
    )
    assert mixed_table.to_pylist()[0] == table_of_one_row.to_pylist()[0]
    assert set(json.loads(mixed_table["_invalid"][1].as_py())) == {"Base", "is_active", "email", "tags", "birthday"}
    assert mixed_table["_invalid"][2].as_py() is None


@given(st.lists(st.tuples(st.sampled_from(FIELD_NAMES), JSON_VALUES), max_size=6))
def test_any_value_is_in_its_column_or_in_the_invalid_values(names_and_values: list[tuple[str, Any]]) -> None:
    table = build_table(
        [build_subscriber_object(name, value) for name, value in names_and_values],
        run_id=RUN_ID,
        exported_at=EXPORT_TIME,
    )
    assert table.schema == SCHEMA
    table.validate(full=True)
    for (name, value), row in zip(names_and_values, table.to_pylist(), strict=True):
        is_empty = value is None or (name == "birthday" and value == "")
        assert (row[name] is not None) ^ (row["_invalid"] is not None) ^ is_empty


TEXT_LISTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4) | st.none()


@given(st.lists(TEXT_LISTS, max_size=6), st.integers(0, 3))
def test_a_list_of_texts_is_written_as_json(text_lists: list[list[str] | None], start_index: int) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.list_(pa.string())) for chunk in (text_lists, text_lists)]).slice(
        start_index
    )
    json_column = format_lists_as_json(column)
    assert json_column.type == pa.string()
    assert json_column.to_pylist() == [
        None if value is None else orjson.dumps(value).decode() for value in column.to_pylist()
    ]


def test_a_formula_is_written_as_a_text() -> None:
    texts_and_escaped_texts: list[tuple[str, str]] = [
        ("=1+1", "'=1+1"), ("+31 20 123", "'+31 20 123"), ("-1", "'-1"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"), ("\r=1", "'\r=1"),
        ("a=1", "a=1"), ("", ""), ("'=1", "''=1"), ("''-1", "'''-1"), ("'a", "'a"), (" =1", " =1"), ("\n=1", "'\n=1"),
    ]  # fmt: skip
    for text, escaped_text in texts_and_escaped_texts:
        table, file = pa.table({"a": [text, None], "n": [-1, 2]}), io.BytesIO()
        csv_format = CsvFormat(file, table.schema, FileOptions(has_escaped_formulas=True))
        csv_format.write(table)
        csv_format.close(None)
        assert escape_formula(text) == escaped_text
        assert re.sub(ESCAPED_FORMULA_PATTERN, r"\1", escaped_text) == text
        assert file.getvalue().decode() == f'"a","n"\n"{escaped_text}",-1\n,2\n'


def test_statements_for_mysql_have_every_row_and_a_limited_size() -> None:
    batch = pa.record_batch({"a": ["x" * 40, "it's", "\\", None], "n": pa.array([1, None, 3, 4], pa.int64())})
    assert list(format_inserts("I", batch, 30, [])) == [
        f"I ('{'x' * 40}',1)", "I ('it''s',NULL)", "I (_utf8mb4 X'5c',3),(NULL,4)",
    ]  # fmt: skip
    assert len(list(format_inserts("I", batch, 1000, []))) == 1


TEXTS_WITH_BACKSLASHES = ["\\", "\\'); drop table t; -- ", "é \\' 日本", "O\\'Brien", "\\\\", "it's 'plain'"]


@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES"])
def test_a_literal_with_a_backslash_is_read_back_in_each_mode_of_the_session(mariadb: Database, mode: str) -> None:
    texts = TEXTS_WITH_BACKSLASHES
    (statement,) = format_inserts("insert into backslashes values", pa.record_batch({"a": pa.array(texts)}), 1000, [])
    engine = build_engine(sa.make_url(mariadb.url).set(drivername="mariadb+pymysql"))
    with engine.begin() as connection:
        connection.exec_driver_sql("create temporary table backslashes (a text) character set utf8mb4")
        connection.exec_driver_sql(f"set session sql_mode = '{mode}'")
        connection.exec_driver_sql(statement.replace("%", "%%"))
        assert list(connection.exec_driver_sql("select a from backslashes").scalars()) == texts
    engine.dispose()


@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES"])
def test_a_value_with_a_backslash_is_read_back_if_a_pooler_changes_the_mode(mariadb: Database, mode: str) -> None:
    no_backslash_escapes_bit = 512  # by this status bit of the server, the driver decides how to escape backslashes
    database = MysqlDatabase(sa.make_url(mariadb.url).set(drivername="mariadb+pymysql"))
    with database.connect(Interruption()):
        database.connection.exec_driver_sql(f"set session sql_mode = '{mode}'")
        driver: Any = database.connection.connection.driver_connection
        driver.server_status |= no_backslash_escapes_bit  # as in a session whose mode the connector has set
        for text in TEXTS_WITH_BACKSLASHES:
            statement = Statement("SELECT :value AS v, :value_2", {"value": text, "value_2": 7})
            assert database.fetch(statement, 1) == [(text, 7)]
    database.engine.dispose()


def test_a_text_with_a_nul_character_is_null_and_is_in_the_invalid_values() -> None:
    batch = build_test_table(
        {"Id": 1, "FirstName": "a\0", "LastName": "b", "Email": 5, "Tags": ["\0", "c"]}
    ).combine_chunks()
    (row,) = move_nuls_to_invalid(batch.to_batches()[0]).to_pylist()
    assert (row["first_name"], row["last_name"], row["tags"]) == (None, "b", None)
    assert json.loads(row["_invalid"]) == {"email": 5, "first_name": "a\0", "tags": ["\0", "c"]}
