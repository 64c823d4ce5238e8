"""`connector check` tries each part of a job, and creates, sends and publishes nothing."""

from pathlib import Path
from typing import Any, Literal

import pytest

from pipelines.flows.check import CheckResult, advise_on_check
from tests.databases import Database
from tests.pipelines.conftest import Connector, build_job, wait_for_result
from tests.pipelines.leftovers import record_lag_of_list

LOAD_JOB = build_job()
LIST_CHECKS = ("page size", "order", "filters", "cut off")
EXACT_FILTERS_MESSAGE = "email: exact; client_user_id: exact"
PARTIAL_FILTERS_MESSAGE = EXACT_FILTERS_MESSAGE.replace("exact", "partial: a part of a value found the subscriber")
EXPECTED_MESSAGE_BY_CHECK = {
    "page size": "a page has 40 of 40 subscribers; the limit of a page is 1,000",
    "order": "by id, ascending",
    "filters": EXACT_FILTERS_MESSAGE,
    "cut off": "not cut off: the counts of active and inactive subscribers add up to the TotalCount, 40",
}
EXPORT_JOB = "job: warehouse\nexport: {to: 'sqlite:///w.db'}\n"


def run_check(connector: Connector, job: str, **environ: str) -> tuple[int, dict[str, bool], str]:
    (connector.folder / "job.yaml").write_text(job)
    result = connector.run_json("check", "job.yaml", environ=environ)
    ok_by_check = {check_entry["check"]: check_entry["ok"] for check_entry in result.report["checks"]}
    failure_text = " ".join(check_entry["message"] for check_entry in result.report["checks"] if not check_entry["ok"])
    return result.exit_code, ok_by_check, failure_text


def read_messages(connector: Connector) -> dict[str, str]:
    """Check the settings, and return the message of each check by its name."""
    checks = connector.run_json("check").report["checks"]
    return {check_entry["check"]: check_entry["message"] for check_entry in checks}


def test_a_check_of_a_valid_job_passes_and_changes_nothing(connector: Connector) -> None:
    connector.write_people("email", "ann@x.org", "bob@x.org")
    expected_load_checks = dict.fromkeys(("configuration", "source", "service", *LIST_CHECKS, "ledger"), True)
    assert run_check(connector, LOAD_JOB) == (0, expected_load_checks, "")
    expected_export_checks = dict.fromkeys(("configuration", "service", *LIST_CHECKS, "ledger", "destination"), True)
    assert run_check(connector, EXPORT_JOB) == (0, expected_export_checks, "")
    stats = connector.sandbox.stats()
    assert stats["subscribers"] == 0
    warehouse = Database("sqlite", f"sqlite:///{connector.folder}/w.db")
    for (name,) in warehouse.fetch("SELECT name FROM sqlite_master WHERE type = 'table'"):
        assert warehouse.fetch(f'SELECT count(*) FROM "{name}"') == [(0,)]
    assert connector.run_json("check").report["status"] == "ok"


@pytest.mark.parametrize(
    ("job", "environ", "expected_code", "failed_check_name", "expected_text"),
    [
        ("job: crm\nsorce: x\n", {}, 2, "configuration", "did you mean source"),
        (LOAD_JOB.replace("people.csv", "bad.csv"), {}, 2, "source", "connector validate job.yaml"),
        (LOAD_JOB, {"CONNECTOR_TOKEN": "wrong"}, 2, "service", "Check the token"),
        (LOAD_JOB, {"CONNECTOR_BASE_URL": "http://127.0.0.1:1"}, 3, "service", "Check the base URL"),
        (LOAD_JOB + "ledger: must_exist\n", {}, 2, "ledger", "there is no ledger at"),
        (EXPORT_JOB.replace("w.db", "taken.db"), {}, 2, "destination", "--overwrite"),
    ],
)  # fmt: skip
def test_a_failed_check_names_the_next_step(
    connector: Connector,
    job: str,
    environ: dict[str, str],
    expected_code: int,
    failed_check_name: str,
    expected_text: str,
) -> None:
    connector.write_people("email", "ann@x.org")
    connector.write_csv("bad.csv", "email", "no address")
    foreign_database = Database("sqlite", f"sqlite:///{connector.folder}/taken.db")
    foreign_database.run("CREATE TABLE subscribers (name TEXT)", "INSERT INTO subscribers VALUES ('Ann')")
    exit_code, ok_by_check, failure_text = run_check(connector, job, **environ)
    assert exit_code == expected_code
    assert [name for name, is_ok in ok_by_check.items() if not is_ok] == [failed_check_name]
    assert expected_text in failure_text


@pytest.mark.parametrize(
    ("job_command", "exit_codes", "advice"),
    [
        ("sync", (0, 0), "To see what the job would do, run: connector plan 'a job.yaml'"),
        ("export", (0, 0), "To run the job, run: connector export 'a job.yaml'"),
        ("mail", (0, 0), "To see the emails, run: connector mail 'a job.yaml' --preview 3"),
        ("sync", (0, 2, 3, 0), "Try again later: connector check 'a job.yaml'"),
        ("sync", (0, 2, 0), "Correct the failed checks. Then run: connector check 'a job.yaml'"),
        (None, (2,), "Correct the failed checks. Then run: connector check 'a job.yaml'"),
    ],
)
def test_the_advice_after_a_check_is_the_next_command(
    job_command: Literal["sync", "export", "mail"] | None, exit_codes: tuple[int, ...], advice: str
) -> None:
    results = [CheckResult("part", "", exit_code=code, job_command=job_command) for code in exit_codes]
    assert advise_on_check(Path("a job.yaml"), results) == advice


def test_a_check_ends_with_the_next_command(connector: Connector) -> None:
    last_lines = "Next: To see what an import of a file would do, run:\n  connector plan FILE --base-name NAME"
    assert connector.run("check").stdout.rstrip().endswith(last_lines)
    assert "Next:" not in connector.run("check", "--quiet").stdout


def test_a_ledger_without_write_permission_fails_the_check(connector: Connector, tmp_path: Path) -> None:
    connector.write_people("email", "ann@x.org")
    connector.write_job()
    assert connector.run("sync", "job.yaml").exit_code == 0
    (tmp_path / "state" / "ledger.db").chmod(0o400)
    with connector.start("check", "job.yaml", "--output", "json", is_unprivileged=True) as process:
        result = wait_for_result(process)
    failed_checks = [check_entry for check_entry in result.report["checks"] if not check_entry["ok"]]
    assert (result.exit_code, [check_entry["check"] for check_entry in failed_checks]) == (3, ["ledger"])
    assert "this user cannot write" in failed_checks[0]["message"]


@pytest.mark.parametrize(
    ("switches", "expected_changes"),
    [
        ({}, {}),
        ({"max_limit": 20}, {"page size": "a page has 20 of 40 subscribers; the limit of a page is 20"}),
        ({"order": "id_desc"}, {"order": "by id, descending"}),
        ({"order": "email"}, {"order": "not by id. Two requests for the same page returned the same order"}),
        ({"order": "shuffled"}, {"order": "two requests for the same page returned different orders"}),
        ({"filters": "partial"}, {"filters": PARTIAL_FILTERS_MESSAGE}),
        (
            {"filters": "ignored"},
            {
                "filters": EXACT_FILTERS_MESSAGE.replace(
                    "exact", "ignored: the service returned subscribers for a made-up value"
                ),
                "cut off": "nothing suggests that the list is cut off: TotalCount is 40",
            },
        ),
        ({"result_window": 25}, {"page size": "a page has 25 of 25", "cut off": "the list may be cut off or hide"}),
        (
            {"hide": "female"},
            {"page size": "a page has ", "cut off": "the list may be cut off or hide subscribers: its Total"},
        ),
    ],
    ids=str,
)
def test_check_shows_the_page_size_and_the_order_of_the_list(
    connector: Connector, switches: dict[str, Any], expected_changes: dict[str, str]
) -> None:
    connector.sandbox.seed(40, base_name="News")
    connector.sandbox.switch(**switches)
    messages_by_check = read_messages(connector)
    assert {
        name: messages_by_check[name][: len(expected_text)]
        for name, expected_text in (EXPECTED_MESSAGE_BY_CHECK | expected_changes).items()
    } == EXPECTED_MESSAGE_BY_CHECK | expected_changes
    assert "no lag of the list is recorded" in messages_by_check["ledger"]


def test_check_shows_the_order_of_a_list_of_several_pages(connector: Connector) -> None:
    connector.sandbox.seed(1500, base_name="News")
    assert connector.import_file(connector.write_people("email", "ann@x.org")).exit_code == 0
    record_lag_of_list(connector, 7.25)
    messages_by_check = read_messages(connector)
    assert messages_by_check["order"] == "by id, ascending"
    assert "the largest recorded lag of the list is 7.2 s" in messages_by_check["ledger"]
