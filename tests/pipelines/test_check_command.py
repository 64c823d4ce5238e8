"""`connector check` tries each part of a job, and creates, sends and publishes nothing."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.leftovers import record_lag_of_list

LOAD_JOB = """
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}
"""
LIST_CHECKS = ("page size", "order", "filters", "cut off")
EXACT_FILTERS = "email: exact; client_user_id: exact"
PARTIAL_FILTERS = EXACT_FILTERS.replace("exact", "partial: a part of a value found the subscriber")
EXPECTED_MESSAGES = {
    "page size": "a page held 40 of 40 subscribers; the limit of a page is 1,000",
    "order": "by id, ascending",
    "filters": EXACT_FILTERS,
    "cut off": "no: the counts of active and inactive subscribers add up to the TotalCount, 40",
}
EXPORT_JOB = "job: warehouse\nexport: {to: 'sqlite:///w.db'}\n"


def run_check(connector: Connector, job: str, **environ: str) -> tuple[int, dict[str, bool], str]:
    (connector.folder / "job.yaml").write_text(job)
    result = connector.run_json("check", "job.yaml", environ=environ)
    ok_by_check = {check_entry["check"]: check_entry["ok"] for check_entry in result.report["checks"]}
    failure_text = " ".join(check_entry["message"] for check_entry in result.report["checks"] if not check_entry["ok"])
    return result.exit_code, ok_by_check, failure_text


def test_a_job_that_can_run_passes_each_check_and_changes_nothing(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@x.org", "bob@x.org")
    expected_load_checks = dict.fromkeys(("configuration", "source", "service", *LIST_CHECKS, "ledger"), True)
    assert run_check(connector, LOAD_JOB) == (0, expected_load_checks, "")
    expected_export_checks = dict.fromkeys(("configuration", "service", *LIST_CHECKS, "ledger", "destination"), True)
    assert run_check(connector, EXPORT_JOB) == (0, expected_export_checks, "")
    stats = connector.sandbox.stats()
    assert stats["subscribers"] == 0
    with closing(sqlite3.connect(tmp_path / "w.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert all(database.execute(f'SELECT count(*) FROM "{name}"').fetchone() == (0,) for name in tables)
    assert connector.run_json("check").report["status"] == "ok"


@pytest.mark.parametrize(
    ("job", "environ", "expected_exit_code", "failed_name", "expected_text"),
    [
        ("job: crm\nsorce: x\n", {}, 2, "configuration", "did you mean source"),
        (LOAD_JOB.replace("people.csv", "gone.csv"), {}, 2, "source", "there is no such file"),
        (LOAD_JOB.replace("{email: email,", "{email: mail,"), {}, 2, "source", "mail"),
        (LOAD_JOB.replace("people.csv", "bad.csv"), {}, 2, "source", "connector validate job.yaml"),
        (LOAD_JOB, {"CONNECTOR_TOKEN": "wrong"}, 2, "service", "Check the token"),
        (LOAD_JOB, {"CONNECTOR_BASE_URL": "http://127.0.0.1:1"}, 3, "service", "Check the base URL"),
        (LOAD_JOB + "ledger: must_exist\n", {}, 3, "ledger", "there is no ledger at"),
        (LOAD_JOB, {"CONNECTOR_LEDGER": "sqlite:///people.csv"}, 3, "ledger", "people.csv"),
        (EXPORT_JOB.replace("w.db", "taken.db"), {}, 2, "destination", "--overwrite"),
    ],
)  # fmt: skip
def test_a_failed_check_names_the_next_step(
    connector: Connector,
    job: str,
    environ: dict[str, str],
    expected_exit_code: int,
    failed_name: str,
    expected_text: str,
) -> None:
    write_csv(connector.folder / "people.csv", "email", "ann@x.org")
    write_csv(connector.folder / "bad.csv", "email", "no address")
    with closing(sqlite3.connect(connector.folder / "taken.db")) as database:
        database.execute("CREATE TABLE subscribers (name TEXT)")
        database.execute("INSERT INTO subscribers VALUES ('kept')")
        database.commit()
    exit_code, ok_by_check, failure_text = run_check(connector, job, **environ)
    assert (exit_code, [name for name, is_ok in ok_by_check.items() if not is_ok]) == (
        expected_exit_code,
        [failed_name],
    )
    assert expected_text in failure_text


@pytest.mark.parametrize(
    ("arguments", "environ", "last_lines"),
    [
        ("job.yaml", {}, "Next: To see what the job would do, run:\n  connector plan job.yaml"),
        ("export.yaml", {}, "Next: To run the job, run:\n  connector export export.yaml"),
        ("mail.yaml", {}, "Next: To see the emails, run:\n  connector mail mail.yaml --preview 3"),
        ("", {}, "Next: To see what an import of a file would do, run:\n  connector plan FILE --base-name NAME"),
        ("gone.yaml", {}, "Next: Correct what failed. Then run:\n  connector check gone.yaml"),
        ("job.yaml", {"CONNECTOR_BASE_URL": "http://[::1]:1"}, "Next: Try again later:\n  connector check job.yaml"),
        ("job.yaml --quiet", {}, ""),
    ],
)  # fmt: skip
def test_the_last_line_of_a_check_is_the_next_command(
    connector: Connector, arguments: str, environ: dict[str, str], last_lines: str
) -> None:
    write_csv(connector.folder / "people.csv", "email", "ann@x.org")
    mail_job = "job: m\nsource: {file: {path: people.csv}}\nmail: {campaign: c, to: email, from: a@example.com, "
    for name, job in {
        "job.yaml": LOAD_JOB,
        "export.yaml": EXPORT_JOB,
        "mail.yaml": mail_job + "subject: Hi, text: {content: Hi}}\n",
    }.items():
        (connector.folder / name).write_text(job)
    result = connector.run("check", *arguments.split(), environ=environ)
    assert "\n".join(result.stdout.splitlines()[-2:]) == last_lines


def test_a_check_reads_the_job_once_because_a_job_may_come_from_a_pipe(connector: Connector) -> None:
    write_csv(connector.folder / "people.csv", "email", "ann@x.org")
    reader, writer = os.pipe()
    os.write(writer, LOAD_JOB.replace("people.csv", str(connector.folder / "people.csv")).encode())
    os.close(writer)
    result = connector.run("check", f"/dev/fd/{reader}")
    os.close(reader)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, f"  connector plan /dev/fd/{reader}")


def test_a_ledger_without_write_permission_fails_the_check(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@x.org")
    (tmp_path / "job.yaml").write_text(LOAD_JOB)
    assert connector.run("sync", "job.yaml").exit_code == 0
    (tmp_path / "state" / "ledger.db").chmod(0o400)
    with ForkedProcess(
        ["check", "job.yaml", "--output", "json"], os.environ | connector.environ, tmp_path, is_unprivileged=True
    ) as process:
        stdout, _ = process.communicate()
    failed_checks = [check_entry for check_entry in json.loads(stdout)["checks"] if not check_entry["ok"]]
    assert (process.returncode, [check_entry["check"] for check_entry in failed_checks]) == (3, ["ledger"])
    assert "this user cannot write" in failed_checks[0]["message"]


@pytest.mark.parametrize(
    ("switches", "expected_changes"),
    [
        ({}, {}),
        ({"max_limit": 20}, {"page size": "a page held 20 of 40 subscribers; the limit of a page is 20"}),
        ({"order": "id_desc"}, {"order": "by id, descending"}),
        ({"order": "email"}, {"order": "not by id. Two requests for one page returned the same order"}),
        ({"order": "shuffled"}, {"order": "two requests for one page returned two orders"}),
        (
            {"filters": "partial"},
            {"filters": PARTIAL_FILTERS},
        ),
        (
            {"filters": "ignored"},
            {
                "filters": EXACT_FILTERS.replace(
                    "exact", "ignored: the service returned subscribers for a made-up value"
                ),
                "cut off": "nothing suggests that the list is cut off: TotalCount is 40",
            },
        ),
        ({"result_window": 25}, {"page size": "a page held 25 of 25", "cut off": "the list may be cut off, or it may"}),
        (
            {"hide": "female"},
            {"page size": "a page held ", "cut off": "the list may be cut off, or it may hide subscribers: its Total"},
        ),
    ],
    ids=str,
)
def test_check_shows_the_page_size_order_and_filters_of_the_list(
    connector: Connector, switches: dict[str, Any], expected_changes: dict[str, str]
) -> None:
    connector.sandbox.seed(40, base_name="News")
    connector.sandbox.switch(**switches)
    messages_by_check = {
        check_entry["check"]: check_entry["message"] for check_entry in connector.run_json("check").report["checks"]
    }
    assert {
        name: messages_by_check[name][: len(expected_text)]
        for name, expected_text in (EXPECTED_MESSAGES | expected_changes).items()
    } == EXPECTED_MESSAGES | expected_changes
    assert "no lag of the list is on record" in messages_by_check["ledger"]


def test_check_shows_the_order_of_a_list_of_several_pages(connector: Connector) -> None:
    connector.sandbox.seed(1500, base_name="News")
    checks = connector.run_json("check").report["checks"]
    assert [check_entry["message"] for check_entry in checks if check_entry["check"] == "order"] == ["by id, ascending"]


def test_check_shows_the_lag_on_record(connector: Connector, tmp_path: Path) -> None:
    people_path = write_csv(tmp_path / "people.csv", "email", "ann@x.org")
    assert connector.import_file(people_path).exit_code == 0
    record_lag_of_list(connector, 7.25)
    assert "the largest lag of the list on record is 7.2 s" in connector.run("check").stdout
