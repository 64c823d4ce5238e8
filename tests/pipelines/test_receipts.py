"""Receipts: a row for each subscriber that a run created, found changed, rejected, held or left unknown."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

from connector import ConfigurationError, Connector as Library, Report
from connector.states import State
from connector.subscribers.identity import digest_identity
from tests.databases import Database, open_postgres
from tests.pipelines.conftest import ROOT, CommandResult, Connector
from tests.pipelines.killed_runs import run_until_kill_point
from tests.pipelines.leftovers import produce_three_unknown_creates
from tests.pipelines.reconciled import erase_oldest

KILL_COUNT = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
KILL_POINT_STEP = 1 if KILL_COUNT >= 50 else 17
"""The test tries every 17th kill point, or every kill point if KILL_COUNT is at least 50."""

ReceiptRow = dict[str, Any]


class Destination:
    """A destination of receipts: its kind, its folder and its URL."""

    def __init__(self, kind: str, folder: Path, url: str) -> None:
        self.kind, self.folder = kind, folder
        self.to = {
            "sqlite": f"sqlite:///{folder}/warehouse.db",
            "duckdb": f"duckdb:///{folder}/warehouse.duckdb",
            "postgresql": url,
            "delta": f"delta://{folder}/receipts",
        }.get(kind, f"{folder}/receipts.{kind}")

    def read(self) -> list[ReceiptRow]:
        """Return all receipts, in the order of their identities and runs."""
        rows: list[ReceiptRow]
        query = "SELECT * FROM subscriber_receipts"
        if self.kind == "duckdb":
            with closing(duckdb.connect(f"{self.folder}/warehouse.duckdb")) as database:
                query_result = database.execute(query)
                names = [column[0] for column in query_result.description or ()]
                rows = [dict(zip(names, row, strict=True)) for row in query_result.fetchall()]
        elif self.kind in ("sqlite", "postgresql"):
            with Database(self.kind, self.to).begin() as connection:
                rows = [dict(row) for row in connection.exec_driver_sql(query).mappings()]
        elif self.kind == "delta":
            from deltalake import DeltaTable

            rows = DeltaTable(f"{self.folder}/receipts").to_pyarrow_table().to_pylist()
        else:
            arrow_format = self.kind.partition(".")[0]
            rows = ds.dataset(f"{self.folder}/receipts.{self.kind}", format=arrow_format).to_table().to_pylist()
        return sorted(rows, key=lambda row: (row["identity"], row["run_id"]))


@pytest.fixture
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Destination]:
    kind = request.param
    if kind != "postgresql":
        yield Destination(kind, tmp_path, "")
        return
    with open_postgres() as database:
        yield Destination(kind, tmp_path, database.url)


def write_job(connector: Connector, url: str, load: str = "quiet_period: 100ms") -> Path:
    fields = "email: mail, first_name: name, phone: phone, is_active: {value: true}"
    return connector.write_job(f"receipts: {{to: '{url}'}}", base="id: 7", fields=fields, load=load)


def sync_lines(connector: Connector, url: str, *lines: str) -> CommandResult:
    connector.write_people("mail,name,phone", *lines)
    return connector.sync(write_job(connector, url))


def read_outcomes_by_identity(rows: list[ReceiptRow], result: CommandResult) -> dict[str, tuple[str, str]]:
    """Return the outcome and the evidence of each receipt of a run, by identity."""
    run_id = result.report["run_id"]
    return {row["identity"]: (row["outcome"], row["evidence"]) for row in rows if row["run_id"] == run_id}


# The test of killed runs writes receipts to duckdb, postgresql and parquet.
@pytest.mark.parametrize("destination", ["sqlite", "csv.gz", "delta"], indirect=True)
def test_each_destination_of_exports_stores_the_receipts_of_runs(
    connector: Connector, destination: Destination
) -> None:
    first_result = sync_lines(connector, destination.to, "ann@x.org,Ann,", "bob@x.org,Bob,")
    second_result = sync_lines(connector, destination.to, "ann@x.org,Ann,", "cy@x.org,Cy,")
    rows = destination.read()
    assert [row["identity"] for row in rows] == ["ann@x.org", "bob@x.org", "cy@x.org"]
    assert {row["run_id"] for row in rows} == {result.report["run_id"] for result in (first_result, second_result)}
    subscribers = connector.list_created_subscribers()
    assert [row["service_id"] for row in rows] == [subscribers[row["identity"]]["Id"] for row in rows]
    assert {(row["job"], row["outcome"], row["message"] or None) for row in rows} == {("crm", "created", None)}
    assert {row["evidence"] for row in rows} <= {"answer", "lookup"}
    assert all(str(row["at"]).startswith("20") for row in rows)
    assert [result.report["receipts"]["rows"] for result in (first_result, second_result)] == [2, 1]
    third_result = sync_lines(connector, destination.to, "ann@x.org,Ann,", "cy@x.org,Cy,")
    assert (third_result.report["receipts"]["rows"], len(destination.read())) == (0, 3)


def test_each_receipt_has_the_evidence_of_its_outcome(connector: Connector) -> None:
    destination = Destination("sqlite", connector.folder, "")
    connector.sandbox.switch(required="FirstName", error_status=422)
    first_result = sync_lines(connector, destination.to, "ann@x.org,Ann,", "bob@x.org,,")
    expected_outcomes = {"ann@x.org": ("created", "lookup"), "bob@x.org": ("rejected", "answer")}
    assert read_outcomes_by_identity(destination.read(), first_result) == expected_outcomes
    second_result = sync_lines(connector, destination.to, "ann@x.org,Anna,", "bob@x.org,,")
    assert read_outcomes_by_identity(destination.read(), second_result)["ann@x.org"] == ("changed", "lookup")
    assert read_outcomes_by_identity(destination.read(), second_result)["bob@x.org"][0] == "rejected"
    third_result = sync_lines(connector, destination.to, "ann@x.org,Anna,")
    assert read_outcomes_by_identity(destination.read(), third_result) == {"ann@x.org": ("changed", "ledger")}
    message = next(row["message"] for row in destination.read() if row["run_id"] == second_result.report["run_id"])
    assert message == "differs in first_name"


def test_the_receipt_of_a_compared_row_shows_how_the_row_was_compared(connector: Connector) -> None:
    destination = Destination("sqlite", connector.folder, "")
    people = [f"person{index}@x.org,Ann," for index in range(101)]
    sync_lines(connector, destination.to, "erased@x.org,Ann,", *people)
    erase_oldest(connector.sandbox, Email="erased@x.org")
    changed_result = sync_lines(connector, destination.to, "erased@x.org,Anna,")
    assert (receipt := read_receipt(destination, changed_result, "erased@x.org"))[:2] == ("changed", "ledger")
    assert "the list did not show the subscriber" in (receipt[2] or "")
    result_of_many_changes = sync_lines(connector, destination.to, *[row.replace("Ann", "Anna") for row in people])
    assert set(read_outcomes_by_identity(destination.read(), result_of_many_changes).values()) == {("changed", "sweep")}
    repeated_result = sync_lines(connector, destination.to, *[row.replace("Ann", "Anna") for row in people])
    expected_receipt = ("changed", "ledger", "an earlier run reported the difference")
    assert read_receipt(destination, repeated_result, "person7@x.org") == expected_receipt


def test_a_create_that_took_effect_despite_a_429_has_the_receipt_of_a_create(connector: Connector) -> None:
    destination = Destination("sqlite", connector.folder, "")
    connector.sandbox.switch(created_429=1.0)
    result = sync_lines(connector, destination.to, "ann@x.org,Ann,")
    assert result.rows == {"read": 1, "created": 1}, result.stderr
    assert read_receipt(destination, result, "ann@x.org") == ("created", "lookup", None)


def read_receipt(destination: Destination, result: CommandResult, identity: str) -> tuple[str, str, str | None]:
    """Return the outcome, the evidence and the message of the receipt that a run wrote for this identity."""
    run_id = result.report["run_id"]
    (row,) = (row for row in destination.read() if (row["run_id"], row["identity"]) == (run_id, identity))
    return row["outcome"], row["evidence"], row["message"]


def test_a_held_create_has_a_receipt_in_each_run_until_a_retry_finds_its_subscriber(connector: Connector) -> None:
    destination = Destination("sqlite", connector.folder, "")
    connector.sandbox.switch(drop_before=1.0)
    connector.write_people("mail,name,phone", "ann@x.org,Ann,")
    write_job(connector, destination.to, load="quiet_period: 100ms, on_unknown: hold")
    held_results = [connector.sync() for _ in range(2)]
    connector.sandbox.switch(drop_before=0.0)
    result = connector.run_json("retry", "--held", "resend", "--job", "job.yaml")
    receipts = [read_receipt(destination, run_result, "ann@x.org")[:2] for run_result in (*held_results, result)]
    assert receipts == [("held", "lookup"), ("held", "lookup"), ("created", "answer")]


def test_the_next_run_writes_the_receipts_that_an_earlier_run_could_not_write(connector: Connector) -> None:
    destination = Destination("sqlite", connector.folder, "")
    warehouse = Database("sqlite", destination.to)
    warehouse.run("CREATE TABLE subscriber_receipts (id)")
    first_result = sync_lines(connector, destination.to, "ann@x.org,Ann,").expect(1, read=1, created=1)
    assert "The next run of the job writes them" in " ".join(first_result.report["messages"])
    warehouse.run("DROP TABLE subscriber_receipts")
    second_result = sync_lines(connector, destination.to, "ann@x.org,Ann,")
    assert (second_result.exit_code, second_result.report["receipts"]["rows"]) == (0, 1)
    assert read_outcomes_by_identity(destination.read(), first_result) == {"ann@x.org": ("created", "lookup")}


def test_a_run_that_settles_an_earlier_unknown_create_writes_another_receipt(connector: Connector) -> None:
    """The first run has already written a receipt of each unknown create. The second run does not read the rows of
    these creates."""
    destination = Destination("sqlite", connector.folder, "")
    options = ("--receipts", destination.to)
    first_result = produce_three_unknown_creates(connector, connector.write_addresses(3), *options, drop_after=1)
    other_path = connector.write_addresses(1, first_index=9, name="other.csv")
    second_result = connector.import_file(other_path, *options)
    assert second_result.report["settled"] == {"found": 3, "absent": 0}
    for result, outcome in ((first_result, "unknown"), (second_result, "created")):
        assert read_receipt(destination, result, "person0@example.com")[0] == outcome


def test_an_import_without_a_job_writes_receipts_to_a_folder(connector: Connector) -> None:
    path = connector.write_people("email", "ann@x.org")
    result = connector.import_file(path, "--receipts", "receipts.csv")
    receipts_folder = connector.folder / "receipts.csv"
    assert (result.exit_code, result.report["receipts"]) == (0, {"to": str(receipts_folder), "rows": 1})
    assert [path.name for path in receipts_folder.iterdir()] == [f"{result.report['run_id']}.csv"]
    plan_result = connector.import_file(path, "--receipts", "receipts.csv", "--dry-run")
    assert plan_result.report["receipts"] is None
    for receipts_path in ("people.csv", "receipts.xlsx", "nowhere/receipts.csv"):
        assert connector.import_file(path, "--receipts", receipts_path).exit_code == 2


def test_the_library_writes_receipts_as_the_commands_do(connector: Connector) -> None:
    library = Library(
        base_url=connector.sandbox.base_url, token=connector.sandbox.token, state_dir=connector.folder / "state"
    )
    job_path = write_job(connector, str(connector.folder / "job.csv"))
    rows = pd.DataFrame({"mail": ["ann@x.org"], "name": ["Ann"], "phone": [""]})
    connector.write_people("mail,name,phone", "bob@x.org,Bob,")
    # The suffix of the folder name sets the format of the receipts in the folder.
    frame_receipts_folder, option_receipts_folder, job_receipts_folder = (
        connector.folder / name for name in ("frame.csv", "own.csv", "job.csv")
    )
    other_rows = rows.replace("ann", "dee", regex=True)
    reports_by_folder: dict[Path, Report] = {
        frame_receipts_folder: library.import_file(rows, base_id=7, active=True, receipts=frame_receipts_folder),
        option_receipts_folder: library.import_file(other_rows, job=job_path, receipts=str(option_receipts_folder)),
        job_receipts_folder: library.sync(job_path),
    }
    for folder, report in reports_by_folder.items():
        assert report.receipts == {"to": str(folder), "rows": 1}
        assert [path.name for path in folder.iterdir()] == [f"{report.run_id}.csv"]
    for wrong_target in ("people.txt", 7):
        with pytest.raises(ConfigurationError, match=r"[Rr]eceipts"):
            library.sync(job_path, receipts=wrong_target)  # type: ignore[arg-type]


@pytest.mark.parametrize("destination", ["duckdb", "postgresql", "parquet"], indirect=True)
def test_the_next_run_writes_the_receipts_of_a_killed_run(connector: Connector, destination: Destination) -> None:
    connector.sandbox.switch(required="FirstName", error_status=422, error_after=0.2, seed=5)
    job_path = write_job(connector, destination.to)
    environ = {**os.environ, **connector.environ, "PYTHONPATH": str(ROOT)}
    kill_point, is_killed, round_number = len(destination.kind) % KILL_POINT_STEP, True, 0
    while is_killed:
        lines = [f"p{round_number}.{index}@x.org,{'Pat' if index else ''}," for index in range(4)]
        connector.write_people("mail,name,phone", *lines)
        is_killed = run_until_kill_point(["sync", str(job_path)], environ, connector.folder, kill_point)
        if round_number:  # an earlier run has made the destination
            assert read_receipt_outcomes(destination).items() <= read_ledger_outcomes(connector).items(), kill_point
        while (result := connector.sync()).report["status"] == "aborted":
            # A run ends early if the random faults affect all of its first three creates.
            assert "first creates got no usable answer" in result.stderr
        assert result.report["status"] == "partial", result.stdout
        check_receipts(connector, destination, kill_point)
        kill_point, round_number = kill_point + KILL_POINT_STEP, round_number + 1
    assert round_number > 2


def check_receipts(connector: Connector, destination: Destination, kill_point: int) -> None:
    """Check that the receipts, the ledger and the service agree, row by row, and that no receipt is left to write."""
    receipt_outcomes, ledger_outcomes = read_receipt_outcomes(destination), read_ledger_outcomes(connector)
    assert receipt_outcomes == ledger_outcomes, kill_point
    subscribers = connector.list_created_subscribers()
    stored_ids = {digest_identity("email", email): subscriber["Id"] for email, subscriber in subscribers.items()}
    created_ids = {
        digest: subscriber_id for digest, (outcome, subscriber_id) in receipt_outcomes.items() if outcome == "created"
    }
    assert created_ids == stored_ids
    created_identities = [row["identity"] for row in destination.read() if row["outcome"] == "created"]
    assert len(created_identities) == len(stored_ids), kill_point
    assert connector.ledger.fetch("SELECT count(*) FROM receipt") == [(0,)], kill_point


def read_receipt_outcomes(destination: Destination) -> dict[bytes, tuple[str, int | None]]:
    """Return the outcome and the Id of each subscriber's last receipt, by the digest of the identity."""
    rows = destination.read()
    return {digest_identity("email", row["identity"]): (row["outcome"], row["service_id"]) for row in rows}


def read_ledger_outcomes(connector: Connector) -> dict[bytes, tuple[str, int | None]]:
    """Return the outcome and the Id of each subscriber in the ledger, by the digest of the identity."""
    outcomes = {State.CONFIRMED: "created", State.REJECTED: "rejected", State.UNKNOWN: "unknown"}
    entries = connector.ledger.fetch("SELECT identity, state, subscriber_id FROM entry")
    return {digest: (outcomes.get(State(state), "sending"), subscriber_id) for digest, state, subscriber_id in entries}
