"""The limiters of a run with several bases. Each base has its own limiter, and all bases share one pace."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.control import Stop
from connector.limiter import Answer, RequestLimiter
from connector.pace.pace import Pace
from connector.service.retry import RequestCounts
from connector.service.wire import AmbiguousResult, CreatedAnswer, Refused
from tests.load.sessions import VirtualTime

RATE_REFUSAL = Refused(429, "slow down")
RATE_REFUSAL_503 = AmbiguousResult(503, "slow down", 0.5)
CREATED_ANSWER = CreatedAnswer(1, {"Id": 1}, 200)
ANSWER_INTERVAL_S = 200.0  # time between two answers, longer than `_MAX_TIME_OF_ONLY_429_S`


class SimulatedLimiter:
    """A limiter on virtual time. The test chooses the answers that the limiter records."""

    def __init__(self, pace: Pace, time: VirtualTime) -> None:
        self.counts = {"create": RequestCounts(), "list": RequestCounts()}
        self.control = Stop(time.clock)
        client = SimpleNamespace(counts=self.counts, paused_until=float("-inf"))
        self.limiter = RequestLimiter(self.control, cast("Any", client), pace, "create")

    async def record_answer(self, answer: Answer) -> None:
        assert await self.limiter.acquire_slot()
        self.limiter.record_answer(answer, self.control.clock.monotonic())
        self.limiter.release_slot()


def simulate_answers(*answers: tuple[int, Answer]) -> list[str | None]:
    """Return for two bases the reason why the load ended. `answers` has pairs: the index of a base, and an answer."""

    async def record_all_answers() -> list[str | None]:
        time, pace = VirtualTime(), Pace(max_concurrency=1)
        limiters = [SimulatedLimiter(pace, time) for _ in range(2)]
        for index, answer in answers:
            await limiters[index].record_answer(answer)
            time.now_s += ANSWER_INTERVAL_S
        return [limiter.control.reason for limiter in limiters]

    return asyncio.run(record_all_answers())


def test_two_refusals_do_not_end_the_run_if_a_create_in_another_base_succeeds_between_them() -> None:
    assert simulate_answers((0, RATE_REFUSAL), (1, CREATED_ANSWER), (0, RATE_REFUSAL)) == [None, None]


@pytest.mark.parametrize("answer", [RATE_REFUSAL, RATE_REFUSAL_503])
def test_refusals_of_all_bases_together_end_the_run(answer: Refused | AmbiguousResult) -> None:
    first_reason, second_reason = simulate_answers((0, answer), (1, answer), (0, answer))
    assert first_reason == (f"the service kept refusing creates (last answer: status {answer.status}): run again later")
    assert second_reason is None
