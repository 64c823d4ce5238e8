"""The one home of tenacity: what may be sent again, how often, and after which wait (architecture 6).

It is entered only after a first failure, so that the way of a request that succeeds stays short, and only by
predicates that name what may be sent again: what is known to have had no effect, and reads. It knows no client: an
attempt is a function without arguments.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from connector.clock import Clock, system_clock
from connector.service.wire import Ambiguous, NotSent, Refused, is_limited

if TYPE_CHECKING:
    from tenacity import RetryCallState

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 10.0

_Answer = TypeVar("_Answer")

Rest = Callable[[float], Awaitable[bool]]


class RetryCounter(Protocol):
    """Counts the requests that were sent again."""

    retried: int


class Retrier:
    """Sends again what is known to have had no effect, and reads; gives the last answer and raises for none.

    At most `attempts` in all, none that would start later than `longest_s` after the first failure, and only a tenth of
    all requests again (429s apart); the waits are drawn from [0, 0.5 s], [0, 1 s], [0, 2 s] and so on to 10 s (full
    jitter). Six attempts outlive a restart of several seconds; two that are not answered within 30 s are enough. After
    a read that was given up, each other read is made once, until one goes well.
    """

    __slots__ = ("_attempts", "_budget", "_clock", "_has_given_up", "_longest_s", "_random")

    def __init__(
        self,
        attempts: int = 6,
        longest_s: float = 45.0,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock or system_clock()
        self._budget = RetryBudget()
        self._has_given_up = False
        self._attempts, self._longest_s = attempts, longest_s
        self._random = rng or random.Random()  # noqa: S311 - it spreads waits, it guards nothing

    async def send(
        self, attempt: Callable[[], Awaitable[_Answer]], counts: RetryCounter, rest: Rest | None = None
    ) -> _Answer:
        """Create a subscriber or send an email; again only while the answer is NotSent (architecture 4.6).

        `rest` waits in place of the clock, and says whether to go on: not once the run is to stop.
        """
        self._budget.record_request(self._clock.monotonic())
        answer = await attempt()
        if type(answer) is not NotSent:
            return answer
        return await self._again(answer, attempt, lambda each: isinstance(each, NotSent), counts, rest)

    async def read(self, attempt: Callable[[], Awaitable[_Answer]], counts: RetryCounter) -> _Answer:
        """Read one page; try again until it comes, except after a refusal or a redirect.

        After a 429, or any answer that names a Retry-After, no earlier than that.
        """
        self._budget.record_request(self._clock.monotonic())
        answer = await attempt()
        if not self._has_given_up:
            answer = await self._again(answer, attempt, _is_unread, counts)
        self._has_given_up = _is_unread(answer)
        return answer

    async def _again(
        self,
        first: _Answer,
        call: Callable[[], Awaitable[_Answer]],
        is_worth: Callable[[object], bool],
        counts: RetryCounter,
        rest: Rest | None = None,
    ) -> _Answer:
        """The last of the answers: `first` is that of tenacity's first attempt, `call` makes the others."""
        if not is_worth(first):
            return first
        from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, stop_any, stop_before_delay

        last, is_going_on = first, True
        bound = stop_any(stop_after_attempt(self._attempts), stop_before_delay(self._longest_s))

        async def attempt() -> _Answer:
            nonlocal last
            if retrying.statistics["attempt_number"] > 1 and is_going_on:
                counts.retried += 1
                self._budget.record_request(self._clock.monotonic())
                last = await call()
            return last

        async def wait(seconds: float) -> None:
            nonlocal is_going_on
            if rest is None:
                await self._clock.sleep(seconds)
            else:
                is_going_on = await rest(seconds)

        retrying = AsyncRetrying(
            retry=retry_if_result(lambda answer: is_going_on and is_worth(answer)),
            stop=lambda state: bound(state) or self._is_spent(state),
            wait=self._choose_wait,
            sleep=wait,
            retry_error_callback=_read_answer,
        )
        answer: _Answer = await retrying(attempt)
        return answer

    def _choose_wait(self, state: RetryCallState) -> float:
        """As tenacity's `wait_random_exponential`, with the randomness passed in, after what the answer asks for."""
        widest = min(_FIRST_WAIT_S * 2 ** (state.attempt_number - 1), _LONGEST_WAIT_S)
        return self._random.uniform(0.0, widest) + (getattr(_read_answer(state), "retry_after_s", None) or 0.0)

    def _is_spent(self, state: RetryCallState) -> bool:
        """Return whether too many requests were sent again lately; a refusal for the rate does not count."""
        if is_limited(_read_answer(state)):
            return False
        return not self._budget.take(self._clock.monotonic())


def _is_unread(answer: object) -> bool:
    """Return whether reading again may help: the request had no answer, one that says nothing certain, or a limit."""
    match answer:
        case NotSent():
            return True
        case Refused():
            return is_limited(answer)
        case Ambiguous(status=status):
            return status is None or not 300 <= status < 400
        case _:
            return False


def _read_answer(state: RetryCallState) -> object:
    return state.outcome.result() if state.outcome is not None else None


# 10 % of the requests of the last ten seconds, and at least 10: retries never become the service's burden.
_SPAN_S = 10
_SHARE = 0.1
_ALWAYS = 10


class RetryBudget:
    """10 % of the requests of the last ten seconds, and at least 10. The time comes in, in seconds."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()  # [which second, requests, retries]

    def record_request(self, now: float) -> None:
        """A request leaves, for the first time or again."""
        self._read_second(now)[1] += 1

    def take(self, now: float) -> bool:
        """Return whether one may be sent again; it is counted if so."""
        second = self._read_second(now)
        requests, retries = (sum(each[place] for each in self._seconds) for place in (1, 2))
        if retries >= max(_ALWAYS, _SHARE * requests):
            return False
        second[2] += 1
        return True

    def _read_second(self, now: float) -> list[int]:
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append([int(now), 0, 0])
            while self._seconds[0][0] < int(now) - _SPAN_S:
                self._seconds.popleft()
        return self._seconds[-1]
