"""The three operations of the service as coroutines. They return values, and raise no error for an answer of the
service.

One call makes one attempt. The retrier decides whether to make another attempt.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

import orjson

from connector.clock import Clock, system_clock
from connector.pace.rate import RateController
from connector.pace.refusals import PassingRefusals
from connector.service.answers import build_mask, parse_created, parse_sent, parse_wire_page, refusal_kind
from connector.service.request_counts import RequestCounts, TimelineReport
from connector.service.settings import Service
from connector.service.transport import open_transport
from connector.service.wire import (
    MAX_LIMIT,
    OPERATIONS,
    Accepted,
    Ambiguous,
    Created,
    ListPage,
    ListQuery,
    Mask,
    NotSent,
    Operation,
    RawAnswer,
    Refused,
    Request,
    Rows,
    build_create,
    build_list,
    build_send,
    is_limited,
    says_limit,
)

# The timeline of requests


_FIRST_WIDTH_S = 0.25  # width of a bucket at the beginning; short enough for a run of ten seconds
_MAX_BUCKETS = 120  # a picture on a phone cannot show more buckets


@dataclass(slots=True)
class _Bucket:
    """The sums of one bucket. `sent` counts the requests that were answered or have failed, `limited` the requests that
    were refused for their rate, and `failed` the requests without success and without refusal. `trips_s` is the sum of
    all round trips. `paused_s` is the time of pauses for which the service asked."""

    sent: int = 0
    limited: int = 0
    failed: int = 0
    trips_s: float = 0.0
    paused_s: float = 0.0

    def add(self, other: "_Bucket") -> None:
        self.sent += other.sent
        self.limited += other.limited
        self.failed += other.failed
        self.trips_s += other.trips_s
        self.paused_s += other.paused_s


class Timeline:
    """The requests of one client since `began_at` (monotonic)."""

    def __init__(self, began_at: float) -> None:
        self._began_at, self._width_s = began_at, _FIRST_WIDTH_S
        self._closed_buckets: list[_Bucket] = []
        self._open_bucket = _Bucket()
        self._ends_at = began_at + _FIRST_WIDTH_S
        # (start, end) of the pauses that have not ended before the open bucket begins
        self._pauses: list[tuple[float, float]] = []

    def record_answer(self, sent_at: float, now: float) -> None:
        """Count a request that left at `sent_at`. It was answered or failed at `now`."""
        if now >= self._ends_at:
            self._close_buckets(now)
        self._open_bucket.sent += 1
        self._open_bucket.trips_s += now - sent_at

    def record_limited(self) -> None:
        """Count a request that was refused for its rate."""
        self._open_bucket.limited += 1

    def record_failed(self) -> None:
        """Count a request that was neither successful nor refused."""
        self._open_bucket.failed += 1

    def record_pause(self, now: float, until: float) -> None:
        """Record that the service asked at `now` for a pause that ends at `until`."""
        began_at = max(now, self._pauses[-1][1]) if self._pauses else now
        if until > began_at:
            self._pauses.append((began_at, until))

    def as_json(self, now: float) -> TimelineReport | None:
        """Return the buckets as columns, or None if there was no request. A bucket lasts `bucket_s` seconds. The last
        bucket may be shorter."""
        if now >= self._ends_at:
            self._close_buckets(now)
        last_bucket = _Bucket()
        last_bucket.add(self._open_bucket)
        last_bucket.paused_s = self._sum_pauses(self._ends_at - self._width_s, now)
        buckets = [*self._closed_buckets, last_bucket]
        if not any(bucket.sent for bucket in buckets):
            return None
        return {
            "bucket_s": self._width_s,
            "seconds": round(now - self._began_at, 3),
            "sent": [bucket.sent for bucket in buckets],
            "limited": [bucket.limited for bucket in buckets],
            "failed": [bucket.failed for bucket in buckets],
            "round_trip_ms": [
                round(1000 * bucket.trips_s / bucket.sent, 1) if bucket.sent else None for bucket in buckets
            ],
            "paused_s": [round(bucket.paused_s, 3) for bucket in buckets],
        }

    def _close_buckets(self, now: float) -> None:
        """Close the buckets that have ended at `now`."""
        while self._ends_at <= now:
            self._open_bucket.paused_s = self._sum_pauses(self._ends_at - self._width_s, self._ends_at)
            self._closed_buckets.append(self._open_bucket)
            self._open_bucket = _Bucket()
            if len(self._closed_buckets) == _MAX_BUCKETS:
                for bucket, next_bucket in zip(self._closed_buckets[::2], self._closed_buckets[1::2], strict=True):
                    bucket.add(next_bucket)
                self._closed_buckets = self._closed_buckets[::2]
                self._width_s *= 2
            self._ends_at = self._began_at + (len(self._closed_buckets) + 1) * self._width_s
        self._pauses = [pause for pause in self._pauses if pause[1] > self._ends_at - self._width_s]

    def _sum_pauses(self, began_at: float, ended_at: float) -> float:
        return sum(
            max(0.0, min(pause_end, ended_at) - max(pause_start, began_at)) for pause_start, pause_end in self._pauses
        )


T = TypeVar("T")

logger = logging.getLogger(__name__)

_ALLOWED_LIMITS = range(1, MAX_LIMIT + 1)

_SMALL_LIMIT = 50
"""The largest limit that is varied by raising. Larger limits are varied by lowering."""

MAX_PAUSE_S = 600.0
"""The longest pause (Retry-After) for which a run waits. If the pause is longer, the run ends."""


class ParseListed(Protocol[Rows]):
    """A parser of pages of the list. It returns the rows in one form, like `Form.parse`."""

    async def __call__(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: Mask
    ) -> ListPage[Rows] | Refused | Ambiguous:
        """Return the meaning of the answer. Raises nothing."""


class RequestSender(Protocol):
    """A sender of single requests: a pool of connections, or the network of a simulation."""

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """Make one attempt. Raises only the cancellation of its task."""


class Client:
    """The three operations of service-api.md over one pool of connections. `open_client` creates the client.

    No request leaves before `quiet_until` (monotonic), the latest end of a pause (Retry-After) for which an answer
    asked. List requests wait for `rate`. Creates and emails share this rate, but their senders do the waiting.
    `passing` has the refusals of creates that may pass. A page that is refused in the same way is read again.
    """

    __slots__ = ("_clock", "_limits", "_mask", "_transport", "counts", "passing", "quiet_until", "rate", "timeline")

    def __init__(self, transport: RequestSender, mask: Mask, clock: Clock, rate: RateController | None = None) -> None:
        self._transport = transport
        self.rate = rate or RateController()
        self.passing = PassingRefusals()
        self._mask = mask
        self._clock = clock
        self._limits: dict[ListQuery, set[int]] = {}  # the limits that were already sent with each query
        self.quiet_until = float("-inf")
        self.timeline = Timeline(clock.monotonic())
        self.counts: dict[Operation, RequestCounts] = {operation: RequestCounts() for operation in OPERATIONS}

    @property
    def is_quiet(self) -> bool:
        """Whether the service has asked for a pause that has not ended."""
        return self.quiet_until > self._clock.monotonic()

    async def create_subscriber(self, body: bytes) -> Created | Refused | Ambiguous | NotSent:
        """Create one subscriber (service-api.md 4.2). `body` is a result of `encode_subscriber`."""
        return await self._ask("create", build_create(body), parse_created)

    async def list_subscribers(
        self,
        query: ListQuery,
        parse: ParseListed[Rows] = parse_wire_page,  # type: ignore[assignment] # the only form with a default
    ) -> ListPage[Rows] | Refused | Ambiguous | NotSent:
        """Read one page of the list (service-api.md 4.3), with its subscribers in the form that `parse` returns.

        A repeated request gets another limit, so that no cache returns an earlier answer."""
        if (not_sent := await self._wait_for_pause()) is not None:
            return not_sent
        if (wait_s := self.rate.reserve(self._clock.monotonic())) > 0:
            await self._clock.sleep(wait_s)
            if (not_sent := await self._wait_for_pause()) is not None:  # a pause may have begun meanwhile
                return not_sent
        sent_at = self._clock.monotonic()
        raw_answer = await self._send(self.counts["list"], build_list(self._vary_limit(query)))
        if isinstance(raw_answer, RawAnswer):
            answered_at = self._clock.monotonic()
            answer = await parse(
                raw_answer.status, raw_answer.headers, raw_answer.body, self._clock.now(), mask=self._mask
            )
            self._count("list", answer)
            if isinstance(answer, ListPage) and logger.isEnabledFor(logging.DEBUG):
                values = {"offset": query.offset, "rows": len(cast(Sized, answer.subscribers))}
                log_format = "page: %(rows)d rows at offset %(offset)d, TotalCount %(total_count)s"
                logger.debug(log_format, values | {"total_count": answer.total_count})
            if isinstance(answer, Refused):
                is_known_kind = self.passing.may_pass(refusal_kind(answer.status, answer.message))
                # A refusal with a 2xx status may pass, because the offset is not its cause.
                answer = replace(answer, may_pass=is_known_kind or answer.status < 300)
            if is_limited(answer):
                self.rate.record_refused(sent_at, answered_at, answer.retry_after_s)
            else:
                self.rate.record_served(sent_at, answered_at)
            return answer
        return raw_answer

    def _vary_limit(self, query: ListQuery) -> ListQuery:
        """Return the query with a limit that was not sent with this query before."""
        limit, used_limits = query.limit, self._limits.setdefault(replace(query, limit=1), set())
        step = -1 if limit > _SMALL_LIMIT else 1
        while limit in used_limits and limit + step in _ALLOWED_LIMITS:
            limit += step
        used_limits.add(limit)
        return query if limit == query.limit else replace(query, limit=limit)

    async def send_email(self, body: bytes) -> Accepted | Refused | Ambiguous | NotSent:
        """Send one email (service-api.md 4.1). `body` is a result of `connector.mail.message.encode_email`."""
        return await self._ask("send", build_send(body), parse_sent)

    async def _ask(self, operation: Operation, request: Request, parse: Callable[..., T]) -> T | NotSent | Ambiguous:
        raw_answer = await self._send(self.counts[operation], request)
        if not isinstance(raw_answer, RawAnswer):
            return raw_answer
        answer = parse(raw_answer.status, raw_answer.headers, raw_answer.body, self._clock.now(), mask=self._mask)
        self._count(operation, answer)
        return answer

    async def _send(self, counts: RequestCounts, request: Request) -> RawAnswer | NotSent | Ambiguous:
        if (not_sent := await self._wait_for_pause()) is not None:
            return not_sent
        counts.sent += 1
        sent_at = self._clock.monotonic()
        raw_answer = await self._transport.send(request)
        answered_at = self._clock.monotonic()
        self.timeline.record_answer(sent_at, answered_at)
        if logger.isEnabledFor(logging.DEBUG):
            _log_request(request, raw_answer, answered_at - sent_at)
        if not isinstance(raw_answer, RawAnswer):
            counts.failed += 1
            self.timeline.record_failed()
        return raw_answer

    async def _wait_for_pause(self) -> NotSent | None:
        """Wait for the end of the pause that the service asked for. Return NotSent if the pause is too long."""
        while (wait_s := self.quiet_until - self._clock.monotonic()) > 0:
            if wait_s > MAX_PAUSE_S:
                return NotSent(f"the service asked for a pause (Retry-After) that lasts another {wait_s:,.0f} s")
            await self._clock.sleep(wait_s)
        return None

    def _count(self, operation: Operation, answer: object) -> None:
        counts = self.counts[operation]
        if not isinstance(answer, Refused | Ambiguous):
            return
        result_name = "refused" if isinstance(answer, Refused) else "unclear"
        values = {"operation": operation, "status": answer.status, "result": result_name}
        logger.info("refusal: %(operation)s %(result)s, status %(status)s", values)
        if says_limit(answer.status, answer.retry_after_s):
            counts.limited += 1
            self.timeline.record_limited()
        elif isinstance(answer, Ambiguous):
            counts.failed += 1
            self.timeline.record_failed()
        if answer.retry_after_s:
            logger.info("pause: the service sent Retry-After: %(seconds)g s", {"seconds": answer.retry_after_s})
            now = self._clock.monotonic()
            self.quiet_until = max(self.quiet_until, now + answer.retry_after_s)
            self.timeline.record_pause(now, self.quiet_until)


def _log_request(request: Request, raw_answer: RawAnswer | NotSent | Ambiguous, seconds: float) -> None:
    """Log the request with the names of its fields. Leave out the values, so that the line can be copied into a bug
    report."""
    status = "not sent" if isinstance(raw_answer, NotSent) else raw_answer.status or "no answer"
    values = {"method": request.method, "path": request.path, "status": status, "ms": round(1000 * seconds, 1)}
    fields = [name for name, _ in request.query]
    body: dict[str, Any] = {} if request.body is None else orjson.loads(request.body)
    for key, value in body.items():  # names of the two upper levels of the body, for example `Subscriber.Email`
        fields += [f"{key}.{name}" for name in value] if isinstance(value, dict) and value else [key]
    log_format = "request: %(method)s %(path)s, status %(status)s after %(ms)s ms, fields %(fields)s"
    logger.debug(log_format, values | {"fields": ", ".join(fields)})


@asynccontextmanager
async def open_client(
    service: Service, *, clock: Clock | None = None, rate: RateController | None = None
) -> AsyncIterator[Client]:
    """Yield a client of the service for the `async with` block. `clock` times the client's waits.

    Messages of the service are kept without the token.
    """
    clock, mask = clock or system_clock(), build_mask(service.token.reveal())
    async with open_transport(service) as transport:
        yield Client(transport, mask, clock, rate)
