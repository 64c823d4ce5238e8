"""The three operations of the service as coroutines. The coroutines return values, and raise no error for an answer of
the service.

One call makes one attempt. The retrier decides whether to make another attempt.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sized
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

import orjson

from connector.clock import Clock, system_clock
from connector.pace.rate import RateController
from connector.pace.refusals import TemporaryRefusals
from connector.service.answers import (
    build_message_mask,
    build_refusal_kind,
    parse_create_answer,
    parse_send_answer,
    parse_wire_page,
)
from connector.service.retry import RequestCounts
from connector.service.settings import Service
from connector.service.transport import open_transport
from connector.service.wire import (
    MAX_LIMIT,
    OPERATIONS,
    SEND_PATH,
    AmbiguousResult,
    CreatedAnswer,
    EmailAccepted,
    ListPage,
    ListQuery,
    MaskMessage,
    NotSent,
    Operation,
    RawAnswer,
    Refused,
    Request,
    Rows,
    build_create_request,
    build_list_request,
    is_rate_limit,
    is_rate_limited,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

_ALLOWED_PAGE_LIMITS = range(1, MAX_LIMIT + 1)

_LARGEST_PAGE_LIMIT_TO_INCREASE = 50
"""A repeated list request has a different page limit, so that no cache answers. A limit up to 50 is increased, and
a larger limit is reduced."""

MAX_PAUSE_S = 600.0
"""The longest pause (Retry-After) for which a run waits. If the pause is longer, the run ends."""


class ListAnswerParser(Protocol[Rows]):
    """A function that parses a page of the list. The function returns the rows in one form, like `RowForm.parse`."""

    async def __call__(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask_message: MaskMessage
    ) -> ListPage[Rows] | Refused | AmbiguousResult:
        """Return the parsed page, the refusal, or the ambiguous answer. Raises no error."""


class RequestSender(Protocol):
    """An object that sends single requests: a pool of connections, or the network of a simulation."""

    async def send(self, request: Request) -> RawAnswer | NotSent | AmbiguousResult:
        """Make one attempt to send the request. Raises only the cancellation of its task."""


class Client:
    """The three operations of service-api.md over one pool of connections. `open_client` creates the client.

    Answers ask for pauses (Retry-After). `paused_until` (monotonic) is the latest end of a pause, and no request leaves
    before this time. List requests wait in this class for `rate`. Creates and emails share the rate, but wait in
    `connector.limiter` before they reach this class. `temporary_refusals` has the kinds of refusals that creates got
    and that may be temporary. If a request for a page is refused for one of these reasons, the page is requested again.
    """

    def __init__(
        self, transport: RequestSender, mask_message: MaskMessage, clock: Clock, rate: RateController | None = None
    ) -> None:
        self._transport = transport
        self.rate = rate or RateController()
        self.temporary_refusals = TemporaryRefusals()
        self._mask = mask_message
        self._clock = clock
        self._used_limits: dict[ListQuery, set[int]] = {}  # for each query, the limits that were already sent with it
        self.paused_until = float("-inf")
        self.counts: dict[Operation, RequestCounts] = {operation: RequestCounts() for operation in OPERATIONS}

    @property
    def is_paused(self) -> bool:
        """Whether the service has asked for a pause that has not ended."""
        return self.paused_until > self._clock.monotonic()

    async def create_subscriber(self, body: bytes) -> CreatedAnswer | Refused | AmbiguousResult | NotSent:
        """Create one subscriber (service-api.md 4.2). `body` is a result of `encode_subscriber`."""
        return await self._send_and_parse(build_create_request(body), parse_create_answer)

    async def list_subscribers(
        self,
        query: ListQuery,
        parse: ListAnswerParser[Rows] = parse_wire_page,  # type: ignore[assignment] # the only form with a default
    ) -> ListPage[Rows] | Refused | AmbiguousResult | NotSent:
        """Read one page of the list (service-api.md 4.3), with its subscribers in the form that `parse` returns.

        A repeated request gets another limit, so that no cache returns an earlier answer."""
        if (not_sent_answer := await self._wait_until_pause_ends()) is not None:
            return not_sent_answer
        if (wait_s := self.rate.reserve_departure(self._clock.monotonic())) > 0:
            await self._clock.sleep(wait_s)
            if (not_sent_answer := await self._wait_until_pause_ends()) is not None:  # a pause may have begun meanwhile
                return not_sent_answer
        sent_at = self._clock.monotonic()
        raw_answer = await self._send_request(build_list_request(self._vary_limit(query)))
        if not isinstance(raw_answer, RawAnswer):
            return raw_answer
        answered_at = self._clock.monotonic()
        answer = await parse(
            raw_answer.status, raw_answer.headers, raw_answer.body, self._clock.now(), mask_message=self._mask
        )
        self._count_answer("list", answer)
        if isinstance(answer, ListPage) and logger.isEnabledFor(logging.DEBUG):
            log_values = {"offset": query.offset, "rows": len(cast(Sized, answer.subscribers))}
            log_format = "page: %(rows)d rows at offset %(offset)d, TotalCount %(total_count)s"
            logger.debug(log_format, log_values | {"total_count": answer.total_count})
        if isinstance(answer, Refused):
            is_kind_possibly_temporary = self.temporary_refusals.may_be_temporary(
                build_refusal_kind(answer.status, answer.message)
            )
            # A refusal with a 4xx status may be the service's answer to a page past the end of the list. A refusal with
            # a 2xx status has another reason, which may be temporary.
            answer = replace(answer, may_be_temporary=is_kind_possibly_temporary or answer.status < 300)
        if is_rate_limited(answer):
            self.rate.record_refusal(sent_at, answered_at, answer.retry_after_s)
        else:
            self.rate.record_served_request(sent_at, answered_at)
        return answer

    def _vary_limit(self, query: ListQuery) -> ListQuery:
        """Return the query with a limit that no earlier request with this query had, if such a limit is left."""
        limit, used_limits = query.limit, self._used_limits.setdefault(replace(query, limit=1), set())
        limit_step = -1 if limit > _LARGEST_PAGE_LIMIT_TO_INCREASE else 1
        while limit in used_limits and limit + limit_step in _ALLOWED_PAGE_LIMITS:
            limit += limit_step
        used_limits.add(limit)
        return query if limit == query.limit else replace(query, limit=limit)

    async def send_email(self, body: bytes) -> EmailAccepted | Refused | AmbiguousResult | NotSent:
        """Send one email (service-api.md 4.1). `body` is a result of `connector.mail.message.encode_email`."""
        return await self._send_and_parse(Request("send", "POST", SEND_PATH, (), body), parse_send_answer)

    async def _send_and_parse(self, request: Request, parse: Callable[..., T]) -> T | NotSent | AmbiguousResult:
        raw_answer = await self._send_request(request)
        if not isinstance(raw_answer, RawAnswer):
            return raw_answer
        answer = parse(
            raw_answer.status, raw_answer.headers, raw_answer.body, self._clock.now(), mask_message=self._mask
        )
        self._count_answer(request.operation, answer)
        return answer

    async def _send_request(self, request: Request) -> RawAnswer | NotSent | AmbiguousResult:
        if (not_sent_answer := await self._wait_until_pause_ends()) is not None:
            return not_sent_answer
        self.counts[request.operation].sent += 1
        sent_at = self._clock.monotonic()
        raw_answer = await self._transport.send(request)
        answered_at = self._clock.monotonic()
        if logger.isEnabledFor(logging.DEBUG):
            _log_request(request, raw_answer, answered_at - sent_at)
        if not isinstance(raw_answer, RawAnswer):
            self.counts[request.operation].failed += 1
        return raw_answer

    async def _wait_until_pause_ends(self) -> NotSent | None:
        """Wait for the end of the pause that the service asked for. Return NotSent if the pause is too long."""
        while (wait_s := self.paused_until - self._clock.monotonic()) > 0:
            if wait_s > MAX_PAUSE_S:
                return NotSent(f"the service asked for a pause (Retry-After) that lasts another {wait_s:,.0f} s")
            await self._clock.sleep(wait_s)
        return None

    def _count_answer(self, operation: Operation, answer: object) -> None:
        if not isinstance(answer, Refused | AmbiguousResult):
            return
        result_name = "refused" if isinstance(answer, Refused) else "unclear"
        log_values = {"operation": operation, "status": answer.status, "result": result_name}
        logger.info("refusal: %(operation)s %(result)s, status %(status)s", log_values)
        if is_rate_limit(answer.status, answer.retry_after_s):
            self.counts[operation].limited += 1
        elif isinstance(answer, AmbiguousResult):
            self.counts[operation].failed += 1
        if answer.retry_after_s:
            logger.info("pause: the service sent Retry-After: %(seconds)g s", {"seconds": answer.retry_after_s})
            self.paused_until = max(self.paused_until, self._clock.monotonic() + answer.retry_after_s)


def _log_request(request: Request, raw_answer: RawAnswer | NotSent | AmbiguousResult, seconds: float) -> None:
    """Log the request with the names of its fields. Leave out the values, so that the line can be copied into a bug
    report."""
    status = "not sent" if isinstance(raw_answer, NotSent) else raw_answer.status or "no answer"
    log_values = {"method": request.method, "path": request.path, "status": status, "ms": round(1000 * seconds, 1)}
    field_names = [name for name, _ in request.query]
    body: dict[str, Any] = {} if request.body is None else orjson.loads(request.body)
    for key, value in body.items():  # log the names of the two upper levels of the body, for example `Subscriber.Email`
        field_names += [f"{key}.{name}" for name in value] if isinstance(value, dict) and value else [key]
    log_format = "request: %(method)s %(path)s, status %(status)s after %(ms)s ms, fields %(fields)s"
    logger.debug(log_format, log_values | {"fields": ", ".join(field_names)})


@asynccontextmanager
async def open_client(
    service: Service, *, clock: Clock | None = None, rate: RateController | None = None
) -> AsyncIterator[Client]:
    """Yield a client of the service for the `async with` block. `clock` times the client's waits.

    The client masks the token in messages of the service.
    """
    clock, mask_message = clock or system_clock(), build_message_mask(service.token.reveal())
    async with open_transport(service) as transport:
        yield Client(transport, mask_message, clock, rate)
