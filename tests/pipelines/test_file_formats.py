"""`connector import` and `sync` of files in every format: the same people give the same outcome."""

from pathlib import Path
from typing import Any

from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import read_rejects
from tests.sources.files.people import BUILD_FILE_BY_NAME, build_csv, build_xlsx, pack_gzip
from tests.sources.files.reading import write_file

EXPECTED_SUBSCRIBERS = [
    {
        "Email": "ann@example.com", "FirstName": "Ann", "Phone": "0031612345678", "Tags": ["VIP", "Paris, France"],
        "IsActive": True, "Birthday": "1980-02-29", "Zip": "1012", "CustomField1": "12.5",
    },
    {
        "Email": "zoë@example.com", "FirstName": 'Zoë "Z", Jr.', "Phone": "+44 20", "Tags": ["a"],
        "IsActive": False, "Birthday": "2001-12-31", "Zip": "90210", "CustomField1": "10000000000000000",
    },
]  # fmt: skip


def read_stored_subscribers(connector: Connector) -> list[dict[str, Any]]:
    subscribers = sorted(connector.list_created_subscribers().items())
    people = [subscriber | {"Zip": subscriber["Address"]["Zip"]} for _, subscriber in subscribers]
    return [{key: person[key] for key in EXPECTED_SUBSCRIBERS[0]} for person in people]


def test_standard_input_is_imported_like_a_file(connector: Connector) -> None:
    result = connector.run_json("import", "-", "--base-name", "News", stdin=BUILD_FILE_BY_NAME["people.xlsx"]())
    assert result.rows == {"read": 3, "invalid": 1, "created": 2}
    assert read_stored_subscribers(connector) == EXPECTED_SUBSCRIBERS
    assert result.report["job"] == "stdin"
    (reject,) = read_rejects(result)
    assert reject["_file"] == "standard input"


def test_options_or_a_job_can_describe_the_format_of_standard_input(connector: Connector) -> None:
    content = build_csv(";").decode().encode("cp1252")
    connector.write_job(source='file: {path: none.csv, delimiter: ";", encoding: cp1252}', fields="")
    connector.run_json("import", "-", "--job", "job.yaml", stdin=content).expect_rows(read=3, invalid=1, created=2)
    format_options = ("--encoding", "cp1252", "--delimiter", ";")
    result = connector.run_json("import", "-", "--base-name", "News", *format_options, stdin=content)
    result.expect_rows(read=3, invalid=1, exists=2)


def test_a_sheet_is_chosen_by_an_option_or_by_a_job(connector: Connector, tmp_path: Path) -> None:
    path = write_file(tmp_path, "a.xlsx", build_xlsx(sheet="Other people"))
    assert connector.run_json("import", path, "--base-name", "News", "--sheet", "Other people").rows["created"] == 2
    connector.write_job(source="file: {path: a.xlsx, format: excel, sheet: 1}", fields="")
    assert connector.sync().rows == {"read": 3, "invalid": 1, "exists": 2}


CONTENT_TO_GZIP = b"email;name;colour;is_active\nann@x.org;Ann;red;true\nnobody;Ann;blue;true\n"


def write_inbox(folder: Path) -> None:
    (folder / "inbox").mkdir()
    write_file(folder / "inbox", "2026-02.csv", "name,email,is_active\nBob,bob@x.org,true\nshort\nCem,nobody,true\n")
    write_file(folder / "inbox", "2026-01.csv.gz", pack_gzip(CONTENT_TO_GZIP))


def test_a_rejects_file_names_the_source_file_of_each_row(connector: Connector, tmp_path: Path) -> None:
    write_inbox(tmp_path)
    connector.write_job(source="file: {path: 'inbox/*'}", fields="")
    result = connector.sync()
    assert result.rows == {"read": 5, "invalid": 3, "created": 2}
    assert set(connector.count_creates_by_email()) == {"ann@x.org", "bob@x.org"}
    inbox_folder = tmp_path / "inbox"
    reject_rows = [
        (row["_file"], row["_row"], row["email"], row["name"], row["colour"]) for row in read_rejects(result)
    ]
    assert sorted(reject_rows) == [
        (str(inbox_folder / "2026-01.csv.gz"), "3", "nobody", "Ann", "blue"),
        (str(inbox_folder / "2026-02.csv"), "3", "", "", ""),
        (str(inbox_folder / "2026-02.csv"), "4", "nobody", "Cem", ""),
    ]
    limited_result = connector.sync("job.yaml", "--limit", "4")
    assert limited_result.rows == {"read": 4, "invalid": 2, "exists": 2}, "the limit counts the records of all files"
