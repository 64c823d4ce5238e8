"""Corrected rejects files: an import by the same job creates all rows with the same mapping."""

import csv
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.conftest import Connector, list_stored, write_csv

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
GOOD = ("ANN@x.org", "ann mary lee", "V", "030 1234567", "a | b", "7", " n ", "", "Utrecht", "Main", "5", "31-01-1990")
EXPECTED = {
    "Email": "ann@x.org",
    "IsActive": True,
    "FirstName": "Ann Mary",
    "LastName": "Lee",
    "Gender": "female",
    "Phone": "+31301234567",
    "Tags": ["a", "b"],
    "CustomField1": "a. (7)",
    "CustomField2": " n ",
    "Address": {"Country": "NL", "City": "Utrecht", "Line1": "Main 5"},
    "Birthday": "1990-01-31",
}
# The wrong cells of a row, the fields and codes in the rejects file, and the corrected cells.
BROKEN: tuple[tuple[dict[str, str], str, str, dict[str, str]], ...] = (
    ({"Mail": "bob@"}, "email", "email", {"Mail": "Bob@x.org"}),
    ({"Mail": "cis@x.org", "Sex": "X"}, "gender", "gender", {"Sex": "M"}),
    ({"Mail": "dov@x.org", "Tel": "call me"}, "phone", "phone", {"Tel": "+49 30 1234567"}),
    ({"Mail": "eve@x.org", "Land": "Narnia"}, "address_country", "country", {"Land": "Deutschland"}),
    ({"Mail": "fay@x.org", "Born": "31-02-1990"}, "birthday", "date", {"Born": "1990-02-03"}),
    ({"Mail": "gus@x.org", "Name": ""}, "first_name; custom_field1", "required; template", {"Name": "gus"}),
    (
        {"Mail": "", "Sex": "?", "Born": "30-30-1990"},
        "email; gender; birthday",
        "required; gender; date",
        {"Mail": "hal@x.org", "Sex": "", "Born": ""},
    ),
)  # fmt: skip


def write_people(folder: Path) -> None:
    """Write a good row and the broken rows."""
    rows = [dict(zip(HEADER, GOOD, strict=True)) | wrong for wrong in ({}, *(each[0] for each in BROKEN))]
    write_csv(folder / "people.csv", ";".join(HEADER), *(";".join(row.values()) for row in rows))
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")


def correct(path: Path, change: Callable[[int, dict[str, str]], None]) -> list[dict[str, str]]:
    """Rewrite a CSV row by row, and return the rows before the change."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for place, row in enumerate(rows):
            changed = dict(row)
            change(place, changed)
            writer.writerow(changed)
    return rows


def test_a_corrected_rejects_file_of_a_mapped_job_creates_all_rows(connector: Connector, tmp_path: Path) -> None:
    write_people(tmp_path)
    first = connector.run_json("sync", "job.yaml")
    assert first.rows == {"read": 1 + len(BROKEN), "created": 1, "invalid": len(BROKEN)}, first.stderr
    rejects = Path(first.report["rejects_file"])
    as_they_were = correct(rejects, lambda place, row: row.update(BROKEN[place][3]))
    assert [(row["_field"], row["_code"]) for row in as_they_were] == [each[1:3] for each in BROKEN]
    assert all(row["Note"] == " n " for row in as_they_were)
    second = connector.run_json("import", rejects, "--job", "job.yaml")
    assert (second.code, second.rows) == (0, {"read": len(BROKEN), "created": len(BROKEN)}), second.stderr
    again = connector.run_json("import", rejects, "--job", "job.yaml")
    assert (again.code, again.rows) == (0, {"read": len(BROKEN), "exists": len(BROKEN)})
    assert connector.run_json("sync", "job.yaml").rows == {"read": 1 + len(BROKEN), "exists": 1, "invalid": len(BROKEN)}

    stored = list_stored(connector.sandbox)
    ann = stored["ann@x.org"]
    assert {name: ann[name] for name in EXPECTED if name != "Address"} | {
        "Address": {name: ann["Address"][name] for name in EXPECTED["Address"]}  # type: ignore[attr-defined] # a dict
    } == EXPECTED
    assert set(stored) == {
        "ann@x.org",
        *(f"{name}@x.org" for name in ("bob", "cis", "dov", "eve", "fay", "gus", "hal")),
    }
    assert stored["dov@x.org"]["Phone"] == "+49301234567"
    assert stored["eve@x.org"]["Address"]["Country"] == "DE"
    assert stored["fay@x.org"]["Birthday"] == "1990-02-03"
    assert (stored["gus@x.org"]["FirstName"], stored["gus@x.org"]["LastName"]) == ("Gus", "-")
    assert stored["gus@x.org"]["CustomField1"] == "g. (7)"


def test_formulas_in_rejects_are_guarded_and_imported_unchanged(connector: Connector, tmp_path: Path) -> None:
    write_csv(
        tmp_path / "people.csv",
        "email,first_name,phone,custom_field1",
        "a@,=1+1,+31301234567,'=x",
        "ragged,row",
    )
    first = connector.import_file(tmp_path / "people.csv")
    assert first.rows == {"read": 2, "invalid": 2}
    rejects = Path(first.report["rejects_file"])
    ragged, wrong = correct(rejects, lambda _, row: row.update({"email": "a@x.org"} if row["email"] else {}))
    guarded = [wrong[name] for name in ("first_name", "phone", "custom_field1")]
    assert guarded == ["'=1+1", "'+31301234567", "''=x"]
    assert ragged["_raw"] == "ragged,row"

    second = connector.import_file(rejects)
    assert (second.rows, second.report["unmapped_columns"]) == ({"read": 2, "created": 1, "invalid": 1}, [])
    stored = list_stored(connector.sandbox)["a@x.org"]
    assert [stored[name] for name in ("FirstName", "Phone", "CustomField1")] == ["=1+1", "+31301234567", "=x"]
    (left,) = correct(Path(second.report["rejects_file"]), lambda place, row: None)
    assert (left["_raw"], left["_code"], left["email"]) == ("ragged,row", "ragged", "")
    assert "is not corrected yet" in left["_message"]
