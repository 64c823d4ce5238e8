"""`suppress.inactive`: a subscriber that is inactive in one base is not created as active in another base
(architecture 2)."""

from pathlib import Path

import pytest

from tests.pipelines.bases_by_row import count_creates_by_base_and_email
from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import create_with_other_ledger, unsubscribe

LARGE_OTHER_PERSON_COUNT = 1_500
"""With this many subscribers in another base, look-ups by filters take fewer requests than reading the whole list in
pages of 50."""
THREE_PEOPLE = ("email,active", "ann@x.org,yes", "bob@x.org,yes", "eve@x.org,no")
SUPPRESS_INACTIVE = "suppress: {inactive: true}"


def write_job(connector: Connector, *job_lines: str, **job_values: str) -> Path:
    return connector.write_job(*job_lines, base="id: 9", fields="email: email, is_active: active", **job_values)


@pytest.mark.parametrize(
    "other_person_count", [0, LARGE_OTHER_PERSON_COUNT], ids=["the run reads the whole list", "filters"]
)
def test_a_row_is_not_created_as_active_if_its_identity_is_inactive_in_another_base(
    connector: Connector, tmp_path: Path, other_person_count: int
) -> None:
    if other_person_count:
        connector.sandbox.seed(other_person_count, base_name="Others")
        connector.sandbox.switch(filters="icase", max_limit=50)
    unsubscribe(connector, "ANN@x.org", "eve@x.org")
    connector.write_people(*THREE_PEOPLE)
    write_job(connector, SUPPRESS_INACTIVE)
    connector.run_json("plan", "job.yaml").expect_rows(read=3, suppressed=1, created=2)
    result = connector.sync().expect(0, read=3, suppressed=1, created=2)
    # Besides its look-ups, the run reads the whole list, because a filter that shows only base 7 does not prove
    # absence from base 9.
    assert result.report["requests"]["list"]["sent"] < 80
    assert {(9, "bob@x.org"), (9, "eve@x.org")} <= set(count_creates_by_base_and_email(connector.sandbox))
    assert (9, "ann@x.org") not in count_creates_by_base_and_email(connector.sandbox)
    assert connector.sync().rows == {"read": 3, "suppressed": 1, "exists": 2}


def test_inactive_subscribers_are_found_if_the_list_omits_fields_that_are_false(connector: Connector) -> None:
    """tests/service/test_answers.py tests the other forms of IsActive."""
    unsubscribe(connector, "ANN@x.org", "eve@x.org")
    connector.sandbox.switch(activity="omit_false", filters="icase")
    connector.write_people(*THREE_PEOPLE)
    connector.sync(write_job(connector, SUPPRESS_INACTIVE)).expect(0, read=3, suppressed=1, created=2)


def fill_base(connector: Connector) -> None:
    """Create three people in base 7 with another ledger. Eve is inactive."""
    path = connector.write_csv("seven.csv", *THREE_PEOPLE)
    create_with_other_ledger(connector, path, "--base-id", "7", "--map", "is_active=active")


def test_the_key_suppress_inactive_treats_a_subscriber_without_is_active_as_inactive(connector: Connector) -> None:
    fill_base(connector)
    connector.sandbox.switch(activity="omit", filters="ignored")
    connector.write_people(*THREE_PEOPLE)
    result = connector.sync(write_job(connector, SUPPRESS_INACTIVE))
    assert result.rows["suppressed"] == 2, result.stderr  # Eve's row says inactive
    assert {(9, "ann@x.org"), (9, "bob@x.org")}.isdisjoint(count_creates_by_base_and_email(connector.sandbox))
    result_without_option = connector.sync(write_job(connector))
    assert result_without_option.rows["created"] == 3 - result.rows.get("created", 0), result_without_option.stderr
    assert "created as active" not in result_without_option.stderr


def test_a_job_without_suppress_inactive_counts_rows_that_reactivate_a_subscriber(connector: Connector) -> None:
    unsubscribe(connector, "ann@x.org", "eve@x.org")
    connector.write_people(*THREE_PEOPLE)
    write_job(connector, "guard: {max_creates: 9}")  # for the guard, the run reads each row twice, but counts it once
    messages = [
        connector.run_json(command, "job.yaml").find_messages("created as active")
        for command in ("plan", "sync", "sync")
    ]
    assert [[message.partition(", though")[0] for message in run_messages] for run_messages in messages] == [
        ["1 row would be created as active"],
        ["1 row was created as active"],
        [],
    ]


def test_a_retry_does_not_create_a_subscriber_who_has_unsubscribed(connector: Connector) -> None:
    connector.write_people("email,active", "ann@x.org,yes", "bob@x.org,yes", "cem@x.org,yes")
    write_job(connector, SUPPRESS_INACTIVE)
    connector.sandbox.switch(drop_before=1)
    assert connector.sync().rows == {"read": 3, "unknown": 3}
    connector.sandbox.switch(drop_before=0)
    unsubscribe(connector, "ann@x.org")
    result_without_job = connector.run_json("retry", "--quiet-period", "200ms")
    assert result_without_job.rows == {"read": 3, "unknown": 3}
    assert result_without_job.find_messages("without the suppression list of the job")
    connector.run_json("retry", "--job", "job.yaml").expect_rows(read=3, suppressed=1, created=2)
    assert (9, "ann@x.org") not in count_creates_by_base_and_email(connector.sandbox)


def test_the_key_suppress_inactive_is_refused_in_a_job_without_look_ups(connector: Connector) -> None:
    connector.write_people(*THREE_PEOPLE)
    result = connector.sync(write_job(connector, SUPPRESS_INACTIVE, load="look: none"))
    assert result.is_refused
    assert "`suppress.inactive` needs look-ups: remove this key" in result.stderr


def test_inactive_subscribers_are_not_created_as_active_if_the_list_hides_them(connector: Connector) -> None:
    emails = [f"person{index}@x.org" for index in range(40)]
    unsubscribe(connector, *emails)
    connector.sandbox.seed(LARGE_OTHER_PERSON_COUNT, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="icase", max_limit=10)
    connector.write_people("email,active", *(f"{email},yes" for email in emails))
    connector.sync(write_job(connector, SUPPRESS_INACTIVE)).expect_rows(read=40, suppressed=40)
