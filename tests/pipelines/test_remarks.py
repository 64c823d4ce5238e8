"""Messages about cells, the same for `import` and `validate`: no command omits a value without a message."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import (
    NEWS_IMPORT_OPTIONS,
    CommandResult,
    Connector,
    find_messages,
    list_stored_subscribers,
    write_csv,
)
from tests.sources.files.people import build_xlsx
from tests.sources.files.reading import write_file

OPTIONS_BY_COMMAND = {"import": NEWS_IMPORT_OPTIONS, "validate": ()}
"""The commands that read a file, with their required options."""


@pytest.fixture(params=sorted(OPTIONS_BY_COMMAND))
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_command(connector: Connector, command: str, *arguments: str | Path) -> CommandResult:
    options = () if "--job" in arguments else OPTIONS_BY_COMMAND[command]
    return connector.run_json(command, *arguments, *options)


def test_a_birthday_without_a_year_is_omitted_and_its_row_is_valid(
    connector: Connector, tmp_path: Path, command: str
) -> None:
    path = write_csv(
        tmp_path / "contacts.csv",
        "Given Name,Birthday,E-mail 1 - Value",
        "Ann, --05-12,ann@x.org",
        "Bob,1980-02-29,bob@x.org",
        "Cem,--0512,cem@x.org",
        "Dan,05-12,dan@x.org",
        "Eve,--05-12,nobody",
    )
    result = run_command(connector, command, path)
    assert (result.rows["read"], result.rows["invalid"]) == (5, 2)
    assert len(find_messages(result, "2 birthdays without a year")) == 1
    subscribers = [event["subscriber"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created"]
    if command == "import":
        assert {subscriber["Email"]: subscriber.get("Birthday") for subscriber in subscribers} == {
            "ann@x.org": None, "bob@x.org": "1980-02-29", "cem@x.org": None,
        }  # fmt: skip


def test_the_encoding_and_skipped_lines_are_reported(connector: Connector, tmp_path: Path, command: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("Everybody\n\nemail,first_name\nann@x.org,Ann\nbob@x.org,Bob\n".encode("utf-16-le"))
    result = run_command(connector, command, path)
    assert "read as utf-16-le" in result.stderr
    assert len(find_messages(result, "read as utf-16-le")) == 1
    assert len(find_messages(result, "titles above its header were left out")) == 1


def test_numbers_of_a_workbook_in_a_template_are_reported(connector: Connector, tmp_path: Path, command: str) -> None:
    rule = "{template: \"{{ code }} {{ row['line'] }}\"}"
    rows: list[list[object]] = [["email", "code", "line"], ["ann@x.org", 31, "06"], ["bob@x.org", 49, 30123]]
    path = write_file(tmp_path, "people.xlsx", build_xlsx(rows))
    (tmp_path / "job.yaml").write_text(
        "job: news\nsource: {file: {path: people.xlsx}}\nload: {quiet_period: 200ms}\n"
        f"subscriber: {{base: {{name: News}}, fields: {{email: email, phone: {rule}, is_active: {{value: true}}}}}}\n"
    )
    result = run_command(connector, command, path, "--job", "job.yaml")
    assert [message.partition(" in the workbook")[0] for message in find_messages(result, "in the workbook")] == [
        "2 cells of the column code (phone) are numbers", "1 cell of the column line (phone) is a number",
    ]  # fmt: skip


def test_a_column_of_whole_names_is_sent_unsplit_and_reported(
    connector: Connector, tmp_path: Path, command: str
) -> None:
    path = write_csv(tmp_path / "people.csv", "email,Name", 'ann@x.org,"Lee, Dr. Ann"', "bob@x.org,Bob van der Ray")
    result = run_command(connector, command, path)
    assert (
        len(find_messages(result, "the column Name seems to have whole names, which are sent unsplit as first_name"))
        == 1
    )
    if command == "import":
        subscribers = list_stored_subscribers(connector.sandbox)
        names = {email: (person["FirstName"], person.get("LastName")) for email, person in subscribers.items()}
        assert names == {
            "ann@x.org": ("Lee, Dr. Ann", None), "bob@x.org": ("Bob van der Ray", None),
        }  # fmt: skip
    second_result = connector.run_json(command, path, *OPTIONS_BY_COMMAND[command], "--map", "first_name=Name")
    assert find_messages(second_result, "whole names") == []


def test_an_unused_column_of_names_is_reported(connector: Connector, tmp_path: Path, command: str) -> None:
    path = write_csv(tmp_path / "people.csv", "email,Vorname,Name", "ann@x.org,Ann,Lee")
    assert (
        len(
            find_messages(
                run_command(connector, command, path), "the column Name seems to have names, which are not sent"
            )
        )
        == 1
    )


def test_words_for_missing_values_are_read_as_empty_and_counted(
    connector: Connector, tmp_path: Path, command: str
) -> None:
    csv_lines = ("email,first_name,last_name", "ann@x.org,NULL,None", "bob@x.org,Bob,Null", "NULL,x,y")
    result = run_command(connector, command, write_csv(tmp_path / "people.csv", *csv_lines))
    assert (result.rows["read"], result.rows["invalid"]) == (3, 1)
    expected_text = "3 cells are read as empty, because programs write these words for a missing value: "
    assert (
        len(
            find_messages(
                result, f"{expected_text}email NULL (1), first_name NULL (1), last_name None (1). If a word is a name"
            )
        )
        == 1
    )
    if command == "import":
        subscribers = list_stored_subscribers(connector.sandbox)
        assert subscribers["bob@x.org"]["LastName"] == "Null"
        assert not {"FirstName", "LastName"} & subscribers["ann@x.org"].keys()


def test_html_codes_are_sent_as_their_letters_and_counted(connector: Connector, tmp_path: Path, command: str) -> None:
    csv_lines = ("email,first_name,last_name", "ann@x.org,Ann &amp; Bo,M&uuml;ller", "eve@x.org,Eve,O&#39;Brien")
    result = run_command(connector, command, write_csv(tmp_path / "people.csv", *csv_lines))
    assert len(find_messages(result, "3 cells with HTML codes (&amp;) or backslashes before quotes are sent")) == 1
    if command == "import":
        subscribers = list_stored_subscribers(connector.sandbox)
        assert {subscriber["LastName"] for subscriber in subscribers.values()} == {"Müller", "O'Brien"}
        assert subscribers["ann@x.org"]["FirstName"] == "Ann & Bo"


def test_an_ambiguous_word_for_a_missing_value_is_invalid_until_the_job_maps_the_word(
    connector: Connector, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "people.csv", "email,last_name", "ann@x.org,None", "bob@x.org,Null")
    refused_result = connector.run_json("import", path, "--base-name", "Shop", "--active", "--quiet-period", "100ms")
    assert (refused_result.exit_code, refused_result.rows["invalid"], refused_result.rows["created"]) == (1, 1, 1)
    (tmp_path / "job.yaml").write_text(
        f"job: news\nsource: {{file: {{path: {path}}}}}\nload: {{quiet_period: 100ms}}\nsubscriber:\n"
        "  base: {name: Shop}\n  fields:\n    email: email\n    is_active: {value: true}\n"
        '    last_name: {column: last_name, values: {"None": "None"}}\n'
    )
    connector.run_json("sync", "job.yaml")
    subscribers = list_stored_subscribers(connector.sandbox)
    assert {email: subscriber["LastName"] for email, subscriber in subscribers.items()} == {
        "ann@x.org": "None",
        "bob@x.org": "Null",
    }
