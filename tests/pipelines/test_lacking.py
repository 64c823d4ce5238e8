"""Messages about subscribers of earlier runs that a complete list does not show."""

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.lists import write_lists
from tests.pipelines.reconciled import erase_oldest

LACKING_TEXT = "the list is complete and lacks"


def test_a_load_counts_the_confirmed_subscribers_that_the_list_of_a_base_lacks(connector: Connector) -> None:
    # The account guard looks four subscribers up, and must find one.
    rows = [*(f"a{index}@x.org,news" for index in range(200)), *(f"b{index}@x.org,shop" for index in range(20))]
    job_path = write_lists(
        connector, *rows, load="quiet_period: 1ms"
    )  # a younger subscriber may not be on the list yet
    first_result = connector.sync()
    assert (first_result.rows, first_result.find_messages(LACKING_TEXT)) == ({"read": 220, "created": 220}, [])
    erase_oldest(connector.sandbox, 20)
    # Without new rows the run reads no list.
    assert connector.sync().find_messages(LACKING_TEXT) == []
    connector.write_people("email,list", *rows, "new@x.org,news", "new@x.org,shop")
    plan_result = connector.sync("job.yaml", "--dry-run")
    result = connector.sync().expect(0, read=222, exists=220, created=2)
    (message,) = result.find_messages(LACKING_TEXT)
    assert "(id 7): the list is complete and lacks 20 subscribers" in message
    assert message.endswith(f"To list them, run: connector reconcile {job_path}")
    assert plan_result.find_messages(LACKING_TEXT) == [message]


@pytest.mark.parametrize(
    ("switches", "quiet_period", "row_count"),
    [({"list_lag_ms": 1_000}, "1200ms", 51), ({"provisional_ids": True}, "200ms", 52)],
    ids=["younger than the quiet period", "listed with other ids"],
)
def test_subscribers_that_the_list_shows_late_or_with_other_ids_are_not_reported_as_missing(
    connector: Connector, switches: dict[str, object], quiet_period: str, row_count: int
) -> None:
    connector.sandbox.switch(**switches)
    people_path = connector.write_addresses(50)
    connector.import_file(people_path, "--quiet-period", quiet_period)
    connector.write_addresses(row_count, name=people_path)
    result = connector.import_file(people_path, "--quiet-period", quiet_period)
    assert result.rows["exists"] == 50, result.stderr
    assert result.find_messages(LACKING_TEXT) == []
