"""Decides when a request may leave (architecture 6).

A request leaves at the pace that the rate controller has found, and within the concurrency limit. No request leaves
while the service has asked for a pause. While the service does not answer, only a single request leaves at a time.
"""

import asyncio
from datetime import timedelta
from math import inf

from connector.control import Stop
from connector.pace.pace import Pace
from connector.service.client import MAX_PAUSE_S, Client
from connector.service.wire import (
    AmbiguousResult,
    CreatedAnswer,
    EmailAccepted,
    NotSent,
    Operation,
    Refused,
    is_rate_limited,
)

_SHORT_WAIT_S = 0.05  # seconds: a wait of at most this time is not interrupted if the run must stop
_SHOWN_WAIT_S = 2.0  # seconds: a longer wait is shown to the user, with its reason
_REQUEST_TIMEOUT_STATUS = 408

Answer = CreatedAnswer | EmailAccepted | Refused | AmbiguousResult | NotSent


class RequestLimiter:
    """The slots for requests. Each request acquires a slot, leaves, and releases the slot. Only one caller at a time
    may wait in `acquire_slot`.

    `pace` belongs to the run. Limiters may share a pace if only one limiter is in use at a time.
    """

    def __init__(self, stop: Stop, client: Client, pace: Pace, operation: Operation) -> None:
        self.counts = client.counts[operation]
        self._stop, self._client = stop, client
        self._rate, self._concurrency = pace.rate, pace.concurrency
        self._breaker = pace.breaker
        self._noun = "create" if operation == "create" else "email"
        self._in_flight_count = 0
        self._may_have_room = asyncio.Event()

    @property
    def max_in_flight(self) -> int:
        """The number of requests that may be in flight at once."""
        return self._concurrency.allowed_count

    async def acquire_slot(self) -> bool:
        """Wait for a slot. Return False, without a slot, if the run must stop."""
        while not self._stop.is_stopping:
            wait_s = self._admit_or_find_wait()
            if wait_s <= 0:
                return True
            if wait_s == inf:
                self._may_have_room.clear()
                await self._may_have_room.wait()
            elif wait_s <= _SHORT_WAIT_S:
                await self._stop.clock.sleep(wait_s)
            elif wait_s <= _SHOWN_WAIT_S:
                await self._stop.sleep(wait_s)
            else:
                await self._stop.wait(wait_s, self._explain_wait())
        return False

    def try_to_acquire_slot(self) -> bool:
        """Acquire a slot if a request may leave now. Return whether a slot was acquired."""
        return not self._stop.is_stopping and self._admit_or_find_wait() <= 0

    def release_slot(self) -> None:
        """Release the slot. Only `wake_waiting_caller` wakes a caller that waits for a slot."""
        self._in_flight_count -= 1

    def cancel_slot(self) -> None:
        """Release the slot of a request that was not sent."""
        self._breaker.record_inconclusive_attempt(self._stop.clock.monotonic())
        self.release_slot()

    def wake_waiting_caller(self) -> None:
        """Wake the caller that waits in `acquire_slot`, if a slot is free."""
        if self._in_flight_count < self._concurrency.allowed_count:
            self._may_have_room.set()

    def record_answer(self, answer: Answer, sent_at: float) -> None:
        """Record the answer to an attempt that left at `sent_at` (monotonic)."""
        now = self._stop.clock.monotonic()
        if is_rate_limited(answer):
            self._record_rate_refusal(answer, sent_at, now)
            return
        if isinstance(answer, AmbiguousResult | NotSent) and _is_failure(answer):
            self._record_failure(answer, sent_at, now)
        else:
            self._breaker.record_answer()
        if isinstance(answer, EmailAccepted) or (not isinstance(answer, NotSent) and answer.status is not None):
            self._rate.record_served_request(sent_at, now)
        if isinstance(answer, CreatedAnswer | EmailAccepted):
            self._concurrency.record_answer(sent_at, now, self._in_flight_count)

    def record_no_answer(self, sent_at: float) -> None:
        """Record that the run gave up an attempt that left at `sent_at` (monotonic). This attempt shows nothing about
        the service."""
        self._breaker.record_inconclusive_attempt(sent_at)

    def is_pausing(self, now: float) -> bool:
        """Return whether the service has asked for a pause that has not ended at `now` (monotonic)."""
        return self._client.paused_until > now

    async def sleep_before_retry(self, deadline: float, seconds: float) -> bool:
        """Wait for `seconds`, and then until the pace allows a request. Return whether the request may be sent again.

        Return False if the run must stop, or if `deadline` (monotonic) has passed. Also return False if the service
        has asked for a pause, or if the breaker is open.
        """
        stop = self._stop
        may_continue = await stop.sleep(seconds)
        while may_continue and not self._breaker.is_open:
            now = stop.clock.monotonic()
            if self.is_pausing(now) or now > deadline:
                return False
            if (wait_s := self._rate.admit_or_compute_wait(now)) <= 0:
                return True
            may_continue = await stop.sleep(wait_s)
        return False

    def _admit_or_find_wait(self) -> float:
        """Return 0 if a slot was acquired, so that a request must leave now. Else return the seconds to wait, or inf if
        the caller must wait for the next answer."""
        if self._in_flight_count >= self._concurrency.allowed_count:
            return inf
        now = self._stop.clock.monotonic()
        pause_s = self._client.paused_until - now
        if pause_s > MAX_PAUSE_S:
            pause_ends_at = self._stop.clock.now() + timedelta(seconds=pause_s)
            self._stop.request_stop(
                f"the service sent Retry-After: {pause_s:,.0f} s; run again after {pause_ends_at:%Y-%m-%d %H:%M} UTC"
            )
        if pause_s > 0:
            return pause_s
        wait_s = self._breaker.compute_wait_s(now) or self._rate.admit_or_compute_wait(now)
        if wait_s <= 0:
            self._breaker.record_departure(now)
            self._in_flight_count += 1
        return wait_s

    def _explain_wait(self) -> str:
        if self.is_pausing(self._stop.clock.monotonic()):
            return "the service has asked for a pause"
        if self._breaker.is_open:
            return f"the service accepts no {self._noun}s; the run tries a single {self._noun} next"
        return f"the run sends the next {self._noun} at the rate that the service allows"

    def _record_rate_refusal(self, answer: Refused | AmbiguousResult, sent_at: float, now: float) -> None:
        is_probe, may_be_temporary = self._breaker.is_open, isinstance(answer, Refused) and answer.may_be_temporary
        if may_be_temporary:
            # Many failures in a row open the breaker, so that only single probes leave.
            self._breaker.record_failure(sent_at, now)
        else:
            self._breaker.record_inconclusive_attempt(sent_at)
        # A refused probe says nothing about the rate. The service still refuses all requests.
        if not (is_probe and may_be_temporary):
            self._rate.record_refusal(sent_at, now, answer.retry_after_s)
        if self._breaker.record_rate_limited_request(now):
            self._stop.request_stop(
                f"the service kept refusing {self._noun}s (last answer: status {answer.status}): run again later"
            )

    def _record_failure(self, answer: AmbiguousResult | NotSent, sent_at: float, now: float) -> None:
        self._breaker.record_failure(sent_at, now)
        if self._breaker.has_given_up(now):
            self._stop.request_stop(
                f"the service has answered no {self._noun} for a minute (last: {answer.message}): "
                "run again in some minutes"
            )


def _is_failure(answer: AmbiguousResult | NotSent) -> bool:
    """Return whether the service could not be reached or has failed. A status below 500, except 408, is about the
    request, and shows that the service works."""
    if isinstance(answer, NotSent) or answer.status is None:
        return True
    return answer.status >= 500 or answer.status == _REQUEST_TIMEOUT_STATUS
