"""Reads the service's list: its pages, whether filters work, and whether the list is cut off."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.listing.columns import Columns, build_columns, decode_page, open_columns, parse_columns
    from connector.listing.evidence import FindLacking, Suspect, gather_evidence
    from connector.listing.filters import Ask, make_up_value
    from connector.listing.pages import WIRE, Form, ListFailed, PageSink, fetch_page, try_page
    from connector.listing.reader import LIST_CONNECTIONS, Progress, list_filters, read_list

__all__ = [
    "LIST_CONNECTIONS", "WIRE", "Ask", "Columns", "FindLacking", "Form", "ListFailed", "PageSink", "Progress",
    "Suspect", "build_columns", "decode_page", "fetch_page", "gather_evidence", "list_filters", "make_up_value",
    "open_columns", "parse_columns", "read_list", "try_page",
]  # fmt: skip

__getattr__ = open_face(
    __name__,
    {
        "columns": ("Columns", "build_columns", "decode_page", "open_columns", "parse_columns"),
        "evidence": ("FindLacking", "Suspect", "gather_evidence"),
        "filters": ("Ask", "make_up_value"),
        "pages": ("WIRE", "Form", "ListFailed", "PageSink", "fetch_page", "try_page"),
        "reader": ("LIST_CONNECTIONS", "Progress", "list_filters", "read_list"),
    },
)  # fmt: skip
