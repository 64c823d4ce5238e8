"""Rejects of a workbook are a workbook of texts, whose corrected rows are imported like those of a CSV."""

import csv
import stat
from pathlib import Path

import openpyxl
import pytest

from tests.pipelines.conftest import INTO_NEWS, Connector, count_stored, has_stored, list_stored, wait_for

HEADER = ("Email", "Vorname", "Telefon", "PLZ", "Geburtstag", "=Notiz")
ROWS: tuple[tuple[object, ...], ...] = (
    ("ann@example.com", "Ann", "+49301", "02134", "1990-01-31", "x"),
    ("bob at example.com", "=1+1", "+4930123", "00123", "1991-02-03", "'=x"),
    ("cem at example.com", "Łukasz 🎂", 4930123, 2134, "1992-03-04", "a\nb\r_x0041_"),
)


def write_workbook(path: Path, *rows: tuple[object, ...], header: tuple[object, ...] = HEADER) -> Path:
    book = openpyxl.Workbook()
    for row in (header, *rows):
        book.active.append([None] * len(row))
        for number, value in enumerate(row, start=1):
            cell = book.active.cell(book.active.max_row, number)
            cell.value = value
            if isinstance(value, str):
                cell.data_type = "s"  # also where it begins with =
    book.save(path)
    return path


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_workbook(tmp_path / "people.xlsx", *ROWS)


def test_rejects_of_a_workbook_are_corrected_in_the_workbook_and_imported(connector: Connector, people: Path) -> None:
    first = connector.import_file(people)
    assert (first.code, first.rows) == (1, {"read": 3, "created": 1, "invalid": 2}), first.stderr
    path = Path(first.report["rejects_file"])
    assert (path.suffix, [each.name for each in path.parent.iterdir()]) == (".xlsx", [path.name])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    book = openpyxl.load_workbook(path)
    header, *lines = book.active.iter_rows()
    names = [cell.value for cell in header]
    assert names[: len(HEADER)] == list(HEADER)
    assert names[len(HEADER) :][:3] == ["_row", "_file", "_outcome"]
    assert all(cell.data_type in ("s", "inlineStr", "n") for line in lines for cell in line)
    bob, cem = ([cell.value for cell in line] for line in lines)
    assert bob[:6] == ["bob at example.com", "=1+1", "+4930123", "00123", "1991-02-03", "'=x"]
    assert cem[:4] == ["cem at example.com", "Łukasz 🎂", "4930123", "2134"]

    again = connector.import_file(path)  # rejects of rejects
    assert (again.code, again.rows) == (1, {"read": 2, "invalid": 2})
    [*_, last] = openpyxl.load_workbook(again.report["rejects_file"]).active.iter_rows(values_only=True)
    assert list(last[:6]) == cem[:6]
    for line in lines:
        line[0].value = str(line[0].value).replace(" at ", "@")
    book.save(path)
    second = connector.import_file(path)
    assert (second.code, second.rows) == (0, {"read": 2, "created": 2}), second.stderr
    stored = list_stored(connector.sandbox)
    assert (stored["bob@example.com"]["FirstName"], stored["bob@example.com"]["Phone"]) == ("=1+1", "+4930123")
    assert (stored["cem@example.com"]["FirstName"], stored["cem@example.com"]["Phone"]) == ("Łukasz 🎂", "4930123")


def test_validate_writes_rejects_in_the_format_of_the_file_name(connector: Connector, people: Path) -> None:
    for name in ("bad.xlsx", "bad.csv"):
        result = connector.run("validate", people, "--active", "--rejects", name)
        assert result.code == 1, result.stderr
    names = {"bad.xlsx", "bad.csv", "people.xlsx"}
    assert {path.name for path in connector.folder.iterdir() if path.is_file()} == names
    rows = [row[:2] for row in openpyxl.load_workbook(connector.folder / "bad.xlsx").active.iter_rows(values_only=True)]
    assert rows == [HEADER[:2], ROWS[1][:2], ROWS[2][:2]]


def test_rejects_that_a_workbook_cannot_hold_stay_a_csv(connector: Connector, tmp_path: Path) -> None:
    cells = {f"note {number}": "x" * 30_000 for number in range(3)}
    beside = ("b@example.com", *cells.values(), "beside the columns")
    people = write_workbook(tmp_path / "people.xlsx", beside, header=("email", *cells))
    result = connector.import_file(people)
    path = Path(result.report["rejects_file"])
    assert (result.code, path.suffix, list(path.parent.iterdir())) == (1, ".csv", [path])
    assert "stays a CSV" in result.stderr
    csv.field_size_limit(1 << 20)
    with path.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 2


def test_a_killed_run_leaves_a_csv_and_no_partial_workbook(connector: Connector, tmp_path: Path) -> None:
    good = [(f"p{number}@example.com", "P") for number in range(5)]
    people = write_workbook(tmp_path / "people.xlsx", ("bob at x", "Bob"), *good, header=("email", "first_name"))
    connector.sandbox.switch(hang_after=1)
    with connector.start("import", people, *INTO_NEWS, "--max-concurrency", "1") as process:
        wait_for(lambda: has_stored(connector.sandbox, 1))
        process.kill()
        process.communicate()
    connector.sandbox.switch(hang_after=0)
    [left] = (connector.folder / "state" / "rejects").iterdir()
    assert left.suffix == ".csv"
    result = connector.import_file(people)
    assert Path(result.report["rejects_file"]).suffix == ".xlsx"
    assert len(count_stored(connector.sandbox)) == 5
    pruned = connector.run("prune", "--older-than", "0s")
    assert (pruned.code, "deleted in" in pruned.stderr) == (0, True)
    assert list((connector.folder / "state" / "rejects").iterdir()) == []
