"""The schemas derive from the field table: every field is in them, as its kind demands."""

from datetime import date

import pandas as pd
import pandera.errors
import pyarrow as pa
import pytest

from connector.fields import FIELDS, NAMES, SENT
from connector.subscribers import ValidationRules, build_listed_schema, build_sent_schema

TODAY = date(2026, 11, 21)


def test_the_sent_schema_has_every_field_that_may_be_sent_and_no_other() -> None:
    schema = build_sent_schema(ValidationRules(required=frozenset({"phone"})), today=TODAY)
    assert tuple(schema.columns) == tuple(field.name for field in SENT)
    assert [name for name, column in schema.columns.items() if not column.nullable] == ["email", "phone"]
    assert [name for name, column in schema.columns.items() if column.required] == ["email", "phone"]


def test_only_a_job_that_rejects_zips_checks_them() -> None:
    for policy, codes in (("omit", []), ("reject", ["zip"]), ("custom_field1", [])):
        column = build_sent_schema(ValidationRules(zip=policy), today=TODAY).columns["address_zip"]
        assert [check.name for check in column.checks] == ["control", "length", *codes]


def build_listed(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([None], dtype=object) for name in NAMES} | columns)


def test_a_listed_frame_gets_the_types_of_the_field_table() -> None:
    frame = build_listed(id=[1], is_active=[True], tags=[["a"]], birthday=[date(2000, 1, 1)], address_zip=["02134"])
    listed = build_listed_schema().validate(frame)
    special = {"id": "Int64", "base_id": "Int64", "is_active": "boolean", "tags": "list<item: string>[pyarrow]",
               "birthday": "date32[day][pyarrow]"}  # fmt: skip
    assert {name: str(listed[name].dtype) for name in NAMES} == {
        field.name: special.get(field.name, "str") for field in FIELDS
    }
    assert listed["birthday"].tolist() == [date(2000, 1, 1)]
    assert listed["address_zip"].tolist() == ["02134"]


def test_an_arrow_table_of_listed_subscribers_passes_as_it_is() -> None:
    table = pa.table({"id": pa.array([7], pa.int64()), "is_active": [True], "tags": [["a"]],
                      "birthday": pa.array([date(2000, 1, 1)])})  # fmt: skip
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    listed = build_listed_schema().validate(build_listed(**{name: frame[name] for name in frame.columns}))
    assert listed["id"].tolist() == [7]
    assert listed["tags"].tolist()[0] == ["a"]


def test_what_breaks_a_type_and_a_missing_column_are_found() -> None:
    with pytest.raises(pandera.errors.SchemaErrors):
        build_listed_schema().validate(build_listed(id=["seven"]), lazy=True)
    with pytest.raises(pandera.errors.SchemaErrors):
        build_listed_schema().validate(build_listed().drop(columns="email"), lazy=True)
