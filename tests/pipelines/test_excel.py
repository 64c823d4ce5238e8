"""Exports as .xlsx workbooks and as CSV for Excel. Other programs and an import read the exported values unchanged."""

import gc
import io
import json
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pytest

from connector.fields import FIELD_NAMES, SENT_FIELDS
from connector.sheet_file import MAX_ROWS, CellError, SheetFile
from tests.export.exports import create_people
from tests.pipelines.conftest import Connector

BASE_FIELDS: dict[str, object] = {"base_name": "News"}
PERSON: dict[str, Any] = {
    "email": "Person+1@bücher.example", "is_active": False, "first_name": 'Łukasz "Lu"',
    "last_name": "van der Ray, 🎂", "gender": "female", "phone": "+49 (030) 123-4567",
    "tags": ["a|b", 'news, "vip"'], "client_user_id": "00042", "custom_field1": "null and void",
    "custom_field2": "-1", "custom_field3": "100%; \\ and '", "address_country": "NL", "address_city": "São Paulo",
    "address_state": "ＳＰ", "address_zip": 10115, "address_line1": "Straße 5", "address_line2": "c/o Ἀθηνᾶ",
    "address_line3": "3rd floor", "birthday": "1980-02-29",
}  # fmt: skip
"""A person with a value in each field of service-api.md 2.1."""

PEOPLE: tuple[dict[str, object], ...] = (
    {
        "email": "ann@example.com", "is_active": True, "first_name": "=1+1", "last_name": "+SUM(A1)",
        "phone": "+4930123", "tags": ["vip", "a,b; c"], "client_user_id": "00123", "custom_field1": "-5",
        "custom_field2": "@x", "custom_field3": "1e5", "address_country": "DE", "address_city": "München 🎂",
        "address_zip": 2134, "birthday": "1990-01-31",
    },
    {
        "email": "bob@example.com", "is_active": False, "first_name": "  Bob  ", "last_name": "a\nb\r\nc\rd",
        "phone": "004912", "tags": ["x|y", "z"], "client_user_id": "12345678901234567890", "birthday": "1900-01-15",
        "custom_field1": "_x0041_", "custom_field2": "<&>\"'", "custom_field3": "true", "address_line1": "\t1",
        "address_line2": "2020-01-31",
    },
    {"email": "cem@example.com", "is_active": True, "tags": ["[1]"], "first_name": "'tis", "birthday": "1904-02-29"},
    {"email": "dov@example.com", "is_active": True, "tags": [], "custom_field1": "00"},
    PERSON,
)  # fmt: skip


@pytest.fixture
def exporter(connector: Connector) -> Connector:
    create_people(connector.sandbox, *(BASE_FIELDS | person for person in PEOPLE))
    return connector


def read_sheet(path: Path) -> list[dict[str, Any]]:
    """Return the rows that openpyxl reads."""
    header, *rows = openpyxl.load_workbook(path).active.iter_rows()
    assert not any(cell.data_type == "f" for row in rows for cell in row), "a formula"
    return [{name.value: cell.value for name, cell in zip(header, row, strict=True)} for row in rows]


def test_a_workbook_has_cells_of_the_correct_types(exporter: Connector) -> None:
    assert exporter.run("export", "people.xlsx").exit_code == 0
    path = exporter.folder / "people.xlsx"
    ann, bob, cem, dov, _ = read_sheet(path)
    assert (ann["id"], type(ann["base_id"]), ann["is_active"], bob["is_active"]) == (ann["id"], int, True, False)
    assert isinstance(ann["id"], int)
    text_fields = set(PEOPLE[0]) - {"is_active", "tags", "address_zip", "birthday"}
    assert {name: ann[name] for name in text_fields} == {name: PEOPLE[0][name] for name in text_fields}
    assert (ann["address_zip"], ann["tags"], ann["birthday"]) == ("2134", "vip|a,b; c", datetime(1990, 1, 31))  # noqa: DTZ001
    assert bob["client_user_id"] == "12345678901234567890"
    assert bob["birthday"] == "1900-01-15"
    assert bob["tags"] == '["x|y","z"]'
    assert cem["first_name"] == "'tis"
    assert (dov["custom_field1"], dov["first_name"], dov["tags"]) == ("00", None, None)
    assert isinstance(ann["_exported_at"], datetime)
    assert ann["_invalid"] is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


ARGUMENTS_BY_FORMAT: dict[str, tuple[str, ...]] = {
    "workbook": ("people.xlsx",),
    "csv": ("people.csv",),
    "csv for excel with semicolons": ("people.csv", "--csv-dialect", "excel", "--delimiter", ";", "--guard-formulas"),
    "csv with tabs": ("people.csv", "--delimiter", "tab", "--no-run-columns"),
    "csv with bars": ("people.csv.gz", "--csv-dialect", "excel", "--delimiter", "|"),
}


@pytest.mark.parametrize("arguments", ARGUMENTS_BY_FORMAT.values(), ids=ARGUMENTS_BY_FORMAT)
def test_an_import_of_an_export_creates_the_exported_values(exporter: Connector, arguments: tuple[str, ...]) -> None:
    assert PERSON.keys() == {field.name for field in SENT_FIELDS}
    assert exporter.run("export", *arguments).exit_code == 0
    exported_subscribers = exporter.list_created_subscribers()
    exporter.sandbox.reset()
    exporter.environ["CONNECTOR_STATE_DIR"] = "other"
    result = exporter.run_json("import", arguments[0], "--base-name", "News", "--quiet-period", "200ms")
    result.expect(0, read=5, created=5)
    imported_subscribers = exporter.list_created_subscribers()
    for email, subscriber in exported_subscribers.items():
        for name in set(subscriber) - {"Id", "Base", "Email"}:
            exported_value, imported_value = subscriber[name], imported_subscribers[email].get(name)
            assert _trim_texts(imported_value) == _trim_texts(exported_value), (email, name)


def _trim_texts(value: Any) -> Any:
    """Trim texts like an import does."""
    if isinstance(value, dict):
        return {name: _trim_texts(inner_value) for name, inner_value in value.items()}
    return value.strip() if isinstance(value, str) else value or []


def test_a_file_without_run_columns_is_replaced_by_the_next_export(exporter: Connector) -> None:
    for name in ("people.xlsx", "people.csv", "people.jsonl", "people.parquet", "people.csv.gz"):
        for _ in range(2):
            result = exporter.run("export", name, "--no-run-columns")
            assert result.exit_code == 0, result.stderr
    names = pq.read_schema(exporter.folder / "people.parquet").names
    assert ("_run_id" in names, "_exported_at" in names, "_invalid" in names) == (False, False, True)
    assert list(read_sheet(exporter.folder / "people.xlsx")[0])[-2:] == [FIELD_NAMES[-1], "_invalid"]
    first_row = json.loads((exporter.folder / "people.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert list(first_row)[-2:] == [FIELD_NAMES[-1], "_invalid"]


def test_csv_for_excel_has_a_byte_order_mark_and_the_chosen_delimiter(exporter: Connector) -> None:
    values = "csv_dialect: excel, delimiter: ';', run_columns: false, columns: [email, first_name]"
    (exporter.folder / "job.yaml").write_text(f"job: x\nexport: {{to: people.csv, {values}}}\n")
    assert exporter.run("export", "job.yaml").exit_code == 0
    assert (exporter.folder / "people.csv").read_bytes().startswith(b'\xef\xbb\xbf"id";"email";"first_name";"_invalid"')
    assert b';"ann@example.com";"=1+1";' in (exporter.folder / "people.csv").read_bytes()
    (exporter.folder / "people.csv").unlink()
    options = ("--csv-dialect", "excel", "--delimiter", ";", "--columns", "email,first_name,tags", "--guard-formulas")
    exporter.run("export", "people.csv", *options)
    lines = (exporter.folder / "people.csv").read_bytes().splitlines()
    assert lines[0].startswith(b'\xef\xbb\xbf"id";"email";"first_name";"tags";')
    assert b';"ann@example.com";"\'=1+1";"vip|a,b; c";' in lines[1]


def test_an_export_of_a_value_that_no_cell_can_store_leaves_the_old_workbook_unchanged(connector: Connector) -> None:
    longest_values = {"custom_field1": "x" * 32_767, "custom_field2": "🎂" * 16_383}
    create_people(connector.sandbox, BASE_FIELDS | {"email": "ann@example.com"} | longest_values)
    assert connector.run("export", "people.xlsx").exit_code == 0
    [ann] = read_sheet(connector.folder / "people.xlsx")
    assert {name: ann[name] for name in longest_values} == longest_values
    workbook_before = (connector.folder / "people.xlsx").read_bytes()
    create_people(connector.sandbox, BASE_FIELDS | {"email": "bob@example.com", "custom_field1": "x" * 32_768})
    result = connector.run("export", "people.xlsx")
    assert result.is_refused
    assert "custom_field1" in result.stderr
    assert "unchanged" in result.stderr
    assert (connector.folder / "people.xlsx").read_bytes() == workbook_before
    assert [path.name for path in connector.folder.glob(".*partial")] == []
    assert connector.run("export", "people.xlsx", "--columns", "email").exit_code == 0


def test_a_workbook_refuses_a_character_that_excel_cannot_store() -> None:
    sheet = SheetFile(io.BytesIO(), ["email"])
    for text in ("a\x1bb", "a\uffffb"):
        with pytest.raises(CellError, match="which a workbook cannot contain"):
            sheet.write_row([text])
    sheet.discard()


def test_a_workbook_that_is_not_finished_closes_its_archive() -> None:
    """If the garbage collector deleted an open archive, the archive would raise an error, and pytest would fail."""
    cycle: list[object] = [SheetFile(io.BytesIO(), ["email"])]
    cycle.append(cycle)
    del cycle
    gc.collect()


def test_a_workbook_refuses_more_rows_than_excel_can_store() -> None:
    sheet = SheetFile(io.BytesIO(), ["email"])
    sheet.row_count = MAX_ROWS - 1
    sheet.write_row(["ann@example.com"])
    with pytest.raises(CellError, match="1,048,576 rows"):
        sheet.write_row(["bob@example.com"])
    sheet.discard()
