"""Filters that the connector itself applies to the rows of the service."""

from typing import Any

from connector.listing.trials import build_row_matcher
from connector.service.wire import read_field


def test_a_filter_matches_rows_with_the_requested_values() -> None:
    cases: list[tuple[dict[str, object], dict[str, Any], bool]] = [
        ({"email": "Ann@Example.com"}, {"Email": "ann@example.com"}, True),
        ({"email": "ann@example.com"}, {"Email": " ann@example.com"}, False),
        ({"email": " ann@example.com"}, {"Email": " ann@example.com"}, True),
        ({"email": "ann@example.com"}, {"Email": "joann@example.com"}, False),
        ({"email": "ann@example.com"}, {}, False),
        ({"client_user_id": "7"}, {"ClientUserId": " 7"}, False),
        ({"client_user_id": "a"}, {"ClientUserId": "A"}, False),
        ({"client_user_id": "7"}, {"ClientUserId": 7}, False),
        ({"base_id": 7}, {"Base": {"Id": 7}}, True),
        ({"base_id": 7}, {"Base": {"Id": 8}}, False),
        ({"base_id": 1}, {"Base": {"Id": True}}, False),
        ({"base_id": 7}, {"Base": None}, False),
        ({"is_active": False}, {"IsActive": False}, True),
        ({"is_active": False}, {}, True),
        ({"is_active": True}, {}, False),
        ({"gender": ""}, {}, True),
        ({"gender": ""}, {"Gender": None}, True),
        ({"gender": ""}, {"Gender": "male"}, False),
        ({"first_name": "Ann"}, {"FirstName": "Anna"}, False),
        ({"first_name": "Ann", "last_name": "Lee"}, {"FirstName": "Ann", "LastName": "Lee"}, True),
        ({"first_name": "Ann", "last_name": "Lee"}, {"FirstName": "Ann", "LastName": "Li"}, False),
    ]
    for filters, subscriber_object, is_match in cases:
        match_rows = build_row_matcher(filters)

        assert match_rows is not None
        assert match_rows(lambda name: [read_field(subscriber_object, name)]).tolist() == [is_match]  # noqa: B023 - called at once


def test_a_query_without_filters_has_no_row_matcher() -> None:
    assert build_row_matcher({}) is None
