"""Retries: which requests may be sent again, how many times, and after which wait (architecture 6).

Only reads, and requests that certainly had no effect, are sent again. The loop of tenacity starts only after a first
failure, so that a successful request costs little. An attempt is a function without arguments.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from connector.clock import Clock, system_clock
from connector.service.wire import AmbiguousResult, NotSent, Refused, is_rate_limited

if TYPE_CHECKING:
    from tenacity import RetryCallState

_FIRST_WAIT_S = 0.5
_MAX_WAIT_S = 10.0

_Answer = TypeVar("_Answer")

Sleep = Callable[[float], Awaitable[bool]]
"""A function that waits for some seconds, and returns whether the request may be sent again."""


@dataclass(slots=True)
class RequestCounts:
    """Counts of the requests of one operation. The reference shows the annotation of each key."""

    sent: Annotated[int, "Number of requests that were sent, including repeated ones."] = 0
    retried: Annotated[int, "Number of requests that were sent again."] = 0
    limited: Annotated[
        int, "Number of requests that the service refused with 429, or with 403 or 503 and a Retry-After."
    ] = 0
    failed: Annotated[int, "Number of requests that failed. A refused request does not count as failed."] = 0


class Retrier:
    """Sends requests again: reads, and requests that certainly had no effect. The methods return the last answer, and
    raise no error.

    A request gets at most `max_attempts` attempts. No attempt starts later than `max_span_s` seconds after the first
    failure. `RetryBudget` limits all retries except retries after a 429. Waits are drawn from [0, 0.5 s], [0, 1 s],
    [0, 2 s] and so on, up to 10 s (full jitter).

    Six attempts can outlast a restart of the service. If each attempt ends with a time-out after 30 s, a request gets
    three attempts. If all attempts of a read have failed, the next reads get only one attempt, until a read succeeds.
    """

    def __init__(
        self,
        max_attempts: int = 6,
        max_span_s: float = 45.0,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock or system_clock()
        self._budget = RetryBudget()
        self._has_given_up = False
        self._max_attempts, self._max_span_s = max_attempts, max_span_s
        self._random = rng or random.Random()  # noqa: S311 - the waits are not secret

    async def send(
        self, attempt: Callable[[], Awaitable[_Answer]], request_counts: RequestCounts, sleep: Sleep | None = None
    ) -> _Answer:
        """Call `attempt`, which creates a subscriber or sends an email. Call `attempt` again only after a NotSent
        (architecture 4.6). `sleep` replaces the clock's sleep.
        """
        self._budget.record_request(self._clock.monotonic())
        return await self._retry_attempts(
            await attempt(), attempt, lambda answer: isinstance(answer, NotSent), request_counts, sleep
        )

    async def read(self, attempt: Callable[[], Awaitable[_Answer]], request_counts: RequestCounts) -> _Answer:
        """Call `attempt`, which reads one page. Call `attempt` again until the result is a page or no retry is left. Do
        not call `attempt` again after a redirect, or after a refusal that has another cause than the rate.

        After an answer with a Retry-After, the next attempt waits at least as long as the Retry-After asks.
        """
        self._budget.record_request(self._clock.monotonic())
        answer = await attempt()
        if not self._has_given_up:
            answer = await self._retry_attempts(answer, attempt, _is_read_repeatable, request_counts)
        self._has_given_up = _is_read_repeatable(answer)
        return answer

    async def _retry_attempts(
        self,
        first_answer: _Answer,
        make_attempt: Callable[[], Awaitable[_Answer]],
        may_retry: Callable[[object], bool],
        request_counts: RequestCounts,
        sleep: Sleep | None = None,
    ) -> _Answer:
        """Repeat the request while `may_retry` allows another attempt, and return the last answer. `first_answer` is
        the answer of the first attempt. `make_attempt` makes the other attempts."""
        if not may_retry(first_answer):
            return first_answer
        from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, stop_any, stop_before_delay

        latest_answer, may_continue = first_answer, True
        stop_condition = stop_any(stop_after_attempt(self._max_attempts), stop_before_delay(self._max_span_s))

        async def attempt() -> _Answer:
            nonlocal latest_answer
            if retry_loop.statistics["attempt_number"] > 1 and may_continue:
                request_counts.retried += 1
                self._budget.record_request(self._clock.monotonic())
                latest_answer = await make_attempt()
            return latest_answer

        async def wait_before_retry(seconds: float) -> None:
            nonlocal may_continue
            if sleep is None:
                await self._clock.sleep(seconds)
            else:
                may_continue = await sleep(seconds)

        retry_loop = AsyncRetrying(
            retry=retry_if_result(lambda answer: may_continue and may_retry(answer)),
            stop=lambda state: stop_condition(state) or self._is_budget_spent(state),
            wait=self._choose_wait,
            sleep=wait_before_retry,
            retry_error_callback=_read_answer,
        )
        answer: _Answer = await retry_loop(attempt)
        return answer

    def _choose_wait(self, state: RetryCallState) -> float:
        """Return the seconds to wait: a random time as in tenacity's `wait_random_exponential`, plus the Retry-After of
        the answer. The random generator is an argument of the retrier, for tests."""
        max_wait_s = min(_FIRST_WAIT_S * 2 ** (state.attempt_number - 1), _MAX_WAIT_S)
        return self._random.uniform(0.0, max_wait_s) + (getattr(_read_answer(state), "retry_after_s", None) or 0.0)

    def _is_budget_spent(self, state: RetryCallState) -> bool:
        """Return True if the budget forbids a retry now. Otherwise count the retry, and return False. A retry after a
        refusal because of the rate is always allowed, and does not count."""
        if is_rate_limited(_read_answer(state)):
            return False
        return not self._budget.spend_retry(self._clock.monotonic())


def _is_read_repeatable(answer: object) -> bool:
    """Return whether another read may help: the answer is missing, ambiguous (but not a redirect), or a refusal because
    of the rate."""
    match answer:
        case NotSent():
            return True
        case Refused():
            return is_rate_limited(answer)
        case AmbiguousResult(status=status):
            return status is None or not 300 <= status < 400
        case _:
            return False


def _read_answer(state: RetryCallState) -> object:
    return state.outcome.result() if state.outcome is not None else None


# The budget of retries: 10 % of the requests of the last ten seconds, and at least 10.
_BUDGET_SPAN_S = 10
_RETRY_SHARE = 0.1
_MIN_RETRIES = 10


class RetryBudget:
    """The number of allowed retries: 10 % of the requests of the last ten seconds, and at least 10. The time is passed
    as an argument, in seconds."""

    def __init__(self) -> None:
        # A list for each second: [the second, number of requests, number of retries].
        self._counts_of_seconds: deque[list[int]] = deque()

    def record_request(self, now: float) -> None:
        """Record a request that leaves, whether it is new or a retry."""
        self._find_counts_of_current_second(now)[1] += 1

    def spend_retry(self, now: float) -> bool:
        """Return whether a request may be retried. If a retry is allowed, count the retry."""
        counts_of_second = self._find_counts_of_current_second(now)
        request_count, retry_count = (sum(counts[index] for counts in self._counts_of_seconds) for index in (1, 2))
        if retry_count >= max(_MIN_RETRIES, _RETRY_SHARE * request_count):
            return False
        counts_of_second[2] += 1
        return True

    def _find_counts_of_current_second(self, now: float) -> list[int]:
        if not self._counts_of_seconds or self._counts_of_seconds[-1][0] != int(now):
            self._counts_of_seconds.append([int(now), 0, 0])
            while self._counts_of_seconds[0][0] < int(now) - _BUDGET_SPAN_S:
                self._counts_of_seconds.popleft()
        return self._counts_of_seconds[-1]
