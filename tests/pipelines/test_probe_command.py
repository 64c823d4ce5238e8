"""`connector probe`: each habit is seen under the sandbox's switch for it, and not without it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector

PLAIN = {
    "page_size": 1000, "total_count": "agrees", "order": "ascending", "offset": "as asked", "past_end": "empty",
    "filters": "exact", "two_filters": "all", "window": "none",
}  # fmt: skip
PLAIN_CREATES = {"duplicates": "accepted", "error_shape": "400 with words", "base_names": "exact"}


def probe(connector: Connector, *options: str) -> dict[str, Any]:
    """What was seen of each habit."""
    ended = connector.run_json("probe", *options)
    assert ended.code == 0, ended.stderr
    return {each["habit"]: each["seen"] for each in ended.report["habits"]}


def probe_by_creates(connector: Connector) -> dict[str, Any]:
    base_id = str(connector.sandbox.seed(30, base_name="News")["base_id"])
    seen = probe(connector, "--write", "--base-id", base_id, "--yes")
    return {name: value for name, value in seen.items() if name not in PLAIN}


@pytest.mark.parametrize(
    ("switches", "different"),
    [
        ({}, {}),
        ({"max_limit": 20}, {"page_size": 20, "total_count": None}),
        ({"total_off": -3}, {"total_count": "wrong"}),
        ({"order": "id_desc"}, {"order": "descending"}),
        ({"order": "email"}, {"order": "other"}),
        ({"order": "shuffled"}, {"order": "changes", "offset": "other"}),
        ({"align_offset": True}, {"offset": "aligned"}),
        ({"min_limit": 5}, {"offset": "raised limit"}),
        ({"past_end": "404"}, {"past_end": "error 404"}),
        ({"past_end": "repeat"}, {"past_end": "rows"}),
        ({"filters": "icase"}, {"filters": "icase"}),
        ({"filters": "partial"}, {"filters": "partial", "two_filters": None}),
        ({"filters": "ignored"}, {"filters": "ignored", "two_filters": None, "window": None}),
        ({"combine": "any"}, {"two_filters": "any"}),
        ({"combine": "last"}, {"two_filters": "one"}),
        ({"result_window": 25}, {"window": 25}),
    ],
    ids=str,
)
def test_a_habit_of_the_list_is_seen_by_reads_alone(
    connector: Connector, switches: dict[str, Any], different: dict[str, Any]
) -> None:
    connector.sandbox.seed(40, base_name="News")
    connector.sandbox.switch(**switches)
    assert probe(connector) == PLAIN | different
    assert connector.sandbox.stats()["subscribers"] == 40


@pytest.mark.parametrize(
    ("switches", "different"),
    [
        ({}, {}),
        ({"duplicates": "reject_409"}, {"duplicates": "refused 409"}),
        ({"duplicates": "upsert"}, {"duplicates": "same id"}),
        ({"error_status": 422, "error_shape": "empty"}, {"error_shape": "422 without words"}),
        ({"base_names": "folded"}, {"base_names": "folded"}),
    ],
    ids=str,
)
def test_a_habit_of_creates_is_seen_by_a_few_of_them(
    connector: Connector, switches: dict[str, Any], different: dict[str, Any]
) -> None:
    connector.sandbox.switch(**switches)
    seen = probe_by_creates(connector)
    assert 0 <= seen.pop("visibility_lag") < 1
    assert seen == PLAIN_CREATES | different
    made = [event["subscriber"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created"]
    assert 1 <= len([each for each in made if each["FirstName"] == "connector-probe" and not each["IsActive"]]) <= 4


def test_a_lag_is_kept_for_the_loads_of_the_account_and_shown_with_its_age(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(list_lag_ms=1500)
    assert 1.4 < probe_by_creates(connector)["visibility_lag"] < 4
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as ledger, ledger:
        assert ledger.execute("SELECT largest_lag_s FROM account").fetchone()[0] > 1.4
        ledger.execute("UPDATE habit SET seen_at = seen_at - 3 * 86400")
    shown = connector.run("probe").stdout
    assert "visibility_lag  sure      a create showed on the list after" in shown
    assert shown.count("(now)") == len(PLAIN)
    assert shown.count("(3 d ago)") == 4


def test_a_token_that_is_refused_ends_a_probe(connector: Connector) -> None:
    assert connector.run_json("probe", environ={"CONNECTOR_TOKEN": "wrong"}).is_refused
    assert connector.sandbox.stats()["subscribers"] == 0
