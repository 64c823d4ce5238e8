"""`connector explain IDENTITY`: the facts that the ledger and the records of runs have about one subscriber."""

from pathlib import Path

import pytest

from connector import Connector as Library
from connector.ledger.entries import Intent, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.states import State
from connector.subscribers.identity import digest_identity
from tests.export.exports import create_people
from tests.pipelines.conftest import (
    NEWS_IMPORT_OPTIONS,
    CommandResult,
    Connector,
    list_stored_subscribers,
    wait_for,
    write_csv,
)
from tests.pipelines.test_sync_command import write_job

ANN = "ann@example.com"
JOB = """
job: crm
source: {file: {path: people.csv}}
subscriber:
  base: {id: 7}
  fields: {email: email, birthday: birthday, is_active: {value: true}}
"""
ENVIRON_WITHOUT_SERVICE = {"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}


def explain(connector: Connector, identity: str = ANN) -> CommandResult:
    """Run `explain` without the token and the address of the service. Check that the library returns the same
    explanation."""
    result = connector.run_json("explain", identity, environ=ENVIRON_WITHOUT_SERVICE)
    explanation = Library(state_dir=connector.folder / "state").explain(identity)
    assert explanation.as_json() == result.report
    return result


def test_a_created_subscriber_is_explained_with_its_id_and_its_run(connector: Connector, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "people.csv", "email,client_user_id", f"{ANN},A1")
    run = connector.import_file(path).report
    requests = connector.sandbox.stats()["requests"]

    result = explain(connector, " Ann@Example.COM ")

    (entry,) = result.report["entries"]
    assert (result.exit_code, result.report["status"]) == (0, "ok")
    assert (entry["base_id"], entry["base_name"], entry["identity_field"]) == (1, "News", "email")
    assert (entry["state"], entry["attempts"], entry["next_step"]) == ("confirmed", 1, None)
    assert entry["subscriber_id"] == list_stored_subscribers(connector.sandbox)[ANN]["Id"]
    assert (entry["run"]["run_id"], entry["run"]["job"], entry["run"]["status"]) == (run["run_id"], "people", "ok")
    assert entry["run"]["started_at"][:19] == run["started_at"][:19]
    output = connector.run("explain", ANN).stdout
    assert "News (id 1): confirmed" in output
    assert f"{run['run_id']} (import people)" in output
    assert connector.sandbox.stats()["requests"] == requests


def test_a_subscriber_whom_only_the_list_has_shown_is_explained_without_a_run(
    connector: Connector, tmp_path: Path
) -> None:
    create_people(connector.sandbox, {"base_name": "News", "email": ANN, "is_active": True})
    connector.import_file(write_csv(tmp_path / "people.csv", "email", ANN))
    (entry,) = explain(connector).report["entries"]
    assert (entry["state"], entry["evidence"], entry["run"], entry["attempts"]) == ("confirmed", "lookup", None, 0)


def test_a_refused_subscriber_is_explained_with_the_words_of_the_service(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    run = connector.import_file(write_csv(tmp_path / "people.csv", "email", ANN)).report
    (entry,) = explain(connector).report["entries"]
    assert (entry["state"], entry["evidence"], entry["run"]["run_id"]) == ("rejected", "answer", run["run_id"])
    assert (entry["http_status"], "FirstName" in entry["message"]) == (422, True)
    assert "connector retry --rejected" in entry["next_step"]
    assert entry["run"]["rejects_file"] == run["rejects_file"]
    Path(run["rejects_file"]).unlink()
    assert explain(connector).report["entries"][0]["run"]["rejects_file"] is None


def test_a_create_is_explained_during_its_run_and_after_the_run_is_killed(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(hang_after=1)  # one create takes effect and is not answered
    path = write_csv(tmp_path / "people.csv", "email", ANN)
    with connector.start("import", path, *NEWS_IMPORT_OPTIONS) as process:
        wait_for(lambda: connector.sandbox.stats()["subscribers"] >= 1)
        (entry_during_run,) = explain(connector).report["entries"]
        process.kill()
        process.communicate()
    (entry_after_kill,) = explain(connector).report["entries"]
    assert (entry_during_run["state"], entry_during_run["run"]["status"]) == ("sending", "running")
    assert entry_during_run["next_step"].startswith("Wait until the active run")
    assert (entry_after_kill["state"], entry_after_kill["evidence"], entry_after_kill["run"]["status"]) == (
        "sending",
        None,
        "killed",
    )
    assert entry_after_kill["next_step"].endswith("connector retry")

    connector.sandbox.switch(hang_after=0)
    connector.run_json("retry", "--quiet-period", "200ms")
    (entry_after_retry,) = explain(connector).report["entries"]
    assert (entry_after_retry["state"], entry_after_retry["evidence"], entry_after_retry["next_step"]) == (
        "confirmed",
        "lookup",
        None,
    )
    assert entry_after_retry["run"]["run_id"] == entry_after_kill["run"]["run_id"]


def test_a_subscriber_in_two_bases_has_an_entry_for_each(connector: Connector, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "people.csv", "email", ANN)
    for base in ("News", "Shop"):
        connector.run_json("import", path, "--base-name", base, "--active", "--quiet-period", "200ms")
    entries = explain(connector).report["entries"]
    assert [(entry["base_name"], entry["state"]) for entry in entries] == [("News", "confirmed"), ("Shop", "confirmed")]
    assert entries[0]["subscriber_id"] != entries[1]["subscriber_id"]


def test_explain_advises_to_deactivate_a_subscriber_who_opted_out(connector: Connector, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    for activity in ("true", "false"):
        write_csv(path, "email,is_active", f"{ANN},{activity}")
        connector.run_json("import", path, "--base-name", "News", "--quiet-period", "200ms")
    (entry,) = explain(connector).report["entries"]
    assert (entry["state"], entry["opted_out_in"]) == ("confirmed", "people")
    assert entry["next_step"].startswith("Deactivate the subscriber in the service")


def test_a_row_that_differs_from_the_service_is_named(connector: Connector, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    for name in ("Ann", "Anna"):
        write_csv(path, "email,first_name", f"{ANN},{name}")
        connector.import_file(path)
    (entry,) = explain(connector).report["entries"]
    assert entry["reported_at"] is not None
    assert entry["next_step"].startswith("A row differs from the service")


def test_explain_ends_with_exit_code_1_if_the_ledger_does_not_know_the_subscriber(
    connector: Connector, tmp_path: Path
) -> None:
    connector.import_file(write_csv(tmp_path / "people.csv", "email", ANN, "no address"))
    for identity in ("bob@example.com", "no address"):
        result = explain(connector, identity)
        assert (result.exit_code, result.report["status"], result.report["entries"]) == (1, "partial", [])
        assert "The ledger does not know this subscriber" in result.report["messages"][0]
    assert "does not know this subscriber" in connector.run("explain", "bob@example.com").stdout


def test_a_subscriber_whose_rows_were_always_invalid_is_explained_by_its_problem(connector: Connector) -> None:
    write_csv(connector.folder / "people.csv", "email,birthday", f"{ANN},31.02.1990")
    job = write_job(connector.folder, JOB)
    run = connector.run_json("sync", job).report
    result = explain(connector)
    (problem,) = result.report["problems"]
    assert (result.exit_code, result.report["entries"]) == (0, [])
    assert (problem["job"], problem["kind"], problem["field"], problem["run_id"]) == (
        "crm", "invalid", "birthday", run["run_id"],
    )  # fmt: skip
    assert "invalid (birthday) in the job crm" in connector.run("explain", ANN).stdout


def test_the_next_step_names_the_job_that_owns_the_entry(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    write_csv(connector.folder / "people.csv", "email,birthday", f"{ANN},")
    job = write_job(connector.folder, JOB)
    connector.run_json("sync", job)
    (entry,) = explain(connector).report["entries"]
    assert entry["next_step"].endswith(f"connector retry --rejected --job {job}")


def test_explain_shows_a_subscriber_that_is_created_in_one_base_and_invalid_in_another_base(
    connector: Connector,
) -> None:
    write_csv(connector.folder / "people.csv", "email,birthday,list", f"{ANN},,7", f"{ANN},31.02.1990,9")
    connector.run_json("sync", write_job(connector.folder, JOB.replace("{id: 7}", "{column: list}")))
    explanation = explain(connector).report
    assert [(entry["base_id"], entry["state"]) for entry in explanation["entries"]] == [(7, "confirmed")]
    assert [(problem["base"], problem["kind"]) for problem in explanation["problems"]] == [("9", "invalid")]
    assert "invalid (birthday) in the job crm for the base 9" in connector.run("explain", ANN).stdout


def test_an_id_is_read_from_standard_input(connector: Connector, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "people.csv", "email,client_user_id", f"{ANN},A1")
    connector.import_file(path, "--identity", "client_user_id")
    result = connector.run_json("explain", "-", stdin="A1\n")
    assert [entry["identity_field"] for entry in result.report["entries"]] == ["client_user_id"]
    assert explain(connector).exit_code == 1  # the job knows its subscribers by their ids


EXPECTED_BY_CASE = {
    "answered": ("confirmed", "answer", None, None, None),
    "shown": ("confirmed", "lookup", None, None, None),
    "settled": ("confirmed", "lookup", None, None, None),
    "accepted": ("confirmed", "person", None, None, None),
    "refused row": ("rejected", "answer", 422, "no\\x1b[31m", "connector retry --rejected"),
    "refused token": ("rejected", "answer", 401, "no such token", "Run the job again"),
    "dropped": ("rejected", "person", None, "given up", None),
    "misanswered": ("held", "answer", None, "answered as bob@example.com", "connector status"),
    "withheld": ("held", "lookup", None, None, "connector status"),
    "withheld without proof": ("held", None, None, "the list hides this class", "connector status"),
    "unknown": ("unknown", None, None, None, "connector retry"),
    "sending": ("sending", None, None, None, "connector retry"),
}


@pytest.mark.parametrize("entry_case", EXPECTED_BY_CASE)
def test_each_state_of_the_ledger_is_explained(connector: Connector, tmp_path: Path, entry_case: str) -> None:
    (tmp_path / "state").mkdir()
    with open_ledger(f"sqlite:///{tmp_path}/state/ledger.db") as ledger:
        add_entry(ledger, entry_case)
    (entry,) = explain(connector).report["entries"]
    state, evidence, http_status, message, next_step = EXPECTED_BY_CASE[entry_case]
    assert (entry["state"], entry["evidence"], entry["http_status"]) == (state, evidence, http_status)
    assert (entry["run"]["run_id"], entry["run"]["started_at"]) == (RUN_ID, "2026-11-26T02:00:00+00:00")
    output = connector.run("explain", ANN).stdout
    assert entry["meaning"] in output
    assert message is None or message in output
    assert (next_step or "Nothing to do.") in output


RUN_ID = "20261126T020000-0a1b2c"


def add_entry(ledger: Ledger, entry_case: str) -> None:
    """Add Ann to the ledger in the state that the test needs."""
    digest = digest_identity("email", ANN)
    with ledger.transaction() as connection:
        run_key = start_run(connection, RUN_ID, "crm", "sync", 1_795_658_400.0)
        base = find_or_add_base(connection, "main", 7, "News")
        ledger.mark_intended(base, run_key, [Intent(digest, b"f" * 8, b"{}", "email")])
        if entry_case == "misanswered":
            ledger.mark_wrongly_answered(base, [(digest, 9, "answered as bob@example.com")])
        elif entry_case.startswith("refused"):
            answer = (422, "no\x1b[31m") if entry_case == "refused row" else (401, "no such token")
            ledger.mark_refused(base, State.SENDING, [(digest, *answer)])
        elif entry_case in ("answered", "shown"):
            ledger.mark_answered(base, [(digest, 9)])
        elif entry_case != "sending":
            ledger.mark_lost(base, [digest])
        if entry_case == "shown":
            ledger.record_shown_identities(base, [digest])
        if entry_case == "settled":
            ledger.mark_found(base, State.UNKNOWN, [(digest, 9)])
        if entry_case in ("withheld", "withheld without proof", "dropped", "accepted"):
            proof = "the list hides this class" if entry_case == "withheld without proof" else None
            ledger.mark_withheld(base, [(digest, proof)])
        if entry_case == "accepted":
            ledger.mark_accepted(base, [(digest, 9)])
        if entry_case == "dropped":
            ledger.mark_dropped(base, [digest], "given up")
