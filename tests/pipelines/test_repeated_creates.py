"""Creates that the service executes twice, for example because a proxy repeats a POST."""

from tests.pipelines.conftest import Connector


def test_creates_that_are_executed_twice_end_the_run_after_the_first_create(connector: Connector) -> None:
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(repeat=1, filters="icase")
    result = connector.import_file(connector.write_addresses(40))
    result.expect(3, read=40, created=1, unsent=39)
    first_id, second_id = (event["id"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created")
    assert f"1 subscriber of this run is in the service twice (ids {first_id} and {second_id})" in result.stderr


def test_a_few_creates_that_are_executed_twice_are_reported_at_the_end(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    assert connector.import_file(connector.write_addresses(5, name=path)).exit_code == 0
    connector.sandbox.switch(repeat=0.2, seed=3)
    result = connector.import_file(connector.write_addresses(60, name=path))
    duplicate_count = sum(create_count == 2 for create_count in connector.count_creates_by_email().values())
    assert (result.exit_code, duplicate_count > 1) == (1, True), result.stderr
    assert f"{duplicate_count} subscribers of this run are in the service twice" in result.stderr


def test_creates_that_are_executed_twice_are_reported_although_the_list_lags(connector: Connector) -> None:
    connector.sandbox.switch(repeat=1, list_lag_ms=500)
    result = connector.import_file(connector.write_addresses(5), "--quiet-period", "1s")
    assert result.exit_code == 1, result.stderr
    assert "in the service twice" in result.stderr
