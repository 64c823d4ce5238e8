"""`connector import FILE`: outcomes, rejects files, options and reports."""

import csv
from pathlib import Path

from connector.runs.rejects import ADDED_COLUMNS
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector
from tests.pipelines.leftovers import read_rejects

INVALID_LINES = (
    "Email Address,First Name,Zip,Birthday,Colour",
    "ann@example.com,Ann,1012,1980-02-29,red",
    "no address,Bob,,,blue",
    ",Cem,,2999-01-01,",
    "dan@example.com,Dan",
    "ANN@example.com,Ann,1012,1980-02-29,green",
    "ann@example.com,Anna,1012,1980-02-29,",
    '"eve@example.com","Eve ""E"", Jr.",SW1A 1AA,,"two\nlines"',
)


def test_each_row_has_one_outcome_and_the_rejects_file_has_its_faults(connector: Connector) -> None:
    result = connector.import_file(connector.write_people(*INVALID_LINES))
    assert result.exit_code == 1
    assert result.report["status"] == "partial"
    assert result.rows == {"read": 7, "invalid": 3, "duplicate": 2, "created": 2}
    assert connector.count_creates_by_email() == {"ann@example.com": 1, "eve@example.com": 1}
    assert Path(result.report["rejects_file"]).stat().st_mode & 0o777 == 0o600
    reject_rows = read_rejects(result)
    assert list(reject_rows[0]) == [*INVALID_LINES[0].split(","), *ADDED_COLUMNS]
    faults_by_row = {row["_row"]: (row["_outcome"], row["_field"], row["Colour"]) for row in reject_rows}
    assert faults_by_row == {
        "3": ("invalid", "email", "blue"), "4": ("invalid", "email; birthday", ""),
        "5": ("invalid", "", ""), "7": ("duplicate", "email", ""),
    }  # fmt: skip
    reject = next(row for row in reject_rows if row["_row"] == "5")
    assert reject["_raw"] == "dan@example.com,Dan"
    assert "line 5" in reject["_message"]
    for expected_text in ("1 zip code is not a plain number", "columns not used: Colour"):
        assert expected_text in result.stderr
        assert result.find_messages(expected_text)


def test_a_wrong_token_ends_the_run_at_the_first_request_and_the_ledger_gets_no_entry(connector: Connector) -> None:
    path = connector.write_addresses(20)
    result = connector.run_json("import", path, "--base-id", "7", environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})
    assert result.is_refused
    assert "401" in result.stderr
    assert "not-the-token" not in result.stdout + result.stderr
    assert sum(request["received"] for request in connector.sandbox.stats()["requests"].values()) == 1
    assert connector.ledger.fetch("SELECT state FROM entry") == []
    assert connector.run_json("import", path, "--base-id", "7").rows == {"read": 20, "created": 20}


def test_a_column_with_a_reserved_name_stays_in_the_rejects_file(connector: Connector) -> None:
    result = connector.import_file(connector.write_people("email,_at", "nobody,noon"))
    with Path(result.report["rejects_file"]).open(encoding="utf-8", newline="") as file:
        header, row = csv.reader(file)
    assert (header[:2], row[:2]) == (["email", "_at"], ["nobody", "noon"])


def test_a_rejects_file_is_not_read_in_the_file_format_of_the_job(connector: Connector, tmp_path: Path) -> None:
    source = "file: {path: old.csv, encoding: cp1252, delimiter: ';'}"
    fields = "email: Adresse, first_name: Prénom, is_active: {value: true}"
    connector.write_job(source=source, base="id: 7", fields=fields)
    path = tmp_path / "new.csv"
    path.write_bytes("Adresse;Prénom\na@x.org;Zoë\nb@;Noë\n".encode("cp1252"))
    first_result = connector.run_json("import", path, "--job", "job.yaml")
    assert first_result.rows == {"read": 2, "created": 1, "invalid": 1}
    rejects_path = Path(first_result.report["rejects_file"])
    rejects_path.write_text(rejects_path.read_text(encoding="utf-8").replace("b@,", "b@x.org,"), encoding="utf-8")
    assert connector.run_json("import", rejects_path, "--job", "job.yaml").rows == {"read": 1, "created": 1}


def test_a_rejects_file_that_cannot_be_written_ends_the_run(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "rejects").write_text("in the way", encoding="utf-8")
    result = connector.import_file(connector.write_people("email", "a@x.org", "nobody"))
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "rejects" in result.stderr


def test_a_report_in_a_folder_that_cannot_be_written_is_refused_before_anybody_is_created(
    connector: Connector, tmp_path: Path
) -> None:
    people_path, folder = connector.write_addresses(1), tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o500)
    for option, name in (("--report", "run.json"), ("--metrics", "run.prom")):
        arguments = ("import", people_path, *NEWS_IMPORT_OPTIONS, option, folder / name)
        with connector.start(*arguments, is_unprivileged=True) as process:
            _, stderr = process.communicate()
        assert (process.returncode, connector.count_creates_by_email()) == (2, {})
        assert "this user cannot write in the folder; name a file in another folder" in stderr
