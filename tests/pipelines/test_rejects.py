"""Rejects files: the examples in the report, rejects as a workbook, and the import of corrected rejects."""

import csv
import re
import stat
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector, write_csv


def list_examples(output: str) -> list[str]:
    return re.findall(r"^Row .*", output, re.MULTILINE)


def test_the_report_shows_the_first_three_rows_that_need_a_person(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    rows = ["ann@x.org,Ann,NL", "secret,Bob,NL", "cem@x.org,,NL", "dan@x.org,Dan,Utopia", "hidden,Eve,NL"]
    connector.write_people("email,first_name,country", *rows)
    result = connector.run("import", "people.csv", *NEWS_IMPORT_OPTIONS)
    assert result.exit_code == 1
    examples = list_examples(result.stdout)
    row_texts = [example.partition(":")[0] for example in examples]
    assert row_texts == ["Row 3 (invalid)", "Row 4 (rejected)", "Row 5 (invalid)"]
    assert examples[0] == "Row 3 (invalid): email is not one complete email address, such as ann@example.com"
    assert "FirstName is required" in examples[1]
    assert "is not a country" in examples[2]
    assert "secret" not in result.stdout
    run_id = connector.run_json("status").report["runs"][0]["run_id"]
    assert list_examples(connector.run("status", run_id).stdout) == examples


def test_an_example_of_an_invalid_row_names_the_file_of_the_row(connector: Connector) -> None:
    connector.write_csv("a\nNext: run.csv", "email,country", "ann@x.org,Utopia")
    connector.write_csv("b.csv", "email,country", "secret,Utopia")
    result = connector.run("import", "*.csv", *NEWS_IMPORT_OPTIONS)
    examples = list_examples(result.stdout)
    assert [example.partition(":")[0] for example in examples] == [r"Row 2 of a\nNext", "Row 2 of b.csv (invalid)"]
    assert "is not one complete email address" in examples[1]
    assert "is not a country" in examples[1]


def test_the_report_of_a_retry_has_no_row_numbers(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    connector.write_people("email", "ann@x.org")
    assert list_examples(connector.run("import", "people.csv", *NEWS_IMPORT_OPTIONS).stdout) != []
    result = connector.run("retry", "--rejected", "--quiet-period", "100ms")
    assert (result.exit_code, list_examples(result.stdout)) == (1, [])


WORKBOOK_HEADER = ("Email", "Vorname", "Telefon", "PLZ", "Geburtstag", "=Notiz")
WORKBOOK_ROWS: tuple[tuple[object, ...], ...] = (
    ("ann@example.com", "Ann", "+49301", "02134", "1990-01-31", "x"),
    ("bob at example.com", "=1+1", "+4930123", "00123", "1991-02-03", "'=x"),
    ("cem at example.com", "Łukasz 🎂", 4930123, 2134, "1992-03-04", "a\nb\r_x0041_"),
)


def write_workbook(path: Path, *rows: tuple[object, ...], header: tuple[object, ...] = WORKBOOK_HEADER) -> Path:
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
    return write_workbook(tmp_path / "people.xlsx", *WORKBOOK_ROWS)


def test_corrected_rejects_of_a_workbook_are_imported(connector: Connector, people_path: Path) -> None:
    first_result = connector.import_file(people_path).expect(1, read=3, created=1, invalid=2)
    path = Path(first_result.report["rejects_file"])
    assert (path.suffix, [reject_file.name for reject_file in path.parent.iterdir()]) == (".xlsx", [path.name])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    workbook = openpyxl.load_workbook(path)
    header, *lines = workbook.active.iter_rows()
    header_names = [cell.value for cell in header]
    assert header_names[: len(WORKBOOK_HEADER)] == list(WORKBOOK_HEADER)
    assert header_names[len(WORKBOOK_HEADER) :][:3] == ["_row", "_file", "_outcome"]
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
    assert rows == [WORKBOOK_HEADER[:2], WORKBOOK_ROWS[1][:2], WORKBOOK_ROWS[2][:2]]


def test_rejects_that_do_not_fit_into_a_workbook_are_written_to_a_csv_file(connector: Connector) -> None:
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


JOB_YAML = """\
job: shop
source: {file: {path: people.csv, delimiter: ";"}}
subscriber:
  base: {name: Shop}
  fields:
    email: {column: Mail, case: lower}
    is_active: {value: true}
    first_name: {template: "{{ Name.rpartition(' ')[0] or Name }}", case: title}
    last_name: {template: "{{ Name.rpartition(' ')[2] if ' ' in Name else '' }}", case: title, default: "-"}
    gender: {column: Sex, values: {V: female, M: male}}
    phone: {column: Tel, e164: NL}
    tags: {column: Groups, split: "|"}
    custom_field1: {template: "{{ Name[0] }}. ({{ row['Member No'] }})"}
    custom_field2: {column: Note, trim: false}
    address_country: {column: Land, default: NL}
    address_city: Town
    address_line1: {template: "{{ [Street, House] | select | join(' ') }}"}
    birthday: {column: Born, format: ["%d-%m-%Y", "%Y-%m-%d"]}
  required: [first_name]
  zip: reject
"""
HEADER = ("Mail", "Name", "Sex", "Tel", "Groups", "Member No", "Note", "Land", "Town", "Street", "House", "Born")
VALID_ROW = (
    "ANN@x.org", "ann mary lee", "V", "030 1234567", "a | b", "7", " n ", "", "Utrecht", "Main", "5", "31-01-1990"
)  # fmt: skip
EXPECTED_FIELDS = {
    "Email": "ann@x.org", "IsActive": True, "FirstName": "Ann Mary", "LastName": "Lee", "Gender": "female",
    "Phone": "+31301234567", "Tags": ["a", "b"], "CustomField1": "a. (7)", "CustomField2": " n ",
    "Address": {"Country": "NL", "City": "Utrecht", "Line1": "Main 5"}, "Birthday": "1990-01-31",
}  # fmt: skip
# The wrong cells of a row, the fields and codes in the rejects file, and the corrected cells.
INVALID_ROWS: tuple[tuple[dict[str, str], str, str, dict[str, str]], ...] = (
    ({"Mail": "bob@"}, "email", "email", {"Mail": "Bob@x.org"}),
    ({"Mail": "cis@x.org", "Sex": "X"}, "gender", "gender", {"Sex": "M"}),
    ({"Mail": "dov@x.org", "Tel": "call me"}, "phone", "phone", {"Tel": "+49 30 1234567"}),
    ({"Mail": "eve@x.org", "Land": "Narnia"}, "address_country", "country", {"Land": "Deutschland"}),
    ({"Mail": "fay@x.org", "Born": "31-02-1990"}, "birthday", "date", {"Born": "1990-02-03"}),
    ({"Mail": "gus@x.org", "Name": ""}, "first_name; custom_field1", "required; template", {"Name": "gus"}),
    ({"Mail": "", "Sex": "z", "Born": "30-30-1990"}, "email; gender; birthday", "required; gender; date",
     {"Mail": "hal@x.org", "Sex": "", "Born": ""}),
)  # fmt: skip


def write_people(folder: Path) -> None:
    """Write a good row and the broken rows."""
    wrong_cells_of_rows = ({}, *(invalid_row[0] for invalid_row in INVALID_ROWS))
    rows = [dict(zip(HEADER, VALID_ROW, strict=True)) | wrong_cells for wrong_cells in wrong_cells_of_rows]
    write_csv(folder / "people.csv", ";".join(HEADER), *(";".join(row.values()) for row in rows))
    (folder / "job.yaml").write_text(JOB_YAML, encoding="utf-8")


def correct_rows(path: Path, change_row: Callable[[int, dict[str, str]], None]) -> list[dict[str, str]]:
    """Call `change_row` with the index and the cells of each row of a CSV file. Return the rows before the changes."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row_index, row in enumerate(rows):
            changed_row = dict(row)
            change_row(row_index, changed_row)
            writer.writerow(changed_row)
    return rows


def test_a_corrected_rejects_file_of_a_mapped_job_creates_all_rows(connector: Connector) -> None:
    write_people(connector.folder)
    first_result = connector.sync()
    first_result.expect(1, read=8, created=1, invalid=7)
    rejects_path = Path(first_result.report["rejects_file"])
    rows_before_correction = correct_rows(rejects_path, lambda row_index, row: row.update(INVALID_ROWS[row_index][3]))
    faults = [(row["_field"], row["_code"]) for row in rows_before_correction]
    assert faults == [invalid_row[1:3] for invalid_row in INVALID_ROWS]
    assert all(row["Note"] == " n " for row in rows_before_correction)
    connector.run_json("import", rejects_path, "--job", "job.yaml").expect(0, read=7, created=7)
    subscribers = connector.list_created_subscribers()
    ann = subscribers["ann@x.org"]
    assert {name: ann[name] for name in EXPECTED_FIELDS if name != "Address"} | {
        "Address": {name: ann["Address"][name] for name in EXPECTED_FIELDS["Address"]}  # type: ignore[attr-defined] # a dict
    } == EXPECTED_FIELDS
    assert set(subscribers) == {f"{name}@x.org" for name in ("ann", "bob", "cis", "dov", "eve", "fay", "gus", "hal")}
    assert subscribers["dov@x.org"]["Phone"] == "+49301234567"
    assert subscribers["eve@x.org"]["Address"]["Country"] == "DE"
    assert subscribers["fay@x.org"]["Birthday"] == "1990-02-03"
    assert (subscribers["gus@x.org"]["FirstName"], subscribers["gus@x.org"]["LastName"]) == ("Gus", "-")
    assert subscribers["gus@x.org"]["CustomField1"] == "g. (7)"


def test_formulas_in_rejects_are_escaped_and_imported_unchanged(connector: Connector) -> None:
    connector.write_people("email,first_name,phone,custom_field1", "a@,=1+1,+31301234567,'=x", "ragged,row")
    first_result = connector.import_file(connector.folder / "people.csv")
    assert first_result.rows == {"read": 2, "invalid": 2}
    rejects_path = Path(first_result.report["rejects_file"])
    change_row = lambda _, row: row.update({"email": "a@x.org"} if row["email"] else {})  # noqa: E731
    ragged_row, formula_row = correct_rows(rejects_path, change_row)
    escaped_cells = [formula_row[name] for name in ("first_name", "phone", "custom_field1")]
    assert escaped_cells == ["'=1+1", "'+31301234567", "''=x"]
    assert ragged_row["_raw"] == "ragged,row"
    second_result = connector.import_file(rejects_path)
    assert second_result.rows == {"read": 2, "created": 1, "invalid": 1}
    assert second_result.report["unmapped_columns"] == []
    subscriber = connector.list_created_subscribers()["a@x.org"]
    assert [subscriber[name] for name in ("FirstName", "Phone", "CustomField1")] == ["=1+1", "+31301234567", "=x"]
    (remaining_row,) = correct_rows(Path(second_result.report["rejects_file"]), lambda row_index, row: None)
    assert (remaining_row["_raw"], remaining_row["_code"], remaining_row["email"]) == ("ragged,row", "ragged", "")
    assert "is not corrected yet" in remaining_row["_message"]
