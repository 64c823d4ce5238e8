"""A cache between the connector and the service, which repeats answers of the list by their URL."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import INTO_NEWS, Connector, count_stored, write_addresses

CACHES = pytest.mark.parametrize("cache_ignores", [False, True], ids=["an obedient cache", "a cache of its own mind"])


@CACHES
@pytest.mark.parametrize("others", [0, 30, 15_000], ids=["an empty list", "a sweep", "filters"])
def test_a_cached_answer_does_not_prove_that_a_lost_create_had_no_effect(
    connector: Connector, tmp_path: Path, others: int, cache_ignores: bool
) -> None:
    if others:
        connector.sandbox.seed(others, base_id=50)
    people = write_addresses(tmp_path / "people.csv", 1)
    connector.sandbox.switch(cached=3600, cache_ignores=cache_ignores, filters="icase", drop_after=1.0)

    ended = connector.run_json("import", people, *INTO_NEWS)

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert (ended.code, ended.rows) == (0, {"read": 1, "created": 1}), ended.report["messages"]
