"""When a request may leave: at the pace that was found, no more at once than the service works on, and not while it has
asked for a pause or does not answer (architecture 6).
"""

import asyncio
from datetime import timedelta
from math import inf

from connector.control import Stop
from connector.pace.pace import Pace
from connector.service.client import LONGEST_PAUSE_S, Client
from connector.service.wire import Accepted, Ambiguous, Created, NotSent, Operation, Refused, is_limited

_SHORT_WAIT_S = 0.05  # is slept through; whether the run is to stop is seen after it
_WORTH_TELLING_S = 2.0
_REQUEST_TIMEOUT = 408
_WORDS = {"create": "create", "send": "email", "list": "page"}

Answer = Created | Accepted | Refused | Ambiguous | NotSent


class RequestLimiter:
    """Each request acquires a place, leaves, and releases it; one at a time may wait to acquire.

    What was found of the pace is the run's, and may be shared by limiters of which one at a time is in use.
    """

    def __init__(self, control: Stop, client: Client, pace: Pace, operation: Operation) -> None:
        self.counts = client.counts[operation]
        self._control, self._client = control, client
        self._rate, self._concurrency = pace.rate, pace.concurrency
        self._breaker, self._patience = pace.breaker, pace.patience
        self._word = _WORDS[operation]
        self._under_way = 0
        self._left = asyncio.Event()

    @property
    def allowed(self) -> int:
        """How many may be under way at once."""
        return self._concurrency.allowed

    async def acquire(self) -> bool:
        """Wait for a place; False, and no place is taken, when the run is to stop."""
        while not self._control.is_stopping:
            wait_s = self._take_place()
            if wait_s <= 0:
                return True
            if wait_s < inf:
                await self._wait(wait_s)
            else:
                self._left.clear()
                await self._left.wait()
        return False

    def acquire_now(self) -> bool:
        """Take a place if one more may leave at once."""
        return not self._control.is_stopping and self._take_place() <= 0

    def release(self) -> None:
        """Give the place back; a request that waits for it is woken by `note_room`."""
        self._under_way -= 1

    def cancel(self) -> None:
        """Give the place back without having sent anything."""
        self._breaker.note_inconclusive(self._control.clock.monotonic())
        self.release()

    def note_room(self) -> None:
        """Wake the request that waits for a place, if there is one."""
        if self._under_way < self._concurrency.allowed:
            self._left.set()

    def note(self, answer: Answer, sent_at: float) -> None:
        """Note the answer to an attempt that left at `sent_at` (monotonic)."""
        now = self._control.clock.monotonic()
        if is_limited(answer):
            self._note_limited(answer, sent_at, now)
            return
        if isinstance(answer, Ambiguous | NotSent) and _is_failure(answer):
            self._note_failure(answer, sent_at, now)
        else:
            self._breaker.note_well()
            self._patience.note_taken()
        if isinstance(answer, Accepted) or (not isinstance(answer, NotSent) and answer.status is not None):
            self._rate.note_served(sent_at, now)
        if isinstance(answer, Created | Accepted):
            self._concurrency.note(sent_at, now, self._under_way)

    def note_no_answer(self, sent_at: float) -> None:
        """Note that an attempt at `sent_at` (monotonic) was given up: it says nothing about the service."""
        self._breaker.note_inconclusive(sent_at)

    def is_pausing(self, now: float) -> bool:
        """Return whether the service has asked for a pause that is not over."""
        return self._client.quiet_until > now

    async def rest_before_retry(self, until: float, seconds: float) -> bool:
        """Return whether an attempt may be made again after so long, at the pace and not after `until` (monotonic);
        none is while only probes, or nothing, may leave."""
        control = self._control
        is_going_on = await control.rest(seconds)
        while is_going_on and not self._breaker.is_open:
            now = control.clock.monotonic()
            if self._client.quiet_until > now or now > until:
                return False
            if (wait_s := self._rate.admit(now)) <= 0:
                return True
            is_going_on = await control.rest(wait_s)
        return False

    def _take_place(self) -> float:
        """0 when a place was taken, for a request to leave at once; else the wait; inf when only an answer can tell."""
        if self._under_way >= self._concurrency.allowed:
            return inf
        wait_s = self._find_wait(self._control.clock.monotonic())
        self._under_way += wait_s <= 0
        return wait_s

    def _find_wait(self, now: float) -> float:
        """0 when a request may leave, which is then taken to; inf when only an answer can tell."""
        quiet_s = self._client.quiet_until - now
        if quiet_s > LONGEST_PAUSE_S:
            at = self._control.clock.now() + timedelta(seconds=quiet_s)
            self._control.end(
                f"the service sent Retry-After: {quiet_s:,.0f} s; run again after {at:%Y-%m-%d %H:%M} UTC"
            )
        if quiet_s > 0:
            return quiet_s
        wait_s = self._breaker.wait(now) or self._rate.admit(now)
        if wait_s <= 0:
            self._breaker.note_leaving(now)
        return wait_s

    async def _wait(self, wait_s: float) -> None:
        control = self._control
        if wait_s <= _SHORT_WAIT_S:
            await control.clock.sleep(wait_s)
            return
        if wait_s <= _WORTH_TELLING_S:
            await control.rest(wait_s)
        else:
            await control.wait(wait_s, self._explain())

    def _explain(self) -> str:
        """Why no request may leave now."""
        if self.is_pausing(self._control.clock.monotonic()):
            return "the service has asked for a pause"
        if self._breaker.is_open:
            return f"the service takes no {self._word}s; a single one is tried next"
        return f"the pace that the service allows, until the next {self._word}"

    def _note_limited(self, answer: Refused | Ambiguous, sent_at: float, now: float) -> None:
        is_probe, may_pass = self._breaker.is_open, isinstance(answer, Refused) and answer.may_pass
        if may_pass:
            self._breaker.note_failure(sent_at, now)  # many in a row: single probes, each after a longer pause
        else:
            self._breaker.note_inconclusive(sent_at)
        if not (is_probe and may_pass):  # a probe shows how long the service refuses all, and no rate
            self._rate.note_refused(sent_at, now, answer.retry_after_s)
        self._patience.note_refused(now)
        if self._patience.is_over(now):
            self._control.end(f"the service kept refusing {self._word}s for their rate: run again when it is less busy")

    def _note_failure(self, answer: Ambiguous | NotSent, sent_at: float, now: float) -> None:
        self._breaker.note_failure(sent_at, now)
        if self._breaker.has_given_up(now):
            self._control.end(
                f"the service has answered no {self._word} for a minute (last: {answer.message}): "
                "run again in some minutes"
            )


def _is_failure(answer: Ambiguous | NotSent) -> bool:
    """Return whether the service did not work, rather than did not do what was asked."""
    if isinstance(answer, NotSent) or answer.status is None:
        return True
    return answer.status >= 500 or answer.status == _REQUEST_TIMEOUT
