"""`connector forget IDENTITY`: somebody who was erased in the service is new to the next run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError
from connector.ledger.entries import Intent, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.states import State
from connector.subscribers.identity import digest_identity
from pipelines.flows.forget import forget
from tests.pipelines.conftest import Connector, Ended, count_stored, write_addresses, write_csv

ANN = "ann@x.org"
# On the ledger itself


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        with ledger.transaction() as connection:
            start_run(connection, "run", "job", "import", 0.0)
        yield ledger


def find_base(ledger: Ledger, service_id: int | None, name: str | None = None, account: str = "main") -> Base:
    with ledger.transaction() as connection:
        return find_or_add_base(connection, account, service_id, name)


def add(ledger: Ledger, base: Base, state: State, identity: str = ANN) -> None:
    """Add an entry in this state."""
    digest = digest_identity("email", identity)
    with ledger.transaction():
        ledger.mark_intended(base, 1, [Intent(digest, b"f" * 8, b"{}", "email")])
        if state in (State.UNKNOWN, State.HELD):
            ledger.mark_lost(base, [digest])
        if state is State.HELD:
            ledger.mark_withheld(base, [(digest, None)])
        if state is State.CONFIRMED:
            ledger.mark_answered(base, [(digest, 1)])
        if state is State.REJECTED:
            ledger.mark_refused(base, State.SENDING, [(digest, 422, "no")])


def find_states(ledger: Ledger, base: Base, identity: str = ANN) -> list[State]:
    digests = [digest_identity(field, identity) for field in ("email", "client_user_id")]
    with ledger.transaction():
        return [entry.state for entry in ledger.find_entries(base, digests).values()]


def forget_ann(
    ledger: Ledger, *, base_id: int | None = None, base_name: str | None = None, identity: str = ANN
) -> dict[str, Any]:
    return forget(ledger, "main", identity, ("email", "client_user_id"), base_id, base_name)


def list_forgotten(forgotten: dict[str, Any]) -> list[int]:
    """The ids of the bases in which the identity was forgotten."""
    return [base["id"] for base in forgotten["bases"]]


@pytest.mark.parametrize("state", [State.CONFIRMED, State.REJECTED, State.HELD])
def test_whoever_is_settled_or_held_is_forgotten(ledger: Ledger, state: State) -> None:
    base = find_base(ledger, 7)
    add(ledger, base, state)
    add(ledger, base, state, "bob@x.org")
    forgotten = forget_ann(ledger, identity=" Ann@X.ORG ")
    assert (forgotten["status"], forgotten["bases"]) == ("ok", [{"id": 7, "name": None}])
    assert (find_states(ledger, base), find_states(ledger, base, "bob@x.org")) == ([], [state])
    again = forget_ann(ledger)
    assert (again["status"], again["forgotten"]) == ("partial", 0)
    assert again["messages"][0] == "the ledger has no entry of that identity in the account main"


@pytest.mark.parametrize("state", [State.UNKNOWN, State.SENDING])
def test_whoever_may_be_in_the_service_is_not_forgotten_anywhere(ledger: Ledger, state: State) -> None:
    news, shop, other = find_base(ledger, 7, "News"), find_base(ledger, None, "Shop"), find_base(ledger, 9)
    for base, here in ((news, State.CONFIRMED), (shop, state), (other, State.HELD)):
        add(ledger, base, here)
    refused = forget_ann(ledger)
    assert (refused["status"], refused["forgotten"], refused["bases"]) == ("partial", 0, [])
    assert "may be in the service (Shop)" in refused["messages"][0]
    assert "connector retry" in refused["messages"][0]
    assert [find_states(ledger, base) for base in (news, shop, other)] == [[State.CONFIRMED], [state], [State.HELD]]
    assert list_forgotten(forget_ann(ledger, base_id=7)) == [7]


def test_every_base_of_the_account_is_meant_unless_one_is_named(ledger: Ledger) -> None:
    news, shop, abroad = find_base(ledger, 7, "News"), find_base(ledger, 8), find_base(ledger, 7, account="abroad")
    for base in (news, shop, abroad):
        add(ledger, base, State.CONFIRMED)
    assert list_forgotten(forget_ann(ledger, base_name="News")) == [7]
    assert find_states(ledger, shop) == [State.CONFIRMED]
    add(ledger, news, State.CONFIRMED)
    forgotten = forget_ann(ledger)
    assert (forgotten["forgotten"], list_forgotten(forgotten)) == (2, [7, 8])
    assert find_states(ledger, abroad) == [State.CONFIRMED]


@pytest.mark.parametrize(("base_id", "base_name"), [(99, None), (None, "Nowhere"), (8, "News")])
def test_a_base_that_the_ledger_does_not_know_is_refused_with_those_it_knows(
    ledger: Ledger, base_id: int | None, base_name: str | None
) -> None:
    add(ledger, find_base(ledger, 7, "News"), State.CONFIRMED)
    find_base(ledger, 8)
    find_base(ledger, None, "Shop")
    with pytest.raises(ConfigurationError, match=r"it knows: News \(id 7\), base 8, Shop"):
        forget_ann(ledger, base_id=base_id, base_name=base_name)


# As a person or a script meets it


def import_ann(connector: Connector) -> Ended:
    path = write_csv(connector.folder / "ann.csv", "email,client_user_id", f"{ANN},A1", "b@x.org,")
    return connector.import_file(path)


def run_forget(connector: Connector, *arguments: str | Path) -> Ended:
    """Without a token: none is needed."""
    return connector.run_json("forget", *arguments, environ={"CONNECTOR_TOKEN": None})


def test_the_next_row_of_somebody_forgotten_is_new(connector: Connector) -> None:
    import_ann(connector)
    requests = connector.sandbox.stats()["requests"]
    assert run_forget(connector, ANN, "--identity", "client_user_id").code == 1
    ended = run_forget(connector, ANN)
    assert (ended.code, ended.report["status"], ended.report["forgotten"]) == (0, "ok", 1)
    assert ended.report["bases"] == [{"id": 1, "name": "News"}]
    assert ANN not in ended.stdout + ended.stderr
    assert connector.sandbox.stats()["requests"] == requests
    assert import_ann(connector).rows == {"read": 2, "exists": 2}  # not erased after all: found, and not created again
    assert [run_forget(connector, identity).code for identity in (ANN, "b@x.org")] == [0, 0]
    connector.sandbox.reset()  # now everybody was erased
    connector.sandbox.seed(1, base_name="News")
    assert import_ann(connector).rows == {"read": 2, "created": 2}
    assert count_stored(connector.sandbox) == {ANN: 1, "b@x.org": 1}


def test_an_account_is_the_jobs(connector: Connector) -> None:
    job = connector.folder / "job.yaml"
    write_addresses(connector.folder / "people.csv", 1)
    job.write_text(
        "job: news\nservice: {account: main}\nsource: {file: {path: people.csv}}\nsubscriber: {base: {name: News}}\n",
        encoding="utf-8",
    )
    connector.run_json("sync", job)
    assert run_forget(connector, "person0@example.com").code == 1
    nowhere = {"CONNECTOR_TOKEN": None, "CONNECTOR_BASE_URL": None}  # the account has a name: no address is needed
    ended = connector.run_json("forget", "person0@example.com", "--job", job, environ=nowhere)
    assert (ended.code, ended.report["forgotten"]) == (0, 1)


def test_an_identity_can_come_by_standard_input(connector: Connector) -> None:
    import_ann(connector)
    assert connector.run_json("forget", "-", stdin=f"{ANN}\n").report["forgotten"] == 1
    for text in ("\n", f"{ANN}\nb@x.org\n"):
        refused = connector.run_json("forget", "-", stdin=text)
        assert refused.is_refused
        assert "alone on standard input" in refused.stderr
        assert "b@x.org" not in refused.stderr
