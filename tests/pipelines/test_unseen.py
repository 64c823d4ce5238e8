"""Services that answer creates with an Id and do not list the subscribers: the report tells a person to look."""

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import record_lag_of_list

UNSEEN_TEXT = "does not show the last new subscriber"


@pytest.mark.parametrize("seeded_count", [0, 30])
def test_a_service_that_stores_nothing_makes_the_run_partial(connector: Connector, seeded_count: int) -> None:
    if seeded_count:
        connector.sandbox.seed(seeded_count, base_name="News")
    connector.sandbox.switch(discard=1)
    result = connector.import_file(connector.write_addresses(20)).expect(1, read=20, created=20)
    (message,) = result.find_messages(UNSEEN_TEXT)
    assert message.startswith("The service answered 20 creates with an Id, and the list does not show the last new")


def test_a_run_waits_for_a_list_that_lags_less_than_the_quiet_period(connector: Connector) -> None:
    connector.sandbox.switch(list_lag_ms=700)
    result = connector.import_file(connector.write_addresses(5), "--quiet-period", "1500ms")
    assert (result.exit_code, result.find_messages(UNSEEN_TEXT)) == (0, []), result.stderr


def test_a_lag_below_the_lag_on_record_does_not_change_the_exit_code(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    assert connector.import_file(connector.write_addresses(2, name=path)).exit_code == 0
    record_lag_of_list(connector, 900.0)
    connector.sandbox.switch(list_lag_ms=600_000)
    result = connector.import_file(connector.write_addresses(5, name=path))
    (message,) = result.find_messages(UNSEEN_TEXT)
    assert (result.exit_code, "The largest lag on record is longer" in message) == (0, True), result.stderr


@pytest.mark.parametrize(
    "switches",
    [
        {"provisional_ids": True},
        {"hide": "no_email,old_ids"},
        {"filters": "ignored"},
        {"combine": "last", "filters": "partial"},
    ],
)
def test_a_list_that_shows_the_last_new_subscriber_causes_no_warning(
    connector: Connector, switches: dict[str, object]
) -> None:
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(**switches)
    result = connector.import_file(connector.write_addresses(20)).expect(0, read=20, created=20)
    assert result.find_messages(UNSEEN_TEXT) == []
