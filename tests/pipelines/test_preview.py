"""The preview: on a terminal an import shows the planned creates, and asks before the first create."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.terminal import run_on_terminal

PEOPLE = ("email,first_name,is_active,Stadt", "ann@x.org,Ann,yes,Köln", "bob@x.org,Bob,no,Ulm", "nobody,Cem,yes,Bonn")


@pytest.fixture
def people_path(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "people.csv", *PEOPLE)


def import_on_terminal(
    connector: Connector, people_path: Path, answer: str, *options: str | Path, **terminal_options: Any
) -> tuple[int, str]:
    """Import on a terminal, into the base News if no job is given. Return the exit code and the output."""
    if "--job" not in options:
        options = ("--base-name", "News", *options)
    return run_on_terminal(connector, "import", people_path, *options, answer=answer, **terminal_options)


QUESTION = "Create 2 subscribers in News (1 active, 1 inactive)? This cannot be undone. [y/N]"


def test_an_import_shows_its_creates_and_sends_nothing_after_the_answer_no(
    connector: Connector, people_path: Path
) -> None:
    exit_code, output = import_on_terminal(connector, people_path, "n")
    assert exit_code == 0, output
    assert QUESTION in output
    assert "Nothing was sent." in output
    assert re.search(r"invalid\s+│\s+1 ", output), output
    assert re.search(r"email\s+│ ann@x.org\s+│ bob@x.org", output), output
    assert re.search(r"address_city\s+│ Köln\s+│ Ulm", output), output
    assert re.search(r"is_active\s+│ yes\s+│ no", output), output
    assert max(map(len, output.splitlines())) <= 120
    assert connector.list_created_subscribers() == {}
    assert not (connector.folder / "state").exists()


def test_the_answer_yes_creates_the_shown_subscribers(connector: Connector, people_path: Path) -> None:
    exit_code, output = import_on_terminal(connector, people_path, "y")
    assert exit_code == 1, output
    assert QUESTION in output
    assert connector.read_is_active_by_email() == {"ann@x.org": True, "bob@x.org": False}
    # All subscribers exist, so the next import asks no question.
    exit_code, output = import_on_terminal(connector, people_path, "n")
    assert (exit_code, "[y/N]" in output) == (1, False), output


def test_an_unmapped_column_of_opt_outs_is_refused_before_the_question(connector: Connector) -> None:
    people_path = connector.write_csv("people.csv", "email,unsubscribed", "ann@x.org,no", "bob@x.org,yes")
    exit_code, output = import_on_terminal(connector, people_path, "y", "--active")
    assert (exit_code, "[y/N]" in output, "unsubscribed" in output) == (2, False, True), output
    assert connector.list_created_subscribers() == {}


def test_an_answer_that_is_typed_before_the_question_creates_nobody(connector: Connector, people_path: Path) -> None:
    exit_code, output = import_on_terminal(connector, people_path, "n", early_input="y\n")
    assert (exit_code, "Nothing was sent." in output) == (0, True), output
    assert connector.list_created_subscribers() == {}


def test_the_previewed_rows_are_created_even_if_the_file_changes_before_the_answer(
    connector: Connector, people_path: Path
) -> None:
    change_source = partial(write_csv, people_path, *(f"late{index}@x.org,Eve,yes,Bonn" for index in range(50)))
    exit_code, output = import_on_terminal(connector, people_path, "y", call_before_answer=change_source)
    assert exit_code == 1, output
    assert sorted(connector.list_created_subscribers()) == ["ann@x.org", "bob@x.org"]
    assert re.search(r"read\s+│\s+3 ", output.partition("[y/N]")[2]), output


def test_a_suppression_list_that_changes_before_the_answer_ends_the_run(
    connector: Connector, people_path: Path
) -> None:
    suppression_path = connector.write_csv("gone.csv", "address", "eve@x.org", "ann@x.org")
    job_lines = ("suppress: {file: {path: gone.csv, column: address}}", "guard: {max_creates: 5}")
    options = ("--job", connector.write_job(*job_lines, fields=""))
    change_suppressions = partial(write_csv, suppression_path, "address", "eve@x.org", "cem@x.org")
    exit_code, output = import_on_terminal(
        connector, people_path, "y", *options, call_before_answer=change_suppressions
    )
    assert (exit_code, connector.list_created_subscribers()) == (3, {}), output
    assert "the suppression list has changed since the preview. Nothing was sent. Run again" in " ".join(output.split())
    connector.write_csv(suppression_path, "address", "eve@x.org", "ann@x.org")
    exit_code, output = import_on_terminal(connector, people_path, "y", *options)
    assert (exit_code, [*connector.list_created_subscribers()]) == (1, ["bob@x.org"]), output


def test_an_import_with_the_option_yes_asks_no_question(connector: Connector, people_path: Path) -> None:
    exit_code, output = import_on_terminal(connector, people_path, "n", "--yes")
    assert (exit_code, "[y/N]" in output) == (1, False), output
    assert len(connector.list_created_subscribers()) == 2


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_an_import_with_json_or_quiet_asks_its_question_on_a_terminal(
    connector: Connector, people_path: Path, option: str
) -> None:
    _, output = import_on_terminal(connector, people_path, "n", option)
    assert (QUESTION in output, "Nothing was sent." in output) == (True, True), output
    assert connector.list_created_subscribers() == {}


def test_plan_and_validate_report_the_counts_and_values_of_the_preview(connector: Connector) -> None:
    more_people = ("ann@x.org,Anna,yes,Köln", *(f"p{index}@x.org,Pat,no,Bonn" for index in range(5)))
    people_path = connector.write_people(*PEOPLE, *more_people)
    validation_result = connector.run_json("validate", people_path)
    plan_result = connector.run_json("plan", people_path, "--base-name", "News")
    assert validation_result.rows == {"read": 9, "valid": 7, "invalid": 1, "duplicate": 1}
    assert plan_result.rows == {"read": 9, "created": 7, "invalid": 1, "duplicate": 1}
    assert validation_result.report["activity"] == plan_result.report["activity"] == {"active": 1, "inactive": 6}
    ann, *other_samples = plan_result.report["samples"]
    assert (ann["email"], ann["address_city"], ann["is_active"], len(other_samples)) == ("ann@x.org", "Köln", True, 4)
    validation_samples, plan_samples = validation_result.report["samples"], plan_result.report["samples"]
    column_names = list(validation_samples[0])
    assert validation_samples == [
        {column_name: sample.get(column_name) for column_name in column_names} for sample in plan_samples
    ]


def test_the_preview_splits_no_value_on_a_narrow_terminal(connector: Connector) -> None:
    emails = [f"a.rather.long.address{index}@example.com" for index in range(5)]
    people_path = connector.write_people("email", *emails)
    output = connector.run("validate", people_path, "--active", environ={"COLUMNS": "80"}).stdout
    assert [email for email in emails if email not in output] == []
    assert max(map(len, output.splitlines())) <= 80


FIELD_BY_COLUMN = {
    "Vorname2": "first_name", "Vorname 2": "first_name", "phone_mobile": "phone", "WorkPhone": "phone",
    "home city": "address_city", "kunde-strasse": "address_line1", "Contact Birthday": "birthday",
}  # fmt: skip


def test_unused_columns_that_look_like_fields_are_reported(connector: Connector) -> None:
    header = ["email", "is_active", *FIELD_BY_COLUMN, "Company", "created_via", "order_total"]
    people_path = connector.write_people(",".join(header), ",".join(["ann@x.org", "yes", *"abcdefghij"]))
    (message,) = connector.run_json("validate", people_path).find_messages("look like fields")
    expected_columns_text = ", ".join(f"{column} ({field})" for column, field in FIELD_BY_COLUMN.items())
    expected_text = f"unused columns that look like fields: {expected_columns_text}. Nothing fills these fields."
    assert message.startswith(expected_text)
    column_by_field = {field: column for column, field in FIELD_BY_COLUMN.items()}
    options = [option for field, column in column_by_field.items() for option in ("--map", f"{field}={column}")]
    assert connector.run_json("validate", people_path, *options).find_messages("look like") == []
