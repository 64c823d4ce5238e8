"""Each field becomes a column of its type; what breaks the type is kept in `_invalid`; values in databases' forms."""

import io
import json
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from connector.atomic_file import GUARDED, guard_formula
from connector.fields import BY_NAME, NAMES
from connector.warehouse import columns
from connector.warehouse.columns import (
    SCHEMA,
    build_null,
    build_numbers,
    build_text,
    build_time,
    move_nuls,
    quote_lists,
    write_lists_as_json,
)
from connector.warehouse.files import guard_formulas
from connector.warehouse.mysql import write_inserts
from connector.warehouse.parquet import ParquetFormat
from tests.export.people import AT, BARE, BROKEN, FULL, MIXED, RUN, build_table, table_of

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def wire_of(name: str, value: object) -> dict[str, Any]:
    *parent, key = BY_NAME[name].path
    return {parent[0]: {key: value}} if parent else {key: value}


def read_one(name: str, value: object) -> tuple[object, object]:
    """The column's value and what `_invalid` keeps of it, alone and beside a value that is right."""
    table = build_table([wire_of(name, value), FULL], run_id=RUN, exported_at=AT)
    kept = table["_invalid"][0].as_py()
    return table[name][0].as_py(), json.loads(kept)[name] if kept else None


def test_the_columns_are_the_field_table_and_the_runs_own() -> None:
    assert tuple(SCHEMA.names) == (*NAMES, "_run_id", "_exported_at", "_invalid")
    types = {name: str(SCHEMA.field(name).type) for name in ("id", "is_active", "birthday", "address_zip", "tags")}
    assert types == {
        "id": "int64", "is_active": "bool", "birthday": "date32[day]", "address_zip": "string",
        "tags": "list<item: string>",
    }  # fmt: skip


def test_every_field_is_read() -> None:
    row = table_of(FULL).to_pylist()[0]

    assert row["id"] == FULL["Id"]
    assert (row["base_id"], row["base_name"]) == (7, "Newsletter, weekly")
    assert row["birthday"] == date(1904, 2, 29)
    assert row["tags"] == FULL["Tags"]
    assert (row["address_zip"], row["address_state"], row["address_line3"]) == ("02134", "", "")
    assert (row["_run_id"], row["_exported_at"], row["_invalid"]) == (RUN, AT, None)
    assert all(value is not None for name, value in row.items() if name != "_invalid")


def test_what_is_absent_is_null_and_not_invalid() -> None:
    row = table_of(BARE).to_pylist()[0]

    assert {name for name, value in row.items() if value is not None} == {
        "id", "base_id", "base_name", "is_active", "tags", "_run_id", "_exported_at",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("birthday", "1990-05-04", date(1990, 5, 4)),
        ("birthday", "", None),
        ("address_zip", 12345, "12345"),
        ("id", -(2**63), -(2**63)),
        ("tags", None, None),
        ("gender", "", ""),
    ],
)
def test_what_fits_is_kept_as_its_type(name: str, value: object, read: object) -> None:
    assert read_one(name, value) == (read, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
    ],
)
def test_what_breaks_its_type_is_null_and_kept_as_it_came(name: str, value: object) -> None:
    assert read_one(name, value) == (None, value)


def test_a_base_or_address_that_is_no_object_is_kept_whole() -> None:
    row = table_of({"Id": 1, "Base": "News", "Address": ["x"]}).to_pylist()[0]

    assert (row["base_id"], row["address_city"]) == (None, None)
    assert json.loads(row["_invalid"]) == {"Base": "News", "Address": ["x"]}


def test_a_broken_row_leaves_its_neighbours_alone() -> None:
    together, alone = table_of(FULL, BROKEN, BARE), table_of(FULL)

    assert together.to_pylist()[0] == alone.to_pylist()[0]
    assert set(json.loads(together["_invalid"][1].as_py())) == {"Base", "is_active", "email", "tags", "birthday"}
    assert together["_invalid"][2].as_py() is None


def test_no_rows_make_an_empty_table_of_the_same_schema() -> None:
    assert build_table([], run_id=RUN, exported_at=AT).equals(SCHEMA.empty_table())


@given(st.lists(st.tuples(st.sampled_from(NAMES), JSON), max_size=6))
def test_no_answer_breaks_it_and_nothing_is_lost(cells: list[tuple[str, Any]]) -> None:
    table = build_table([wire_of(name, value) for name, value in cells], run_id=RUN, exported_at=AT)

    assert table.schema == SCHEMA
    table.validate(full=True)
    for (name, value), row in zip(cells, table.to_pylist(), strict=True):
        is_empty = value is None or (name == "birthday" and value == "")
        assert (row[name] is not None) ^ (row["_invalid"] is not None) ^ is_empty


def test_arrow_is_only_asked_for_what_it_is_strict_about() -> None:
    """Arrow takes a tuple for a list and 2.0 for an integer: types are looked at before it is asked."""
    assert pa.array([2.0], pa.int64()).to_pylist() == [2]
    assert read_one("id", 2.0) == (None, 2.0)


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4) | st.none()
PLAIN = st.lists(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=8), max_size=4)


@pytest.mark.parametrize("text", ["", "a", "Ελένη", "\0"])
def test_a_text(text: str) -> None:
    assert build_text(text).equals(pa.scalar(text))


@pytest.mark.parametrize(
    "time",
    [
        datetime(2026, 11, 22, 1, 2, 3, 456789, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(2026, 11, 22, 1, 2, 3, tzinfo=timezone(timedelta(hours=-3))),
    ],
)
def test_a_time(time: datetime) -> None:
    assert build_time(time).equals(pa.scalar(time, pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.list_(pa.string())])
def test_nothing(kind: pa.DataType) -> None:
    assert build_null(kind).equals(pa.scalar(None, kind))


def test_numbers() -> None:
    assert build_numbers(0, -1, 2**31 - 1).equals(pa.array([0, -1, 2**31 - 1], pa.int32()))
    assert len(build_numbers()) == 0


@given(st.lists(TEXTS, max_size=6), st.integers(0, 3))
def test_lists_as_json_are_what_python_writes(lists: list[list[str] | None], start: int) -> None:
    column = pa.chunked_array([pa.array(each, pa.list_(pa.string())) for each in (lists, lists)]).slice(start)

    written = write_lists_as_json(column)
    assert written.type == pa.string()
    assert written.to_pylist() == [None if each is None else orjson.dumps(each).decode() for each in column.to_pylist()]


@given(st.lists(PLAIN, max_size=6))
def test_lists_in_braces_differ_in_their_braces_alone(lists: list[list[str]]) -> None:
    written = quote_lists(pa.array(lists, pa.list_(pa.string())), "{", "}").to_pylist()

    assert [f"[{each[1:-1]}]" for each in written] == [orjson.dumps(each).decode() for each in lists]


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("=1+1", "'=1+1"), ("+31 20 123", "'+31 20 123"), ("-1", "'-1"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"), ("\r=1", "'\r=1"),
        ("a=1", "a=1"), ("", ""), ("'=1", "''=1"), ("''-1", "'''-1"), ("'a", "'a"), (" =1", " =1"), ("\n=1", "'\n=1"),
    ],
)  # fmt: skip
def test_what_a_spreadsheet_would_run_is_made_a_text(text: str, guarded: str) -> None:
    table = pa.table({"a": [text, None], "n": [-1, 2]})

    assert guard_formula(text) == guarded
    assert re.sub(GUARDED, r"\1", guarded) == text
    assert guard_formulas(table).to_pydict() == {"a": [guarded, None], "n": [-1, 2]}


def test_a_batch_without_a_nul_is_left_alone() -> None:
    batch = MIXED.combine_chunks().to_batches()[0]

    assert move_nuls(batch) is batch


def test_a_nul_moves_its_text_to_what_is_invalid_beside_what_is_there() -> None:
    batch = table_of({"Id": 1, "FirstName": "a\0", "Email": 5, "Tags": ["\0", "b"]}, {"Id": 2, "LastName": "\ud800"})
    rows = move_nuls(batch.combine_chunks().to_batches()[0]).to_pylist()

    assert (rows[0]["first_name"], rows[0]["tags"]) == (None, None)
    assert json.loads(rows[0]["_invalid"]) == {"email": 5, "first_name": "a\0", "tags": ["\0", "b"]}
    assert json.loads(rows[1]["_invalid"]) == {"last_name": "\ud800"}


def test_parquet_has_dictionaries_for_what_recurs_alone() -> None:
    file = io.BytesIO()
    rows = ParquetFormat(file, columns.SCHEMA)
    rows.write(table_of(FULL, BARE))
    rows.close(None)
    group = pq.ParquetFile(file).metadata.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    plain = {leaf.path_in_schema for leaf in leaves if not leaf.has_dictionary_page}

    assert plain == {"id", "email", "client_user_id", "phone", "is_active"}, "a flag is a bit, and needs none"
    assert {"tags.list.element", "first_name", "_run_id"} <= {leaf.path_in_schema for leaf in leaves}


def test_statements_for_mysql_are_of_the_size_that_was_asked_for_and_miss_no_row() -> None:
    batch = pa.record_batch({"a": ["x" * 40, "it's", "\\", None], "n": pa.array([1, None, 3, 4], pa.int64())})

    assert list(write_inserts("I", batch, 30, [])) == [
        f"I ('{'x' * 40}',1)", "I ('it''s',NULL),('\\',3)", "I (NULL,4)",
    ]  # fmt: skip
    assert len(list(write_inserts("I", batch, 1000, []))) == 1
