"""Rows in the forms that databases and spreadsheets take, value by value."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.atomic_file import guard_formula, unguard_formula
from connector.warehouse import columns
from connector.warehouse.columns import move_nuls
from connector.warehouse.files import guard_formulas
from connector.warehouse.mysql import write_inserts
from connector.warehouse.parquet import ParquetFormat
from tests.export.people import BARE, FULL, MIXED, table_of


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
    assert unguard_formula(guarded) == text
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
