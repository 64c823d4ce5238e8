"""Reads the service's list: its pages, whether filters work and it is whole, and which subscribers it shows."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.listing.access import (
        ListAccess,
        ListedSubscriber,
        ListPolicy,
        ListStats,
        LookupKey,
        LookupResult,
        LookupState,
        Sentinel,
        Sentinels,
        Visibility,
        read_visibility,
    )
    from connector.listing.base_list import EmptiedError, ListEnd, Listing, list_base, list_on, sweep_for
    from connector.listing.base_reader import BaseReader, bears_identity
    from connector.listing.columns import Columns, build_columns, decode_page, open_columns, parse_columns
    from connector.listing.evidence import FindLacking, Suspect, gather_evidence
    from connector.listing.filters import Ask, make_up_value
    from connector.listing.lookup import (
        Checked,
        can_tell,
        check_filters,
        count_requests,
        find_visibility,
        has_control,
        look_by_filter,
    )
    from connector.listing.pages import WIRE, Form, ListFailed, PageSink, fetch_page, try_page
    from connector.listing.reader import LIST_CONNECTIONS, Progress, list_filters, read_list
    from connector.listing.requests import Shown, ask, find_shown, look_up, look_up_together, take_survey

__all__ = [
    "LIST_CONNECTIONS", "WIRE", "Ask", "BaseReader", "Checked", "Columns", "EmptiedError", "FindLacking", "Form",
    "ListAccess", "ListEnd", "ListFailed", "ListPolicy", "ListStats", "ListedSubscriber", "Listing", "LookupKey",
    "LookupResult", "LookupState", "PageSink", "Progress", "Sentinel", "Sentinels", "Shown", "Suspect", "Visibility",
    "ask", "bears_identity", "build_columns", "can_tell", "check_filters", "count_requests", "decode_page",
    "fetch_page", "find_shown", "find_visibility", "gather_evidence", "has_control", "list_base", "list_filters",
    "list_on", "look_by_filter", "look_up", "look_up_together", "make_up_value", "open_columns", "parse_columns",
    "read_list", "read_visibility", "sweep_for", "take_survey", "try_page",
]  # fmt: skip

__getattr__ = open_face(
    __name__,
    {
        "access": (
            "ListAccess", "ListPolicy", "ListStats", "ListedSubscriber", "LookupKey", "LookupResult", "LookupState",
            "Sentinel", "Sentinels", "Visibility", "read_visibility",
        ),
        "base_list": ("EmptiedError", "ListEnd", "Listing", "list_base", "list_on", "sweep_for"),
        "base_reader": ("BaseReader", "bears_identity"),
        "columns": ("Columns", "build_columns", "decode_page", "open_columns", "parse_columns"),
        "evidence": ("FindLacking", "Suspect", "gather_evidence"),
        "filters": ("Ask", "make_up_value"),
        "lookup": (
            "Checked", "can_tell", "check_filters", "count_requests", "find_visibility", "has_control",
            "look_by_filter",
        ),
        "pages": ("WIRE", "Form", "ListFailed", "PageSink", "fetch_page", "try_page"),
        "reader": ("LIST_CONNECTIONS", "Progress", "list_filters", "read_list"),
        "requests": ("Shown", "ask", "find_shown", "look_up", "look_up_together", "take_survey"),
    },
)  # fmt: skip
