"""Creates without an answer: the ledger keeps the identity, base and body of such a create, and any later load or retry
finds out whether the create took effect."""

from pathlib import Path

from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import produce_three_unknown_creates


def test_unknown_creates_are_looked_up_by_the_identity_field_of_the_run_that_sent_them(connector: Connector) -> None:
    path = connector.write_csv("ids.csv", "client_user_id,email", *(f"A{index},a{index}@x.org" for index in range(3)))
    produce_three_unknown_creates(connector, path, "--identity", "client_user_id", drop_after=1)
    result = connector.import_file(connector.write_csv("new.csv", "email", "z@x.org", "a1@x.org"))
    assert result.rows == {"read": 2, "created": 1, "exists": 1}
    assert result.report["settled"] == {"found": 3, "absent": 0}
    assert set(connector.count_creates_by_email().values()) == {1}


def test_an_import_by_base_name_ends_if_the_base_may_have_unknown_creates(connector: Connector) -> None:
    sandbox, path = connector.sandbox, connector.write_addresses(3)
    sandbox.switch(list_lag_ms=2500)
    produce_three_unknown_creates(connector, path, "--base-id", "1", base=None, drop_after=1)
    aborted_result = connector.import_file(path, "--limit", "3").expect(3, read=3, unsent=3)
    assert "the ledger may have this base twice" in aborted_result.stderr
    connector.run_json("import", path, "--base-id", "1", "--quiet-period", "1300ms").expect_rows(read=3, exists=3)
    assert set(connector.count_creates_by_email().values()) == {1}


def test_unknown_creates_in_a_base_without_an_id_do_not_block_another_base(
    connector: Connector, tmp_path: Path
) -> None:
    assert connector.import_file(connector.write_addresses(3)).exit_code == 0
    produce_three_unknown_creates(connector, tmp_path / "people.csv", "--base-name", "Shop", base=None, drop_before=1)
    connector.import_file(connector.write_addresses(3, first_index=3, name="more.csv")).expect(0, read=3, created=3)


def test_the_report_counts_unknown_creates_without_a_row_in_the_source(connector: Connector) -> None:
    produce_three_unknown_creates(connector, connector.write_addresses(3), drop_before=1)
    result = connector.import_file(connector.write_csv("new.csv", "email", "z@x.org"), "--on-unknown", "hold")
    result.expect(1, read=1, created=1)
    assert "3 unresolved creates of earlier runs" in result.stderr


def test_a_newer_row_replaces_the_body_of_an_unknown_create(connector: Connector, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    connector.write_csv(path, "email,first_name", "a@x.org,Old", "b@x.org,Old", "c@x.org,Old")
    produce_three_unknown_creates(connector, path, drop_before=1)
    connector.write_csv(path, "email,first_name", "a@x.org,New", "b@x.org,Old", "c@x.org,Old")
    assert connector.import_file(path).rows == {"read": 3, "created": 3}
    subscribers = connector.list_created_subscribers()
    assert [subscribers[f"{name}@x.org"]["FirstName"] for name in "abc"] == ["New", "Old", "Old"]
