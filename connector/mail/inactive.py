"""Reads from the list, before a campaign, who is inactive and whose IsActive is missing or unreadable.

The interface document has IsActive in each row, with the default false. A service may omit the field, or write another
type. A missing IsActive means false only if the filter IsActive agrees. Otherwise the subscriber may have unsubscribed,
and gets no email.
"""

from dataclasses import dataclass, field

from connector.clock import Clock
from connector.control import Stop
from connector.errors import ConfigurationError, RunAborted
from connector.listing.access import shows_identity
from connector.listing.controls import is_missing_false
from connector.listing.pages import ListFailed, TokenRefusedError, fetch_page
from connector.listing.reader import read_list
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import LARGEST_PAGE, ListQuery, WireRows
from connector.subscribers.identity import digest_identity
from connector.subscribers.suppression import InactiveIdentities

_UNREADABLE = (
    "No row of the service's list shows an IsActive that can be read, so the list does not show who has unsubscribed. "
    "Nothing was sent. Remove the people who have unsubscribed from the source, or add them to suppress. Then set "
    "skip_inactive: false in the job"
)
_NOTHING_SENT = (
    "Nothing was sent, because people who have unsubscribed could get this email. To send without reading the list, "
    "set skip_inactive: false in the job"
)


@dataclass(frozen=True, slots=True)
class ListedActivity:
    """The addresses that the service lists as inactive, and those that it lists without a readable IsActive."""

    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)
    unclear: InactiveIdentities = field(default_factory=InactiveIdentities)


class _Sink:
    """Collects the addresses of rows that are not active, also from earlier sweeps: an address that was inactive a
    moment ago gets no email."""

    def __init__(self) -> None:
        self.inactive, self.unclear = InactiveIdentities(), InactiveIdentities()
        self.has_readable = False  # whether a row had IsActive as a boolean
        self.has_unclear = False  # whether a row had no IsActive, or one of another type
        self.has_rows = False  # whether a row was not active
        self.has_email = False  # whether such a row had an email

    def start_sweep(self, number: int) -> None:
        """Keep the addresses of earlier sweeps."""

    def take(self, rows: WireRows) -> None:
        """Add the addresses of the rows that are not active."""
        for row in rows:
            is_active = row.get("IsActive")
            self.has_readable |= isinstance(is_active, bool)
            self.has_unclear |= not isinstance(is_active, bool)
            if is_active is True:
                continue
            self.has_rows = True
            if shows_identity(row, "email"):
                self.has_email = True
                identities = self.inactive if is_active is False else self.unclear
                identities.add(digest_identity("email", row["Email"]))


async def read_inactive_addresses(client: Client, clock: Clock, stop: Stop) -> ListedActivity:
    """Return the addresses that are inactive in the service, and those whose IsActive cannot be read.

    Raises RunAborted if the list is incomplete or shows no email, and ConfigurationError if no row of the list has an
    IsActive that can be read, or if the service refuses the token.
    """
    sink, retrier = _Sink(), Retrier()

    async def read_all(query: ListQuery) -> None:
        reading = read_list(client, retrier, query, sink, now=clock.now, monotonic=clock.monotonic)
        certificate = await stop.until_stopped(reading)
        if not certificate.is_complete:
            raise RunAborted(
                f"The list of inactive subscribers is incomplete ({certificate.reason.value}). {_NOTHING_SENT}"
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
    except TokenRefusedError:
        raise
    except ListFailed as error:
        raise RunAborted(f"{error} {_NOTHING_SENT}") from None
    if sink.has_rows and not sink.has_email:
        raise RunAborted(f"The list shows no email address of inactive subscribers. {_NOTHING_SENT}")
    return ListedActivity(sink.inactive, sink.unclear)
