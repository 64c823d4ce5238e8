"""The preview: on a terminal an import shows the planned creates, and asks before the first create."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, list_stored, write_csv
from tests.pipelines.terminal import run_on_terminal

PEOPLE = ("email,first_name,is_active,Stadt", "ann@x.org,Ann,yes,Köln", "bob@x.org,Bob,no,Ulm", "nobody,Cem,yes,Bonn")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "people.csv", *PEOPLE)


def import_on_terminal(
    connector: Connector, people: Path, answer: str, *options: str | Path, before_answer: Callable[[], object] = tuple
) -> tuple[int, str]:
    """Import on a terminal, by default into the base News; return the exit code and what the command shows."""
    if not {"--base-name", "--job"} & set(options):
        options = ("--base-name", "News", *options)
    return run_on_terminal(connector, "import", people, *options, answer=answer or "n", before_answer=before_answer)


QUESTION = "Create 2 subscribers in News (1 active, 1 inactive)? This cannot be undone. [y/N]"


def test_an_import_shows_its_creates_and_sends_none_after_a_no(connector: Connector, people: Path) -> None:
    code, shown = import_on_terminal(connector, people, "n")
    assert code == 0, shown
    assert QUESTION in shown
    assert "Nothing was sent." in shown
    assert re.search(r"invalid\s+│\s+1 ", shown), shown
    assert re.search(r"email\s+│ ann@x.org\s+│ bob@x.org", shown), shown
    assert re.search(r"address_city\s+│ Köln\s+│ Ulm", shown), shown
    assert re.search(r"is_active\s+│ yes\s+│ no", shown), shown
    assert max(map(len, shown.splitlines())) <= 120
    assert list_stored(connector.sandbox) == {}
    assert not (connector.folder / "state").exists()


def test_a_yes_creates_the_shown_subscribers(connector: Connector, people: Path) -> None:
    code, shown = import_on_terminal(connector, people, "y")
    assert code == 1, shown
    assert QUESTION in shown
    stored = list_stored(connector.sandbox)
    assert {email: subscriber["IsActive"] for email, subscriber in stored.items()} == {
        "ann@x.org": True,
        "bob@x.org": False,
    }
    code, shown = import_on_terminal(connector, people, "")  # all subscribers exist, so the import asks no question
    assert (code, "[y/N]" in shown) == (1, False), shown


def test_a_yes_that_is_typed_before_the_question_creates_nobody(connector: Connector, people: Path) -> None:
    code, shown = run_on_terminal(connector, "import", people, "--base-name", "News", typed_ahead="y\n", answer="n")
    assert (code, "Nothing was sent." in shown) == (0, True), shown
    assert list_stored(connector.sandbox) == {}


@pytest.mark.parametrize("change", ["overwritten", "deleted"])
def test_a_yes_creates_the_shown_subscribers_of_a_file_that_changes_before_the_answer(
    connector: Connector, people: Path, change: str
) -> None:
    def alter() -> None:
        if change == "deleted":
            people.unlink()
            return
        write_csv(people, *(f"late{number}@x.org,Eve,yes,Bonn" for number in range(50)))

    code, shown = import_on_terminal(connector, people, "y", before_answer=alter)
    assert code == 1, shown
    assert sorted(list_stored(connector.sandbox)) == ["ann@x.org", "bob@x.org"]
    assert re.search(r"read\s+│\s+3 ", shown.partition("[y/N]")[2]), shown


def test_a_yes_creates_the_shown_subscribers_of_a_pipe(connector: Connector, people: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "people.pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(people.read_bytes()))
    writer.start()
    code, shown = import_on_terminal(connector, pipe, "y")
    writer.join()
    assert code == 1, shown
    assert sorted(list_stored(connector.sandbox)) == ["ann@x.org", "bob@x.org"]


def test_a_suppression_list_that_changes_before_the_answer_ends_the_run(
    connector: Connector, people: Path, tmp_path: Path
) -> None:
    gone = write_csv(tmp_path / "gone.csv", "address", "eve@x.org", "ann@x.org")
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: news\nsource: {file: {path: people.csv}}\nsubscriber: {base: {id: 7}}\n"
        "suppress: {file: {path: gone.csv, column: address}}\nguard: {max_creates: 5}\n",
        encoding="utf-8",
    )
    options = ("--job", job)
    alter = lambda: write_csv(gone, "address", "eve@x.org", "cem@x.org")  # noqa: E731
    code, shown = import_on_terminal(connector, people, "y", *options, before_answer=alter)
    assert (code, list_stored(connector.sandbox)) == (3, {}), shown
    assert "the suppression list has changed since the preview. Nothing was sent. Run again" in " ".join(shown.split())
    write_csv(gone, "address", "eve@x.org", "ann@x.org")
    code, shown = import_on_terminal(connector, people, "y", *options)
    assert (code, [*list_stored(connector.sandbox)]) == (1, ["bob@x.org"]), shown


def test_a_refused_import_asks_no_question(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", "email,is_active,Abgemeldet", "ann@x.org,yes,ja")
    code, shown = import_on_terminal(connector, people, "")
    assert (code, "[y/N]" in shown, "says who wants no email" in shown) == (2, False, True), shown


@pytest.mark.parametrize("options", [["--yes"], ["--output", "json"], ["--quiet"]])
def test_an_import_with_yes_json_or_quiet_asks_no_question(
    connector: Connector, people: Path, options: list[str]
) -> None:
    code, shown = import_on_terminal(connector, people, "", *options)
    assert (code, "[y/N]" in shown) == (1, False), shown
    assert len(list_stored(connector.sandbox)) == 2


def test_plan_and_validate_show_the_figures_and_the_values_of_the_preview(connector: Connector, tmp_path: Path) -> None:
    more = ("ann@x.org,Anna,yes,Köln", *(f"p{number}@x.org,Pat,no,Bonn" for number in range(5)))
    people = write_csv(tmp_path / "people.csv", *PEOPLE, *more)
    validated = connector.run_json("validate", people)
    planned = connector.run_json("plan", people, "--base-name", "News")
    assert validated.rows == {"read": 9, "valid": 7, "invalid": 1, "duplicate": 1}
    assert planned.rows == {"read": 9, "created": 7, "invalid": 1, "duplicate": 1}
    assert validated.report["activity"] == planned.report["activity"] == {"active": 1, "inactive": 6}
    (ann, *others) = planned.report["samples"]
    assert (ann["email"], ann["address_city"], ann["is_active"], len(others)) == ("ann@x.org", "Köln", True, 4)
    values = [
        {name: sample.get(name) for name in validated.report["samples"][0]} for sample in planned.report["samples"]
    ]
    assert validated.report["samples"] == values
    shown = [
        connector.run(*command, people, *options).stdout
        for command, options in ((("validate",), ()), (("plan",), ("--base-name", "News")))
    ]
    shown.append(import_on_terminal(connector, people, "n")[1])
    for text in shown:
        for line in (r"read\s+│ +9", r"valid\s+│ +7", r"invalid\s+│ +1", r"  active\s+│ +1", r"  inactive\s+│ +6"):
            assert re.search(line, text), (line, text)
        assert "The first 5 subscribers as they would be sent" in text
        assert re.search(r"is_active\s+│ yes\s+│ no", text), text


def test_the_preview_breaks_no_value_on_a_narrow_terminal(connector: Connector, tmp_path: Path) -> None:
    emails = [f"a.rather.long.address{number}@example.com" for number in range(5)]
    people = write_csv(tmp_path / "people.csv", "email", *emails)
    shown = connector.run("validate", people, "--active", environ={"COLUMNS": "80"}).stdout
    assert [email for email in emails if email not in shown] == []
    assert max(map(len, shown.splitlines())) <= 80


def test_an_import_without_a_terminal_asks_no_question(connector: Connector, people: Path) -> None:
    imported = connector.run("import", people, "--base-name", "News")
    assert (imported.code, "[y/N]" in imported.stdout + imported.stderr) == (1, False)
    assert len(list_stored(connector.sandbox)) == 2


USEFUL = {
    "Vorname2": "first_name",
    "Vorname 2": "first_name",
    "phone_mobile": "phone",
    "WorkPhone": "phone",
    "home city": "address_city",
    "kunde-strasse": "address_line1",
    "Contact Birthday": "birthday",
}


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_unused_columns_that_look_like_fields_are_named(connector: Connector, tmp_path: Path, command: str) -> None:
    header = ["email", "is_active", *USEFUL, "Company", "created_via", "order_total"]
    people = write_csv(tmp_path / "people.csv", ",".join(header), ",".join(["ann@x.org", "yes", *"abcdefghij"]))
    options = ("--base-id", "7") if command == "plan" else ()
    messages = connector.run_json(command, people, *options).report["messages"]
    (message,) = [each for each in messages if "look like fields" in each]
    named = ", ".join(f"{column} ({field})" for column, field in USEFUL.items())
    assert message.startswith(f"columns not used that look like fields: {named}. Nothing fills these fields.")
    column_of = {field: column for column, field in USEFUL.items()}
    options = (*options, *(part for field, column in column_of.items() for part in ("--map", f"{field}={column}")))
    assert not any("look like" in each for each in connector.run_json(command, people, *options).report["messages"])


def test_a_job_that_maps_no_city_gets_a_message(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "mail,city,phone", "ann@x.org,Ulm,+49301")
    job = "job: j\nsource: {file: {path: people.csv}}\nsubscriber: {base: {id: 7}, fields: {email: mail, phone: phone"
    (tmp_path / "job.yaml").write_text(f"{job}, is_active: {{value: true}}}}}}\n", encoding="utf-8")
    messages = connector.run_json("validate", "job.yaml").report["messages"]
    assert any("look like fields: city (address_city)." in message for message in messages), messages
