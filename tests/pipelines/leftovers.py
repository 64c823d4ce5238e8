"""Helpers that leave unfinished entries in the ledger, and that read the states of entries."""

from pathlib import Path
from typing import Any

from connector.ledger.opening import open_ledger
from connector.ledger.records import list_bases, record_lag
from connector.states import State
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, CommandResult, Connector, read_rows


def produce_three_unknown_creates(
    connector: Connector, path: Path, *options: str, base: str | None = "News", **faults: Any
) -> CommandResult:
    """Run an import that ends with three unknown creates. If `base` is None, one of the options names the base."""
    connector.sandbox.switch(**faults)
    base_options = [] if base is None else ["--base-name", base]
    result = connector.run_json("import", path, *base_options, "--active", "--quiet-period", "200ms", *options)
    connector.sandbox.switch(**dict.fromkeys(faults, 0))
    assert (result.exit_code, result.rows["unknown"]) == (3, 3)
    return result


def produce_three_held_creates(connector: Connector, path: Path) -> CommandResult:
    """Run imports that end with three held creates, whose subscribers are proved absent."""
    produce_three_unknown_creates(connector, path, drop_before=1)
    return connector.import_file(path, "--on-unknown", "hold").expect(1, read=3, unknown=3)


def retry(connector: Connector, *options: str | Path, **run_options: Any) -> CommandResult:
    return connector.run_json("retry", *options, "--quiet-period", "200ms", **run_options)


def read_rejects(result: CommandResult) -> list[dict[str, str]]:
    path = result.report["rejects_file"]
    return [] if path is None else read_rows(Path(path))


def read_states(connector: Connector) -> list[State]:
    """Return the state of each entry with a body, in every base of the account."""
    with open_ledger(connector.ledger.url) as ledger, ledger.transaction() as connection:
        bases = list_bases(connection, connector.sandbox.base_url)
        states = (State.UNKNOWN, State.HELD, State.REJECTED, State.DROPPED)
        return [state for base in bases for state in states for _ in ledger.find_unfinished_entries(base, state)]


def record_lag_of_list(connector: Connector, lag_s: float) -> None:
    """Record this lag of the list in the ledger, as a run does after it has measured the lag."""
    with open_ledger(connector.ledger.url) as ledger, ledger.transaction() as connection:
        record_lag(connection, connector.sandbox.base_url, lag_s)


def create_with_other_ledger(connector: Connector, path: Path, *options: str) -> None:
    """Create the people with another ledger, by default in the base News as active subscribers."""
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / "elsewhere")}
    result = connector.run_json("import", path, *(options or NEWS_IMPORT_OPTIONS), environ=environ)
    assert result.exit_code == 0, result.stderr


def unsubscribe(connector: Connector, *emails: str) -> None:
    """Create inactive subscribers in base 7 with another ledger."""
    path = connector.write_csv("gone.csv", "email", *emails)
    create_with_other_ledger(connector, path, "--base-id", "7", "--inactive")
