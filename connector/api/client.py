"""The service's three operations as coroutines that answer with a value and raise for no answer.

One call is one attempt; whether there is another is the retrier's to decide.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from connector.api.masking import build_mask
from connector.api.service import Service
from connector.api.transport import RawAnswer, open_transport
from connector.protocol import (
    OPERATIONS,
    Accepted,
    Ambiguous,
    Created,
    Listed,
    ListQuery,
    Mask,
    Message,
    NotSent,
    Operation,
    Refused,
    Request,
    build_create,
    build_list,
    build_send,
    parse_created,
    parse_listed,
    parse_sent,
)


class Sender(Protocol):
    """What a client needs of a transport; simulations bring one of their own."""

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """Make one attempt; raises nothing but the cancellation that it is given."""


@dataclass(slots=True)
class Counts:
    """Attempts of one operation: all that were `sent` out, those `retried`, the 429s, and those that `failed`.

    failed: neither success nor refusal. `retried` is raised by the retrier.
    """

    sent: int = 0
    retried: int = 0
    limited: int = 0
    failed: int = 0


class Client:
    """The three operations of api.md over one pool of connections; made by `open_client`."""

    __slots__ = ("_mask", "_now", "_transport", "counts")

    def __init__(self, transport: Sender, mask: Mask, now: Callable[[], datetime]) -> None:
        self._transport = transport
        self._mask = mask
        self._now = now
        self.counts: dict[Operation, Counts] = {operation: Counts() for operation in OPERATIONS}

    async def create_subscriber(self, body: bytes) -> Created | Refused | Ambiguous | NotSent:
        """Create one subscriber (api.md 4.2); `body` as `encode_subscriber` made it."""
        counts = self.counts["create"]
        counts.sent += 1
        raw = await self._transport.send(build_create(body))
        if isinstance(raw, RawAnswer):
            answer = parse_created(raw.status, raw.headers, raw.body, self._now(), mask=self._mask)
            if type(answer) is not Created:
                _count(counts, answer)
            return answer
        counts.failed += 1
        return raw

    async def list_subscribers(self, query: ListQuery) -> Listed | Refused | Ambiguous | NotSent:
        """Read one page of the list (api.md 4.3)."""
        counts = self.counts["list"]
        counts.sent += 1
        raw = await self._transport.send(build_list(query))
        if isinstance(raw, RawAnswer):
            answer = parse_listed(raw.status, raw.headers, raw.body, self._now(), mask=self._mask)
            if type(answer) is not Listed:
                _count(counts, answer)
            return answer
        counts.failed += 1
        return raw

    async def send_email(self, message: Message) -> Accepted | Refused | Ambiguous | NotSent:
        """Send one email (api.md 4.1)."""
        counts = self.counts["send"]
        counts.sent += 1
        raw = await self._transport.send(build_send(message))
        if isinstance(raw, RawAnswer):
            answer = parse_sent(raw.status, raw.headers, raw.body, self._now(), mask=self._mask)
            if type(answer) is not Accepted:
                _count(counts, answer)
            return answer
        counts.failed += 1
        return raw


def _count(counts: Counts, answer: object) -> None:
    if isinstance(answer, Refused):
        counts.limited += answer.status == 429
    else:
        counts.failed += 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def open_client(service: Service, *, now: Callable[[], datetime] = _utc_now) -> AsyncIterator[Client]:
    """A client of the service, for the life of the `async with`; `now` is aware and reads a Retry-After that is a date.

    The service's words are kept without the token, should it be among them in any spelling.
    """
    async with open_transport(service) as transport:
        yield Client(transport, build_mask(service.token.reveal()), now)
