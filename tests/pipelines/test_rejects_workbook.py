"""Rejects of a workbook are a workbook of texts, whose corrected rows are imported like the rows of a CSV."""

import csv
import stat
from pathlib import Path

import openpyxl
import pytest

from tests.pipelines.conftest import Connector

HEADER = ("Email", "Vorname", "Telefon", "PLZ", "Geburtstag", "=Notiz")
ROWS: tuple[tuple[object, ...], ...] = (
    ("ann@example.com", "Ann", "+49301", "02134", "1990-01-31", "x"),
    ("bob at example.com", "=1+1", "+4930123", "00123", "1991-02-03", "'=x"),
    ("cem at example.com", "Łukasz 🎂", 4930123, 2134, "1992-03-04", "a\nb\r_x0041_"),
)


def write_workbook(path: Path, *rows: tuple[object, ...], header: tuple[object, ...] = HEADER) -> Path:
    workbook = openpyxl.Workbook()
    for row in (header, *rows):
        workbook.active.append([None] * len(row))
        for column_number, value in enumerate(row, start=1):
            cell = workbook.active.cell(workbook.active.max_row, column_number)
            cell.value = value
            if isinstance(value, str):
                cell.data_type = "s"  # even if the text begins with =
    workbook.save(path)
    return path


@pytest.fixture
def people_path(tmp_path: Path) -> Path:
    return write_workbook(tmp_path / "people.xlsx", *ROWS)


def test_corrected_rejects_of_a_workbook_are_imported(connector: Connector, people_path: Path) -> None:
    first_result = connector.import_file(people_path).expect(1, read=3, created=1, invalid=2)
    path = Path(first_result.report["rejects_file"])
    assert (path.suffix, [reject_file.name for reject_file in path.parent.iterdir()]) == (".xlsx", [path.name])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    workbook = openpyxl.load_workbook(path)
    header, *lines = workbook.active.iter_rows()
    header_names = [cell.value for cell in header]
    assert header_names[: len(HEADER)] == list(HEADER)
    assert header_names[len(HEADER) :][:3] == ["_row", "_file", "_outcome"]
    assert all(cell.data_type in ("s", "inlineStr", "n") for line in lines for cell in line)
    bob, cem = ([cell.value for cell in line] for line in lines)
    assert bob[:6] == ["bob at example.com", "=1+1", "+4930123", "00123", "1991-02-03", "'=x"]
    assert cem[:4] == ["cem at example.com", "Łukasz 🎂", "4930123", "2134"]
    for line in lines:
        line[0].value = str(line[0].value).replace(" at ", "@")
    workbook.save(path)
    connector.import_file(path).expect(0, read=2, created=2)
    subscribers = connector.list_created_subscribers()
    assert subscribers["bob@example.com"]["FirstName"] == "=1+1"
    assert subscribers["bob@example.com"]["Phone"] == "+4930123"
    assert subscribers["cem@example.com"]["FirstName"] == "Łukasz 🎂"
    assert subscribers["cem@example.com"]["Phone"] == "4930123"


def test_validate_writes_rejects_in_the_format_of_the_file_name(connector: Connector, people_path: Path) -> None:
    for name in ("bad.xlsx", "bad.csv"):
        result = connector.run("validate", people_path, "--active", "--rejects", name)
        assert result.exit_code == 1, result.stderr
    file_names = {"bad.xlsx", "bad.csv", "people.xlsx"}
    assert {path.name for path in connector.folder.iterdir() if path.is_file()} == file_names
    rows = [row[:2] for row in openpyxl.load_workbook(connector.folder / "bad.xlsx").active.iter_rows(values_only=True)]
    assert rows == [HEADER[:2], ROWS[1][:2], ROWS[2][:2]]


def test_rejects_that_do_not_fit_into_a_workbook_are_a_csv_file(connector: Connector) -> None:
    cells = {f"note {column_number}": "x" * 30_000 for column_number in range(3)}
    overlong_row = ("b@example.com", *cells.values(), "beside the columns")
    people_path = write_workbook(connector.folder / "people.xlsx", overlong_row, header=("email", *cells))
    result = connector.import_file(people_path)
    path = Path(result.report["rejects_file"])
    assert (result.exit_code, path.suffix, list(path.parent.iterdir())) == (1, ".csv", [path])
    assert "stays a CSV" in result.stderr
    csv.field_size_limit(1 << 20)
    with path.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 2
