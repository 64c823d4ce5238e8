"""`connector explain IDENTITY`: the facts that the ledger and the records of runs have about one subscriber."""

from pathlib import Path

from connector import Connector as Library
from connector.ledger.entries import Intent, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.states import State
from connector.subscribers.identity import digest_identity
from tests.pipelines.conftest import CommandResult, Connector

ANN, BOB = "ann@example.com", "bob@example.com"
NEWS_OPTIONS = ("--base-name", "News", "--quiet-period", "200ms")
FIELDS = "email: email, birthday: birthday, is_active: {value: true}"
ENVIRON_WITHOUT_SERVICE = {"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}


def explain(connector: Connector, identity: str = ANN) -> CommandResult:
    """Run `explain` without the token and the address of the service. Check that the library returns the same
    explanation."""
    result = connector.run_json("explain", identity, environ=ENVIRON_WITHOUT_SERVICE)
    explanation = Library(state_dir=connector.folder / "state").explain(identity)
    assert explanation.as_json() == result.report
    return result


def test_a_created_subscriber_is_explained_with_its_id_and_its_run(connector: Connector) -> None:
    run = connector.import_file(connector.write_people("email,client_user_id", f"{ANN},A1")).report
    requests = connector.sandbox.stats()["requests"]
    result = explain(connector, " Ann@Example.COM ")
    (entry,) = result.report["entries"]
    assert (result.exit_code, result.report["status"]) == (0, "ok")
    assert (entry["base_id"], entry["base_name"], entry["identity_field"]) == (1, "News", "email")
    assert (entry["state"], entry["attempts"], entry["next_step"]) == ("confirmed", 1, None)
    assert entry["subscriber_id"] == connector.list_created_subscribers()[ANN]["Id"]
    assert (entry["run"]["run_id"], entry["run"]["job"], entry["run"]["status"]) == (run["run_id"], "people", "ok")
    assert entry["run"]["started_at"][:19] == run["started_at"][:19]
    output = connector.run("explain", ANN).stdout
    assert "News (id 1): confirmed" in output
    assert f"{run['run_id']} (import people)" in output
    assert connector.sandbox.stats()["requests"] == requests


def test_explain_shows_a_next_step_for_a_difference(connector: Connector, tmp_path: Path) -> None:
    path, header = tmp_path / "people.csv", "email,first_name,is_active"
    connector.write_csv(path, header, f"{ANN},Ann,true", f"{BOB},Bob,true")
    connector.run_json("import", path, *NEWS_OPTIONS)
    connector.write_csv(path, header, f"{ANN},Ann,false", f"{BOB},Rob,true")
    connector.run_json("import", path, *NEWS_OPTIONS)
    (opted_out_entry,), (changed_entry,) = (explain(connector, email).report["entries"] for email in (ANN, BOB))
    assert (opted_out_entry["state"], opted_out_entry["opted_out_in"]) == ("confirmed", "people")
    assert opted_out_entry["next_step"].startswith("Deactivate the subscriber in the service")
    assert changed_entry["reported_at"] is not None
    assert changed_entry["next_step"].startswith("A row differs from the service")


def test_explain_ends_with_exit_code_1_if_the_ledger_does_not_know_the_subscriber(connector: Connector) -> None:
    connector.import_file(connector.write_people("email", ANN, "no address"))
    for identity in (BOB, "no address"):
        result = explain(connector, identity)
        assert (result.exit_code, result.report["status"], result.report["entries"]) == (1, "partial", [])
        assert "The ledger does not know this subscriber" in result.report["messages"][0]
    assert "does not know this subscriber" in connector.run("explain", BOB).stdout


def test_explain_shows_the_problem_of_a_subscriber_without_a_valid_row(connector: Connector) -> None:
    connector.write_people("email,birthday", f"{ANN},31.02.1990")
    run = connector.sync(connector.write_job(fields=FIELDS)).report
    result = explain(connector)
    (problem,) = result.report["problems"]
    assert (result.exit_code, result.report["entries"]) == (0, [])
    assert (problem["job"], problem["kind"], problem["field"], problem["run_id"]) == (
        "crm", "invalid", "birthday", run["run_id"],
    )  # fmt: skip
    assert "invalid (birthday) in the job crm" in connector.run("explain", ANN).stdout


def test_the_next_step_names_the_job_that_owns_the_entry(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422)
    connector.write_people("email,birthday", f"{ANN},")
    job_path = connector.write_job(fields=FIELDS)
    run = connector.sync().report
    (entry,) = explain(connector).report["entries"]
    assert entry["next_step"].endswith(f"connector retry --rejected --job {job_path}")
    assert entry["run"]["rejects_file"] == run["rejects_file"]
    Path(run["rejects_file"]).unlink()
    assert explain(connector).report["entries"][0]["run"]["rejects_file"] is None


def test_explain_shows_a_subscriber_that_is_created_in_one_base_and_invalid_in_another(connector: Connector) -> None:
    connector.write_people("email,birthday,list", f"{ANN},,7", f"{ANN},31.02.1990,9")
    connector.sync(connector.write_job(base="column: list", fields=FIELDS))
    explanation = explain(connector).report
    assert [(entry["base_id"], entry["state"]) for entry in explanation["entries"]] == [(7, "confirmed")]
    assert [(problem["base"], problem["kind"]) for problem in explanation["problems"]] == [("9", "invalid")]
    assert "invalid (birthday) in the job crm for the base 9" in connector.run("explain", ANN).stdout


RUN_ID = "20261126T020000-0a1b2c"
EXPECTED_ENTRY_BY_CASE = {
    "listed": ("confirmed", "lookup", None, None, None),
    "answered": ("confirmed", "answer", None, None, None),
    "shown": ("confirmed", "lookup", None, None, None),
    "settled": ("confirmed", "lookup", None, None, None),
    "accepted": ("confirmed", "person", None, None, None),
    "refused row": ("rejected", "answer", 422, "no\x1b[31m", "connector retry --rejected"),
    "refused token": ("rejected", "answer", 401, "no such token", "Run the job again"),
    "dropped": ("rejected", "person", None, "given up", None),
    "misanswered": ("held", "answer", None, "answered as bob@example.com", "connector status"),
    "held": ("held", "lookup", None, None, "connector status"),
    "held without message": ("held", None, None, "the list hides this group", "connector status"),
    "unknown": ("unknown", None, None, None, "connector retry"),
    "sending": ("sending", None, None, None, "connector retry"),
}


def test_each_state_of_an_entry_is_explained(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with open_ledger(connector.ledger.url) as ledger, ledger.transaction() as connection:
        run_key = start_run(connection, RUN_ID, "crm", "sync", 1_795_658_400.0)
        bases = [find_or_add_base(connection, "main", *base) for base in ((7, "News"), (9, "Shop"))]
        for entry_case in EXPECTED_ENTRY_BY_CASE:
            add_entry(ledger, bases[0], run_key, entry_case)
        add_entry(ledger, bases[1], run_key, "answered")
    library = Library(state_dir=tmp_path / "state")
    for entry_case, (state, evidence, http_status, message, next_step) in EXPECTED_ENTRY_BY_CASE.items():
        entry, *_ = library.explain(entry_case).entries
        assert (entry.state, entry.evidence, entry.http_status) == (state, evidence, http_status), entry_case
        assert (entry.message, entry.attempts) == (message, int(entry_case != "listed")), entry_case
        assert entry.next_step is None if next_step is None else next_step in (entry.next_step or ""), entry_case
        run_facts = None if entry.run is None else (entry.run.run_id, entry.run.started_at)
        assert run_facts == (None if entry_case == "listed" else (RUN_ID, "2026-11-26T02:00:00+00:00")), entry_case
    assert [entry.base_name for entry in library.explain("answered").entries] == ["News", "Shop"]
    for entry_case, *expected_texts in (("answered", "Nothing to do."), ("refused row", "no\\x1b[31m", "--rejected")):
        output = connector.run("explain", entry_case).stdout
        texts = [library.explain(entry_case).entries[0].meaning, *expected_texts]
        assert [text for text in texts if text not in output] == []


def add_entry(ledger: Ledger, base: Base, run_key: int, entry_case: str) -> None:
    """Add an entry in the state that `entry_case` names. The client_user_id of the entry is `entry_case`."""
    digest = digest_identity("client_user_id", entry_case)
    if entry_case == "listed":
        ledger.record_listed_subscribers(base, "client_user_id", [(digest, 9)])
        return
    ledger.mark_intended(base, run_key, [Intent(digest, b"f" * 8, b"{}", "client_user_id")])
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
    if entry_case in ("held", "held without message", "dropped", "accepted"):
        message = "the list hides this group" if entry_case == "held without message" else None
        ledger.mark_held(base, [(digest, message)])
    if entry_case == "accepted":
        ledger.mark_accepted(base, [(digest, 9)])
    if entry_case == "dropped":
        ledger.mark_dropped(base, [digest], "given up")


def test_commands_that_need_the_ledger_say_what_to_do_without_a_ledger(connector: Connector) -> None:
    commands = (("explain", ANN), ("retry",), ("forget", ANN), ("ledger", "backup", "copy.db"))
    for command in commands:
        result = connector.run(*command)
        assert (result.exit_code, "Before the first import, no ledger exists" in result.stderr) == (2, True), command
        assert "same command again" not in result.stdout
        assert connector.run_json(*command).report["status"] == "usage", command
    assert list(connector.folder.rglob("*.db")) == []
    assert connector.sandbox.stats()["requests"] == {}
