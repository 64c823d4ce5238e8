"""A create that is answered with another base or identity is held until a person decides (architecture 4.9)."""

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import read_rejects, read_states, retry
from tests.pipelines.reconciled import create_in_service

ROWS = ("ann+news@x.org,true", "bob@x.org,true", "cyd@x.org,true")


def test_the_first_answer_with_another_base_ends_the_run(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(5)
    sandbox.switch(base_alias="News=Other")
    first_result = connector.import_file(path).expect(3, read=5, unknown=1, unsent=4)
    assert "another base: Other" in first_result.stderr
    assert [row["_code"] for row in read_rejects(first_result)] == ["held"]
    for options in ((), ("--dry-run",), ("--quiet-period", "100ms")):
        later_result = connector.import_file(path, *options)
        assert later_result.is_refused, later_result.stderr
        assert "Other" in later_result.stderr
    assert sandbox.stats()["subscribers"] == 1
    result = connector.run_json("import", path, "--base-name", "Other", "--quiet-period", "200ms")
    result.expect(0, read=5, exists=1, created=4)
    assert set(connector.count_creates_by_email().values()) == {1}


@pytest.mark.parametrize(("has_person_repeated_it", "outcome"), [(False, "created"), (True, "exists")])
def test_a_held_create_is_sent_again_only_if_the_subscriber_does_not_exist_already(
    connector: Connector, has_person_repeated_it: bool, outcome: str
) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(3)
    sandbox.switch(base_alias="News=Other")
    assert connector.import_file(path).exit_code == 3
    retry(connector).expect(1, read=1, unknown=1)
    assert retry(connector, "--rejected").exit_code == 2
    sandbox.switch(base_alias="")
    if has_person_repeated_it:
        create_in_service(sandbox, "person0@example.com", {"Name": "News"})
    retry(connector, "--held", "resend").expect(0, **{"read": 1, outcome: 1})
    assert connector.import_file(path).rows == {"read": 3, "exists": 1, "created": 2}


def test_a_create_with_an_altered_identity_is_held_until_a_person_accepts_it(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_people("email,is_active", *ROWS)
    sandbox.switch(alter_identity=True)
    first_result = connector.import_file(path).expect(3, read=3, unknown=1, unsent=2)
    assert "ann" not in first_result.stderr
    for expected_outcome in ("created", "exists", "exists"):
        later_result = connector.import_file(path)
        assert later_result.exit_code == 1, later_result.stderr
        assert later_result.rows == {"read": 3, expected_outcome: 2, "unknown": 1}
    assert connector.count_creates_by_email()["ann@x.org"] == 1
    assert sandbox.stats()["subscribers"] == 3
    retry(connector, "--held", "accept").expect(0, read=1, exists=1)
    connector.import_file(path).expect(0, read=3, exists=3)
    assert read_states(connector) == []
