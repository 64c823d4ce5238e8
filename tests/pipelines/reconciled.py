"""Helpers for tests of reconciliations: subscribers of other programs, and the reported differences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import CommandResult, Connector, read_rows
from tests.pipelines.planned import count_creates, read_file_states
from tests.sandbox.client import SandboxClient

NO_DIFFERENCES = {"missing": 0, "extra": 0, "duplicated": 0, "drifted": 0, "vanished": 0}
UNKNOWN_DIFFERENCES = {"missing": None, "extra": None, "vanished": None}

DifferenceLine = tuple[str, str, str]
"""The kind, the identity and the field of a difference."""


def reconcile(connector: Connector, *options: str | Path, **run_options: Any) -> CommandResult:
    """Reconcile job.yaml. Check that no create is sent, and that only the log of runs changes in the state folder."""
    state_folder, create_count = connector.folder / "state", count_creates(connector.sandbox)
    states_before = read_state_without_runs(state_folder)
    result = connector.run_json(
        "reconcile", "job.yaml", "--to", connector.folder / "differences.csv", *options, **run_options
    )
    assert count_creates(connector.sandbox) == create_count
    assert read_state_without_runs(state_folder) == states_before
    return result


def read_state_without_runs(state_folder: Path) -> Mapping[str, tuple[bytes, int]]:
    return {
        name: file_state for name, file_state in read_file_states(state_folder).items() if not name.startswith("runs/")
    }


def find_differences(result: CommandResult) -> Mapping[str, int]:
    """Return the number of differences of each kind that has at least one difference."""
    return {kind: count for kind, count in result.report["differences"].items() if count}


def read_differences(folder: Path) -> list[dict[str, str]]:
    return read_rows(folder / "differences.csv")


def list_difference_lines(folder: Path) -> list[DifferenceLine]:
    return [(line["difference"], line["identity"], line["field"]) for line in read_differences(folder)]


def create_in_service(sandbox: SandboxProcess, email: str | None, base: object = None, **fields: object) -> int:
    """Create a subscriber as another program does, and return the id."""
    reply = SandboxClient(sandbox).create(email, base=base or {"Name": "News"}, **fields)
    assert reply.status == 200, reply
    return int(reply.json["Subscriber"]["Id"])


def change_in_service(connector: Connector, email: str, **fields: object) -> None:
    """Change a subscriber of base 7. With the switch `upsert`, the service treats a create of an existing identity as
    an update."""
    connector.sandbox.switch(duplicates="upsert")
    create_in_service(connector.sandbox, email, {"Id": 7}, **fields)


def erase_oldest(sandbox: SandboxProcess, count: int = 1, **query: object) -> list[int]:
    """Erase the `count` subscribers with the smallest ids from the service, and return their ids."""
    last_sequence_number = sandbox.truth()["sequence"]
    sandbox.switch(churn_delete=count, churn_where="head")
    SandboxClient(sandbox).request_list(limit=1, **query)
    sandbox.switch(churn_delete=0)
    return [event["id"] for event in sandbox.truth(last_sequence_number)["events"] if event["kind"] == "churn_deleted"]


def list_subscribers_by_email(sandbox: SandboxProcess) -> dict[str, dict[str, Any]]:
    """Return all listed subscribers by email."""
    return {
        subscriber["Email"]: subscriber for subscriber in SandboxClient(sandbox).read_page(limit=1000)["Subscribers"]
    }
