"""One page of the list: fetches it, and defines the forms of its rows and the sinks that receive them.

Loads look subscribers up one by one and read the service's own objects (`WIRE`); exports read columns (`columns`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from typing_extensions import TypeVar

from connector.errors import ConfigurationError, RunAborted
from connector.fields import LARGEST_ID
from connector.paging.overlap import IdArray, Mask
from connector.service.answers import parse_wire_page
from connector.service.client import Client, ParseListed
from connector.service.retry import Retrier
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    UNAUTHORISED,
    Ambiguous,
    ListPage,
    ListQuery,
    Mask as WordMask,
    NotSent,
    Refused,
    Rows,
    WireRows,
    read_field,
    says_limit,
)

_NOT_OF_THE_OFFSET = frozenset({401, 403, 405, 408, 409, 429})
_REDIRECTS = range(300, 400)

NO_WHOLE_ID = (
    "The service listed a subscriber without a whole number as its Id (such as a UUID), and the connector needs whole "
    "numbers: nothing can be loaded, compared or exported. Ask the service's operator for numeric ids."
)


class Form(Protocol[Rows]):
    """One form of rows. All forms return equal values for the same page."""

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: WordMask
    ) -> ListPage[Rows] | Refused | Ambiguous:
        """Return a page of the list, or the meaning of another answer, as `parse_listed` does (service-api.md 4.3)."""

    def read_ids(self, rows: Rows) -> IdArray | None:
        """Return the id of each row, or None if an Id is not a whole number of 64 bits."""

    def keep(self, rows: Rows, kept: Mask) -> Rows:
        """Return the rows that the mask `kept` selects."""

    def read_values(self, rows: Rows, name: str) -> Sequence[Any]:
        """Return the values of one field, one for each row: as received, None if absent or null."""

    def count_values(self, rows: Rows, name: str) -> Mapping[Any, int]:
        """Return the number of rows with each value of one field; None counts the rows without a value."""


class _WireForm:
    """Rows as the service's own objects."""

    parse = staticmethod(parse_wire_page)

    def read_ids(self, rows: WireRows) -> IdArray | None:
        """See `Form`."""
        ids = [row.get("Id") for row in rows]
        if not all(type(each) is int and abs(each) <= LARGEST_ID for each in ids):
            return None
        return np.array(ids, dtype=np.int64)

    def keep(self, rows: WireRows, kept: Mask) -> WireRows:
        """See `Form`."""
        return [row for row, is_kept in zip(rows, kept.tolist(), strict=True) if is_kept]

    def read_values(self, rows: WireRows, name: str) -> Sequence[Any]:
        """See `Form`."""
        return [read_field(row, name) for row in rows]

    def count_values(self, rows: WireRows, name: str) -> Mapping[Any, int]:
        """See `Form`."""
        values = (read_field(row, name) for row in rows)
        return Counter(each if isinstance(each, str | int) else None for each in values)


WIRE: Form[WireRows] = _WireForm()
"""Rows as lists of wire objects."""


RowsTaken = TypeVar("RowsTaken", contravariant=True, default=WireRows)


class PageSink(Protocol[RowsTaken]):
    """Receives the rows of a reading. Only the rows of the last sweep count: another sweep starts over."""

    def start_sweep(self, number: int) -> None:
        """Forget all rows, because sweep `number` (1 = first) begins."""

    def take(self, rows: RowsTaken, /) -> None:
        """Add these subscribers, in the form of the reading. Each subscriber comes once in a sweep."""


class ListFailed(RunAborted):
    """A list request failed after all retries. `status` is the HTTP status (401, 403: the token; 429: any refusal for
    the rate), or None without an answer."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def says_no_more(self) -> bool:
        """Whether the status may mean that the list has no row at the requested offset: 400, 404 and similar ones."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _NOT_OF_THE_OFFSET


class TokenRefusedError(ListFailed, ConfigurationError):
    """The service refused the token at the first request of the run: the configuration is wrong, and nothing was
    done."""


async def try_page(client: Client, retrier: Retrier, query: ListQuery) -> ListPage | None:
    """Return a page, or None if the service does not return it, for a page that the caller can do without. Raises
    TokenRefusedError."""
    try:
        return await fetch_page(client, retrier, query)
    except TokenRefusedError:
        raise
    except ListFailed:
        return None


async def fetch_page(
    client: Client,
    retrier: Retrier,
    query: ListQuery,
    *,
    parse: ParseListed[Rows] = WIRE.parse,  # type: ignore[assignment] # as the client's
) -> ListPage[Rows]:
    """Return one page of the list (service-api.md 4.3), with retries. Raises ListFailed."""
    answer = await retrier.read(lambda: client.list_subscribers(query, parse), client.counts["list"])
    if isinstance(answer, ListPage):
        return answer
    raise _explain(answer, client)


def _explain(answer: Refused | Ambiguous | NotSent, client: Client) -> ListFailed:
    """Return the error for a failed answer: what happened, and what to do next."""
    if not isinstance(answer, NotSent) and says_limit(answer.status, answer.retry_after_s):
        words = f"The service refuses requests for its list for their rate ({answer.status}). Run it again later."
        return ListFailed(words, status=TOO_MANY_REQUESTS)
    if isinstance(answer, NotSent):
        hint = "Check the base URL and the network, and run it again."
        return ListFailed(f"The service cannot be reached for its list: {answer.message}. {hint}")
    is_page = answer.status is not None and 200 <= answer.status < 300
    # A page that cannot be read holds personal data: none of it is shown.
    words = "an answer that is no page of the list" if is_page else answer.message or "no words"
    if isinstance(answer, Refused):
        is_of_token = answer.status in UNAUTHORISED
        hint = "Check the token." if is_of_token else "Check the base URL, or run it again later."
        is_first = sum(each.sent - each.retried for each in client.counts.values()) == 1
        kind = TokenRefusedError if is_of_token and is_first else ListFailed
        return kind(f"The service refused its list ({answer.status}: {words}). {hint}", status=answer.status)
    status = f"status {answer.status}, " if answer.status is not None else ""
    # A redirect is the same at every attempt: the address is another one, or asks for a login.
    hint = "Check the base URL." if answer.status in _REDIRECTS else "Run it again later."
    return ListFailed(f"The service did not give its list ({status}{words}). {hint}", status=answer.status)
