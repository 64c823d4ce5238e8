"""Corrected rejects files: an import by the same job creates all rows with the same mapping."""

import csv
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.conftest import Connector, write_csv

JOB = """\
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
    ({"Mail": "", "Sex": "?", "Born": "30-30-1990"}, "email; gender; birthday", "required; gender; date",
     {"Mail": "hal@x.org", "Sex": "", "Born": ""}),
)  # fmt: skip


def write_people(folder: Path) -> None:
    """Write a good row and the broken rows."""
    wrong_cells_of_rows = ({}, *(invalid_row[0] for invalid_row in INVALID_ROWS))
    rows = [dict(zip(HEADER, VALID_ROW, strict=True)) | wrong_cells for wrong_cells in wrong_cells_of_rows]
    write_csv(folder / "people.csv", ";".join(HEADER), *(";".join(row.values()) for row in rows))
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")


def correct_rows(path: Path, change_row: Callable[[int, dict[str, str]], None]) -> list[dict[str, str]]:
    """Rewrite a CSV row by row, and return the rows before the change."""
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
    reject_rows_before = correct_rows(rejects_path, lambda row_index, row: row.update(INVALID_ROWS[row_index][3]))
    faults = [(row["_field"], row["_code"]) for row in reject_rows_before]
    assert faults == [invalid_row[1:3] for invalid_row in INVALID_ROWS]
    assert all(row["Note"] == " n " for row in reject_rows_before)
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


def test_formulas_in_rejects_are_guarded_and_imported_unchanged(connector: Connector) -> None:
    connector.write_people("email,first_name,phone,custom_field1", "a@,=1+1,+31301234567,'=x", "ragged,row")
    first_result = connector.import_file(connector.folder / "people.csv")
    assert first_result.rows == {"read": 2, "invalid": 2}
    rejects_path = Path(first_result.report["rejects_file"])
    change_row = lambda _, row: row.update({"email": "a@x.org"} if row["email"] else {})  # noqa: E731
    ragged_row, formula_row = correct_rows(rejects_path, change_row)
    guarded_cells = [formula_row[name] for name in ("first_name", "phone", "custom_field1")]
    assert guarded_cells == ["'=1+1", "'+31301234567", "''=x"]
    assert ragged_row["_raw"] == "ragged,row"
    second_result = connector.import_file(rejects_path)
    assert second_result.rows == {"read": 2, "created": 1, "invalid": 1}
    assert second_result.report["unmapped_columns"] == []
    subscriber = connector.list_created_subscribers()["a@x.org"]
    assert [subscriber[name] for name in ("FirstName", "Phone", "CustomField1")] == ["=1+1", "+31301234567", "=x"]
    (remaining_row,) = correct_rows(Path(second_result.report["rejects_file"]), lambda row_index, row: None)
    assert (remaining_row["_raw"], remaining_row["_code"], remaining_row["email"]) == ("ragged,row", "ragged", "")
    assert "is not corrected yet" in remaining_row["_message"]
