"""`connector validate` finds the invalid rows and the duplicates of a source. It needs no service, token or ledger."""

from pathlib import Path
from typing import Any

from tests.pipelines.conftest import CommandResult, Connector, read_rows

ENVIRON_WITHOUT_SERVICE: dict[str, str | None] = {"CONNECTOR_BASE_URL": None, "CONNECTOR_TOKEN": None}

PEOPLE = (
    "Email,First Name,Gender,is_active,Zip,Plan",
    "ann@x.org,Ann,male,yes,1011,a",
    "bob,Bob,m,yes,1011,b",
    "cis@x.org,Cis,f,yes,02134,c",
    "ragged@x.org",
    "CIS@x.org,Other,m,yes,1011,c",
    "ANN@x.org,Ann,male,yes,1011,a",
    "ann@x.org,Ann,female,yes,1011,a",
)


def validate(connector: Connector, *arguments: str | Path) -> CommandResult:
    return connector.run_json("validate", *arguments, environ=ENVIRON_WITHOUT_SERVICE)


def list_faults(result: CommandResult) -> list[tuple[str, str, int, list[tuple[int, str]]]]:
    def list_examples(fault: dict[str, Any]) -> list[tuple[int, str]]:
        return [(example["row"], example["value"]) for example in fault["examples"]]

    faults = result.report["faults"]
    return [(fault["field"], fault["code"], fault["rows"], list_examples(fault)) for fault in faults]


def test_each_fault_is_counted_with_examples_of_original_values(connector: Connector) -> None:
    result = validate(connector, connector.write_people(*PEOPLE))
    assert (result.exit_code, result.report["status"], result.report["command"]) == (1, "partial", "validate")
    assert result.rows == {"read": 7, "valid": 1, "invalid": 4, "duplicate": 2}
    assert list_faults(result) == [
        ("gender", "gender", 3, [(3, "m"), (4, "f")]),
        ("", "ragged", 1, [(5, "ragged@x.org")]),
        ("email", "email", 1, [(3, "bob")]),
    ]
    assert result.report["unmapped_columns"] == ["Plan"]
    assert (result.report["rejects_file"], result.report["job"]) == (None, "people")
    assert connector.sandbox.stats()["requests"] == {}
    assert [path.name for path in connector.folder.iterdir()] == ["people.csv"]


def test_validate_writes_the_same_rejects_as_an_import(connector: Connector) -> None:
    path, rejects_path = connector.write_people(*PEOPLE), connector.folder / "rejects.csv"
    result = validate(connector, path, "--rejects", rejects_path, "--base-name", "News")
    assert result.report["rejects_file"] == str(rejects_path)
    assert rejects_path.stat().st_mode & 0o777 == 0o600
    import_result = connector.import_file(path)
    assert import_result.rows == {"read": 7, "created": 1, "invalid": 4, "duplicate": 2}
    assert read_rejects(rejects_path) == read_rejects(Path(import_result.report["rejects_file"]))
    assert len(read_rejects(rejects_path)) == 5


def read_rejects(path: Path) -> list[dict[str, str]]:
    return [{**row, "_run_id": "", "_at": ""} for row in read_rows(path)]


def test_validate_suppresses_the_same_rows_as_a_sync(connector: Connector) -> None:
    connector.write_people("email,first_name", "ann@x.org,Ann", "bob@x.org,Bob", "BOB@x.org,Bob", "nobody,Cem")
    connector.write_csv("gone.csv", "email,since", "Bob@X.org,2020", ",2021")
    connector.write_job("suppress: {file: {path: gone.csv, column: email}}", fields="")
    result = validate(connector, "job.yaml").expect(1, read=4, valid=1, invalid=1, duplicate=1, suppressed=1)
    assert "the column email is empty in 1 row" in "".join(result.report["messages"])
    assert validate(connector, "people.csv", "--job", "job.yaml").rows == result.rows
    assert validate(connector, "people.csv").rows == {"read": 4, "valid": 2, "invalid": 1, "duplicate": 1}


def test_validate_accepts_the_options_of_an_import(connector: Connector) -> None:
    path = connector.write_people(*PEOPLE)
    result = validate(connector, path, "--map", "gender=", "--zip", "reject", "--limit", "3", "--inactive")
    assert list_faults(result) == [("email", "email", 1, [(3, "bob")]), ("address_zip", "zip", 1, [(4, "02134")])]
    result = validate(connector, path, "--identity", "client_user_id", "--map", "client_user_id=Plan")
    assert result.rows["duplicate"] == 2


def test_an_empty_or_broken_source_is_not_valid(connector: Connector) -> None:
    empty_result = validate(connector, connector.write_csv("empty.csv", "email"))
    assert (empty_result.exit_code, empty_result.report["status"], empty_result.rows) == (3, "aborted", {})
    connector.crm.run("create table people (email)", "insert into people values (1), (-9223372036854775807 - 1)")
    query = "select abs(email) as email from people"  # abs() of the last value overflows
    connector.write_job(source=f"sql: {{url: 'sqlite:///crm.db', query: {query}}}")
    broken_result = validate(connector, "job.yaml")
    assert (broken_result.exit_code, broken_result.report["status"]) == (3, "aborted")


def test_the_table_shows_escape_sequences_of_cells_as_text(connector: Connector) -> None:
    path = connector.write_people("email,is_active", "\x1b[31mred,yes", "[bold]x[/],yes", f"{'y' * 99},yes")
    result = connector.run("validate", path, environ=ENVIRON_WITHOUT_SERVICE)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "row 2: \\x1b[31mred" in result.stdout
    assert "row 3: [bold]x[/]" in result.stdout
    assert f"{'y' * 60}…" in result.stdout
    assert "email is not one complete email" in result.stdout
