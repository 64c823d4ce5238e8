"""`connector init` drafts a job for a file or a table. The drafted job runs."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, wait_for_result

PEOPLE = ("Kontakt;Naam;Geslacht;Geboren", "ann@x.org;Dr. Ann Lee;V;31-01-1990", "bob@x.org;Bob Vos;M;01-02-1985")


def map_is_active(job: Path) -> None:
    """Turn the comment about is_active in a drafted job into a key."""
    text = job.read_text(encoding="utf-8")
    job.write_text(text.replace("# is_active: {value: true}", "is_active: {value: true}"), encoding="utf-8")


def test_a_drafted_job_combines_all_consent_columns_in_one_rule(connector: Connector) -> None:
    header = "Email,Subscribed,Unsubscribed at,Email hard bounce reason"
    rows = ("ann@x.org,yes,,", "bob@x.org,no,,", "cem@x.org,yes,2024-01-02,", "dora@x.org,yes,,550")
    connector.write_people(header, *rows)
    assert connector.run("init", "people.csv", "--base-name", "News", "-o", "job.yaml").exit_code == 0
    assert connector.sync().rows == {"read": 4, "created": 4}
    subscribers = connector.list_created_subscribers()
    assert [email for email in subscribers if subscribers[email]["IsActive"]] == ["ann@x.org"]


def test_a_job_drafted_from_headers_in_another_language_imports_its_rows(connector: Connector) -> None:
    connector.write_people(*PEOPLE)
    result = connector.run("init", "people.csv", "--base-id", "7")
    assert result.exit_code == 0
    assert "likely" in result.stderr
    assert "31-01-1990" in result.stderr  # samples are shown on the terminal only
    assert "31-01-1990" not in result.stdout
    (connector.folder / "job.yaml").write_text(result.stdout, encoding="utf-8")
    map_is_active(connector.folder / "job.yaml")
    text = (connector.folder / "job.yaml").read_text(encoding="utf-8")
    whole_name_line, *_ = [line for line in text.splitlines() if line.strip().startswith("first_name: Naam ")]
    text = text.replace(f"{whole_name_line}\n", "")
    for field in ("first_name", "last_name"):
        assert f"# {field}: {{template: " in text
        text = text.replace(f"# {field}:", f"{field}:")
    (connector.folder / "job.yaml").write_text(text, encoding="utf-8")
    assert connector.sync().rows == {"read": 2, "created": 2}
    ann = connector.list_created_subscribers()["ann@x.org"]
    assert (ann["FirstName"], ann["LastName"], ann["Gender"]) == ("Ann", "Lee", "female")


def test_a_drafted_job_has_the_encoding_and_the_delimiter_of_the_file(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "people.csv").write_bytes("email|Prénom\na@x.org|Zoë\n".encode("cp1252"))
    arguments = ("--encoding", "cp1252", "--delimiter", "|", "--base-id", "7", "-o", "jobs/people.yaml")
    assert connector.run("init", "people.csv", *arguments).exit_code == 0
    map_is_active(tmp_path / "jobs" / "people.yaml")
    assert connector.sync("jobs/people.yaml").rows == {"read": 1, "created": 1}
    assert connector.list_created_subscribers()["a@x.org"]["FirstName"] == "Zoë"


def test_a_drafted_job_for_a_table_contains_no_url_and_proposes_a_cursor(connector: Connector) -> None:
    connector.crm.run(
        "create table people (id integer, email text, updated_at timestamp)",
        "insert into people values (1, 'a@x.org', '2026-11-20 10:00:00'), (2, 'b@x.org', '2026-11-20 11:00:00')",
    )
    environ: dict[str, str | None] = {"CRM_URL": connector.crm.url}
    arguments = ("${CRM_URL}", "--table", "people", "--base-id", "7", "-o", "job.yaml")
    assert connector.run("init", *arguments, environ=environ).exit_code == 0
    lines = (connector.folder / "job.yaml").read_text(encoding="utf-8").splitlines()
    assert 'url: "${CRM_URL}", table: people' in "\n".join(lines)
    assert "crm.db" not in "\n".join(lines)
    line_index = next(index for index, line in enumerate(lines) if line.startswith("  # sql: "))
    # A comment in the drafted job tells the user to replace these lines.
    lines[line_index - 3 : line_index + 1] = [lines[line_index].replace("# ", "")]
    (connector.folder / "job.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    map_is_active(connector.folder / "job.yaml")
    connector.sync("job.yaml", environ=environ).expect(0, read=2, created=2)
    connector.crm.run("insert into people values (3, 'c@x.org', '2026-11-20 12:00:00')")
    assert connector.sync("job.yaml", environ=environ).rows == {"read": 2, "exists": 1, "created": 1}


@pytest.mark.parametrize(
    "command", ["init people.csv --base-name News -o folder/job.yaml", "sandbox --port 0 --data closed/data"]
)
def test_the_message_about_a_folder_without_permission_names_the_folder(connector: Connector, command: str) -> None:
    connector.write_people("email", "ann@x.org")
    for name in ("closed/in", "folder"):
        (connector.folder / name).mkdir(parents=True)
    (connector.folder / "closed").chmod(0)
    (connector.folder / "folder").chmod(0)
    connector.folder.chmod(0o500)
    with connector.start(*command.split(), is_unprivileged=True) as process:
        result = wait_for_result(process)
    for name in (".", "closed", "folder"):
        (connector.folder / name).chmod(0o700)
    assert result.exit_code in (2, 3)
    assert "Permission denied" in result.stderr
    assert "fault of the program" not in result.stderr
    assert any(name in result.stderr for name in (str(connector.folder), "closed", "folder"))
