"""Reads before a campaign who is inactive in the service, and whose activity the list does not show.

The interface document has IsActive in each row, and false as its default. A service may leave the field out, or write
a form that nobody reads. A missing IsActive is false only if the filter IsActive agrees. Otherwise nobody knows whether
the subscriber has unsubscribed, and the subscriber gets no email.
"""

from dataclasses import dataclass, field

from connector.clock import Clock
from connector.control import Stop
from connector.errors import ConfigurationError, RunAborted
from connector.listing.access import shows_identity
from connector.listing.controls import is_missing_false
from connector.listing.pages import ListFailed, fetch_page
from connector.listing.reader import read_list
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import LARGEST_PAGE, ListQuery, WireRows
from connector.subscribers.identity import digest_identity
from connector.subscribers.suppression import InactiveIdentities

_UNREADABLE = (
    "No row of the service's list shows an IsActive that can be read, so nothing tells who has unsubscribed. Nothing "
    "was sent. Remove the people who have unsubscribed from the source, or name them in suppress. Then set "
    "skip_inactive: false in the job"
)
_NOBODY_KNOWN = (
    "Nothing was sent, because people who have unsubscribed could get this email. To send without reading the list, "
    "set skip_inactive: false in the job"
)


@dataclass(frozen=True, slots=True)
class ListedActivity:
    """The addresses that the service lists as inactive, and those that it lists without a readable IsActive."""

    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)
    unclear: InactiveIdentities = field(default_factory=InactiveIdentities)


class _Sink:
    """Takes pages of the list. Rows of an earlier sweep count, too: an address that was inactive a moment ago gets no
    email."""

    def __init__(self) -> None:
        self.inactive, self.unclear = InactiveIdentities(), InactiveIdentities()
        self.has_readable = False  # a row has shown IsActive as a boolean
        self.has_unclear = False  # a row has shown no IsActive, or a form that nobody reads
        self.has_email = self.has_rows = False  # rows that are not active, and whether one of them has shown its email

    def start_sweep(self, number: int) -> None:
        """Keep what was noted."""

    def take(self, rows: WireRows) -> None:
        """Note the addresses of the rows that do not say active."""
        for row in rows:
            is_active = row.get("IsActive")
            self.has_readable |= isinstance(is_active, bool)
            self.has_unclear |= not isinstance(is_active, bool)
            if is_active is True:
                continue
            self.has_rows = True
            if shows_identity(row, "email"):
                self.has_email = True
                noted = self.inactive if is_active is False else self.unclear
                noted.add(digest_identity("email", row["Email"]))


async def read_activity(client: Client, clock: Clock, stop: Stop) -> ListedActivity:
    """Return who is inactive in the service. Raise RunAborted if the list is incomplete or shows no email, and
    ConfigurationError if no row of the list shows an IsActive that can be read."""
    sink, retrier = _Sink(), Retrier()

    async def read_all(query: ListQuery) -> None:
        reading = read_list(client, retrier, query, sink, now=clock.now, monotonic=clock.monotonic)
        certificate = await stop.until_stopped(reading)
        if not certificate.is_complete:
            raise RunAborted(
                f"The list of inactive subscribers is incomplete ({certificate.reason.value}). {_NOBODY_KNOWN}"
            )

    async def fetch(*, is_active: bool | None) -> WireRows:
        query = ListQuery(limit=LARGEST_PAGE, is_active=is_active)
        return (await stop.until_stopped(fetch_page(client, retrier, query))).subscribers

    inactive_alone = ListQuery(limit=LARGEST_PAGE, is_active=False)
    try:
        sink.take(await fetch(is_active=None))
        if not sink.has_unclear:
            await read_all(inactive_alone)
        if sink.has_unclear:
            inactive_rows, active_rows = await fetch(is_active=False), await fetch(is_active=True)
            sink.take(inactive_rows)
            sink.take(active_rows)
            if is_missing_false(inactive_rows, active_rows):
                await read_all(inactive_alone)
                sink.inactive.update(sink.unclear)
                sink.unclear = InactiveIdentities()
            elif sink.has_readable:
                await read_all(ListQuery(limit=LARGEST_PAGE))
            else:
                raise ConfigurationError(_UNREADABLE)
    except ListFailed as error:
        raise RunAborted(f"{error} {_NOBODY_KNOWN}") from None
    if sink.has_rows and not sink.has_email:
        raise RunAborted(f"The list shows the email of no inactive subscriber. {_NOBODY_KNOWN}")
    return ListedActivity(sink.inactive, sink.unclear)
