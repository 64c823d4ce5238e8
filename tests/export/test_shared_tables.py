"""One table serves one export: a table of tags, or a target, that another export fills is refused before it is read."""

from dataclasses import replace
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.export import Destination, parse_destination
from connector.export.columns import build_table
from connector.export.exporter import open_writer
from tests.export.people import run_of
from tests.export.test_fitting import refuse
from tests.export.test_modes import day, person, publish, read_tags
from tests.export.warehouses import DATABASES, open_destination, run_sql


@pytest.fixture(params=DATABASES)
def news(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """The table `subscribers`, its tags in `labels`."""
    return open_destination(request, tmp_path, request.param, tags_table="labels")


def test_a_table_of_tags_is_not_shared(news: Destination) -> None:
    publish(news, [person(1)], 1)
    shop = replace(news, table="shop")

    assert "labels holds the tags of subscribers" in refuse(shop)
    publish(replace(shop, tags_table="shop_labels"), [person(2)], 2)
    publish(news, [person(1)], 3)
    assert read_tags(news) == [(1, 1, "a", 3), (1, 2, "b", 3)]


def test_a_table_of_tags_is_free_once_its_owner_is_gone_or_has_another(news: Destination) -> None:
    publish(news, [person(1)], 1)
    publish(replace(news, tags_table="others"), [person(1)], 2)
    publish(replace(news, table="shop"), [person(2)], 3)
    assert read_tags(news) == [(2, 1, "a", 3), (2, 2, "b", 3)]

    assert "labels holds the tags of shop" in refuse(news)
    run_sql(news, "drop table {}shop")
    publish(news, [person(1)], 4)


def test_a_target_is_no_table_of_tags_and_the_other_way_round(news: Destination) -> None:
    publish(news, [person(1)], 1)

    assert "subscribers, which is to hold tags, is one that is exported to" in refuse(
        replace(news, table="shop", tags_table="subscribers")
    )
    assert "labels holds the tags of subscribers" in refuse(replace(news, table="labels", tags_table=None))


def test_of_two_first_exports_the_later_finds_the_tags_taken(news: Destination) -> None:
    """Both had looked before either had written."""
    shop = replace(news, table="shop")
    writer = open_writer(shop)
    writer.start()
    writer.add(build_table([person(2)], run_id="run-2", exported_at=day(2)))
    publish(news, [person(1)], 1)
    with pytest.raises(RunAborted, match="labels holds the tags of subscribers"):
        writer.publish(run_of(1, run_id="run-2", at=day(2)))
    writer.discard()

    assert read_tags(news) == [(1, 1, "a", 1), (1, 2, "b", 1)]
    assert not open_writer(replace(shop, tags_table=None)).has_target


def test_a_line_of_a_run_from_before_tags_were_told_says_nothing(news: Destination) -> None:
    publish(news, [person(1)], 1)
    run_sql(news, "alter table {}_connector_runs drop column tags_table")
    publish(news, [person(1)], 2)

    assert run_sql(news, "select run_id, tags_table from {}_connector_runs order by run_id") == [
        ("run-1", None), ("run-2", "labels"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["_connector_runs", "_Connector_Turns"])
def test_the_connectors_own_tables_are_no_targets(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="as its own"):
        parse_destination(f"sqlite:///{tmp_path}/w.db", table=name)
    with pytest.raises(ConfigurationError, match="as its own"):
        parse_destination(f"sqlite:///{tmp_path}/w.db", tags_table=name)
