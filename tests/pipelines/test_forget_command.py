"""After `connector forget IDENTITY`, the next run creates the subscriber again if the service has erased it."""

from pathlib import Path

from connector.ledger.entries import Intent
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.states import State
from connector.subscribers.identity import digest_identity
from tests.pipelines.conftest import CommandResult, Connector

ANN = "ann@x.org"
NEWS_BASE, SHOP_BASE = (7, "News"), (None, "Shop")
DIGEST = digest_identity("email", ANN)


def add_entries(connector: Connector, *entries: tuple[tuple[int | None, str | None], State], account: str = "") -> None:
    """Add entries of Ann to the ledger. Each of `entries` is a base (id and name) and a state."""
    (connector.folder / "state").mkdir(exist_ok=True)
    with open_ledger(connector.ledger.url) as ledger, ledger.transaction() as connection:
        run_key = start_run(connection, f"run {account}", "job", "import", 0.0)
        for base_id_and_name, state in entries:
            base = find_or_add_base(connection, account or connector.sandbox.base_url, *base_id_and_name)
            ledger.mark_intended(base, run_key, [Intent(DIGEST, b"f" * 8, b"{}", "email")])
            if state in (State.UNKNOWN, State.HELD):
                ledger.mark_lost(base, [DIGEST])
            if state is State.HELD:
                ledger.mark_held(base, [(DIGEST, None)])
            if state is State.CONFIRMED:
                ledger.mark_answered(base, [(DIGEST, 1)])
            if state is State.REJECTED:
                ledger.mark_refused(base, State.SENDING, [(DIGEST, 422, "no")])


def forget(connector: Connector, *arguments: str | Path) -> CommandResult:
    """Run `forget` without the token."""
    return connector.run_json("forget", *arguments, environ={"CONNECTOR_TOKEN": None})


def list_forgotten_base_ids(result: CommandResult) -> list[int | None]:
    """Return the ids of the bases in which the identity was forgotten."""
    return [base["id"] for base in result.report["bases"]]


def test_confirmed_rejected_and_held_entries_of_a_subscriber_are_forgotten(connector: Connector) -> None:
    add_entries(connector, (NEWS_BASE, State.CONFIRMED), ((8, None), State.REJECTED), ((9, None), State.HELD))
    result = forget(connector, " Ann@X.ORG ")
    assert (result.exit_code, result.report["bases"][0]) == (0, {"id": 7, "name": "News"})
    assert list_forgotten_base_ids(result) == [7, 8, 9]
    second_result = forget(connector, ANN)
    assert (second_result.exit_code, second_result.report["forgotten"]) == (1, 0)
    assert second_result.report["messages"][0].startswith("The ledger has no entry of this identity in the account ")


def test_a_subscriber_with_an_unresolved_create_is_forgotten_only_in_other_bases(connector: Connector) -> None:
    unresolved_entries = ((SHOP_BASE, State.UNKNOWN), ((8, None), State.SENDING))
    add_entries(connector, (NEWS_BASE, State.CONFIRMED), *unresolved_entries)
    refused_result = forget(connector, ANN)
    assert (refused_result.exit_code, refused_result.report["forgotten"], refused_result.report["bases"]) == (1, 0, [])
    assert "may be in the service (Shop, base 8)" in refused_result.report["messages"][0]
    assert "connector retry" in refused_result.report["messages"][0]
    assert list_forgotten_base_ids(forget(connector, ANN, "--base-id", "7")) == [7]


def test_a_subscriber_is_forgotten_in_every_base_unless_an_option_names_a_base(connector: Connector) -> None:
    add_entries(connector, (NEWS_BASE, State.CONFIRMED), ((8, None), State.CONFIRMED), ((9, None), State.CONFIRMED))
    add_entries(connector, (NEWS_BASE, State.CONFIRMED), account="abroad")
    refused_result = forget(connector, ANN, "--base-name", "Nowhere")
    assert refused_result.is_refused
    assert "Bases in the ledger: News (id 7), base 8, base 9" in refused_result.stderr
    assert list_forgotten_base_ids(forget(connector, ANN, "--base-name", "News")) == [7]
    result = forget(connector, ANN)
    assert (result.report["forgotten"], list_forgotten_base_ids(result)) == (2, [8, 9])
    connector.write_addresses(1)
    connector.write_job("service: {account: abroad}")
    # The job names the account, so the command needs no address of the service.
    environ_without_service = {"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}
    assert (
        connector.run_json("forget", ANN, "--job", "job.yaml", environ=environ_without_service).report["forgotten"] == 1
    )


def import_ann(connector: Connector) -> CommandResult:
    path = connector.write_csv("ann.csv", "email,client_user_id", f"{ANN},A1", "b@x.org,")
    return connector.import_file(path)


def test_the_next_run_looks_up_a_forgotten_subscriber(connector: Connector) -> None:
    import_ann(connector)
    requests = connector.sandbox.stats()["requests"]
    assert forget(connector, ANN, "--identity", "client_user_id").exit_code == 1
    result = forget(connector, ANN)
    assert (result.exit_code, result.report["forgotten"]) == (0, 1)
    assert ANN not in result.stdout + result.stderr
    assert connector.sandbox.stats()["requests"] == requests
    assert import_ann(connector).rows == {"read": 2, "exists": 2}  # the service still has both subscribers
    assert [forget(connector, identity).exit_code for identity in (ANN, "b@x.org")] == [0, 0]
    connector.sandbox.reset()  # now the service has erased both subscribers
    connector.sandbox.seed(1, base_name="News")
    assert import_ann(connector).rows == {"read": 2, "created": 2}
    assert connector.count_creates_by_email() == {ANN: 1, "b@x.org": 1}


def test_an_identity_is_read_from_standard_input(connector: Connector) -> None:
    import_ann(connector)
    assert connector.run_json("forget", "-", stdin=f"{ANN}\n").report["forgotten"] == 1
    for stdin_text in ("\n", f"{ANN}\nb@x.org\n"):
        refused_result = connector.run_json("forget", "-", stdin=stdin_text)
        assert refused_result.is_refused
        assert "Write nothing else to standard input" in refused_result.stderr
        assert "b@x.org" not in refused_result.stderr
