"""Through which every create leaves: at the pace that was found, no more at once than the service works on, and not
while it has asked to be left alone or does not answer (architecture 6).
"""

import asyncio
from datetime import timedelta
from functools import partial
from math import inf

from connector.load.session import Session
from connector.pace import Pace
from connector.service import LONGEST_PAUSE_S, Ambiguous, Created, NotSent, Refused, says_limit

_SHORT_WAIT_S = 0.05  # is slept through; whether the run is to stop is seen after it
_WORTH_TELLING_S = 2.0
_REQUEST_TIMEOUT = 408

Answer = Created | Refused | Ambiguous | NotSent


class Gate:
    """Whoever creates enters first, sends, and leaves; one at a time may wait to enter.

    Each base has a gate of its own, and what was found of the pace is the run's: only one base sends at a time, so that
    what is under way through its gate is all that is.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        pace = session.pace or Pace(session.policy.max_rate, session.policy.max_concurrency)
        self._rate, self._concurrency = pace.rate, pace.concurrency
        self._breaker, self._patience = pace.breaker, pace.patience
        self._lists = session.client.counts["list"]
        self._lists_known = self._lists.sent
        self._under_way = 0
        self._left = asyncio.Event()

    async def enter(self) -> bool:
        """Wait for a place; False, and no place is taken, when the run is to stop."""
        while not self._session.stopping.is_set():
            wait_s = self._take_place()
            if wait_s <= 0:
                return True
            if wait_s < inf:
                await self._wait(wait_s)
            else:
                self._left.clear()
                await self._left.wait()
        return False

    def enter_now(self) -> bool:
        """Take a place if one more may leave at once."""
        return not self._session.stopping.is_set() and self._take_place() <= 0

    def leave(self) -> None:
        """Give the place back; whoever waits to enter is told by `tell_room`."""
        self._under_way -= 1

    def turn_back(self) -> None:
        """Give the place back without having sent anything."""
        self._breaker.note_untold(self._session.clock.monotonic())
        self.leave()

    def tell_room(self) -> None:
        """Wake whoever waits to enter, if there is room."""
        if self._under_way < self._concurrency.allowed:
            self._left.set()

    @property
    def allowed(self) -> int:
        """How many may be under way at once."""
        return self._concurrency.allowed

    async def send(self, body: bytes, until: float = inf) -> Answer:
        """Create one subscriber, again while it is known not to have left and trying again may help; not after `until`
        (monotonic)."""
        session = self._session
        rest = partial(self._rest_before_retry, until)
        return await session.retrier.send(lambda: self.create_subscriber(body), session.client.counts["create"], rest)

    async def create_subscriber(self, body: bytes) -> Answer:
        """One attempt, whose end the controllers are told."""
        monotonic = self._session.clock.monotonic
        sent_at = monotonic()
        if self._session.client.quiet_until > sent_at:
            self._breaker.note_untold(sent_at)
            return NotSent("the service asks to be left alone")
        try:
            answer = await self._session.client.create_subscriber(body)
        except asyncio.CancelledError:
            self._breaker.note_untold(sent_at)
            raise
        self._note(answer, sent_at, monotonic())
        return answer

    async def _rest_before_retry(self, until: float, seconds: float) -> bool:
        """An attempt that is made again keeps the pace, too; none is while only probes, or nothing, may leave."""
        session = self._session
        is_going_on = await session.rest(seconds)
        while is_going_on and not self._breaker.is_open:
            now = session.clock.monotonic()
            if session.client.quiet_until > now or now > until:
                return False
            if (wait_s := self._rate.admit(now)) <= 0:
                return True
            is_going_on = await session.rest(wait_s)
        return False

    def _take_place(self) -> float:
        """0 when a place was taken, for a create to leave at once; else the wait; inf when only an answer can tell."""
        if self._under_way >= self._concurrency.allowed:
            return inf
        wait_s = self._find_wait(self._session.clock.monotonic())
        self._under_way += wait_s <= 0
        return wait_s

    def _find_wait(self, now: float) -> float:
        """0 when a create may leave, which is then taken to; inf when only an answer can tell."""
        quiet_s = self._session.client.quiet_until - now
        if quiet_s > LONGEST_PAUSE_S:
            at = self._session.clock.now() + timedelta(seconds=quiet_s)
            self._session.end(
                f"the service asks to be left alone for {quiet_s:,.0f} s: run again after {at:%Y-%m-%d %H:%M} UTC"
            )
        if quiet_s > 0:
            return quiet_s
        if self._lists.sent > self._lists_known:
            self._rate.make_room(self._lists.sent - self._lists_known, now)
            self._lists_known = self._lists.sent
        wait_s = self._breaker.wait(now) or self._rate.admit(now)
        if wait_s <= 0:
            self._breaker.note_leaving(now)
        return wait_s

    async def _wait(self, wait_s: float) -> None:
        session = self._session
        if wait_s <= _SHORT_WAIT_S:
            await session.clock.sleep(wait_s)
            return
        before = session.activity
        if wait_s > _WORTH_TELLING_S:
            session.activity = f"waiting {wait_s:.0f} s before the next create"
        await session.rest(wait_s)
        session.activity = before

    def _note(self, answer: Answer, sent_at: float, now: float) -> None:
        if isinstance(answer, Refused | Ambiguous) and says_limit(answer.status, answer.retry_after_s):
            self._note_limited(answer, sent_at, now)
            return
        if isinstance(answer, Ambiguous | NotSent) and _is_failure(answer):
            self._note_failure(answer, sent_at, now)
        else:
            self._breaker.note_well()
            self._patience.note_taken()
        if not isinstance(answer, NotSent) and answer.status is not None:
            self._rate.note_served(sent_at, now)
        if isinstance(answer, Created):
            self._concurrency.note(sent_at, now, self._under_way)

    def _note_limited(self, answer: Refused | Ambiguous, sent_at: float, now: float) -> None:
        self._breaker.note_untold(sent_at)
        self._rate.note_refused(sent_at, now, answer.retry_after_s)
        self._patience.note_refused(now)
        if self._patience.is_over(now):
            self._session.end("the service kept refusing creates for their rate: run again when it is less busy")

    def _note_failure(self, answer: Ambiguous | NotSent, sent_at: float, now: float) -> None:
        self._breaker.note_failure(sent_at, now)
        if self._breaker.has_given_up(now):
            self._session.end(
                f"the service has answered no create for a minute (last: {answer.message}): run again in some minutes; "
                "what was sent will be looked up first"
            )


def _is_failure(answer: Ambiguous | NotSent) -> bool:
    """Whether the service did not work, rather than did not do what was asked."""
    if isinstance(answer, NotSent) or answer.status is None:
        return True
    return answer.status >= 500 or answer.status == _REQUEST_TIMEOUT
