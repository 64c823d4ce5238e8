"""Gates of several bases of one run: each has its own, and what is known of the pace is the run's."""

import asyncio
from pathlib import Path

import pytest

from connector.load.gate import Answer, Gate
from connector.pace import Pace
from connector.service import Ambiguous, Created, Refused, RequestCounts
from tests.load.sessions import VirtualTime, build_session, open_journal

LIMITED = Refused(429, "slow down")
LIMITED_OTHERWISE = Ambiguous(503, "slow down", 0.5)
CREATED = Created(1, {"Id": 1}, 200)
LONG_S = 200.0  # longer than a run bears nothing but refusals


class Service:
    """Answers what it is told."""

    def __init__(self) -> None:
        self.counts = {"create": RequestCounts(), "list": RequestCounts()}
        self.quiet_until = float("-inf")
        self.answer: Answer = CREATED

    async def create_subscriber(self, _body: bytes) -> Answer:
        return self.answer


def play(folder: Path, *answers: tuple[int, Answer]) -> list[str | None]:
    """Each answer through the gate of one of two bases, a long time apart; why each base's session has ended."""

    async def run() -> list[str | None]:
        time, service, pace = VirtualTime(), Service(), Pace(max_concurrency=1)
        with open_journal(folder) as journal:
            sessions = [build_session(service, journal, time=time) for _ in range(2)]
            for session in sessions:
                session.pace = pace
            gates = [Gate(session) for session in sessions]
            for base, answer in answers:
                service.answer = answer
                assert await gates[base].enter()
                await gates[base].create_subscriber(b"")
                gates[base].leave()
                time.now += LONG_S
            return [session.ending for session in sessions]

    return asyncio.run(run())


def test_refusals_of_one_base_are_no_long_row_where_another_was_served_between(tmp_path: Path) -> None:
    assert play(tmp_path, (0, LIMITED), (1, CREATED), (0, LIMITED)) == [None, None]


@pytest.mark.parametrize("limited", [LIMITED, LIMITED_OTHERWISE])
def test_refusals_of_all_bases_are_one_row(tmp_path: Path, limited: Answer) -> None:
    first, second = play(tmp_path, (0, limited), (1, limited))
    assert first is None
    assert "kept refusing" in (second or "")


def test_lists_that_leave_during_a_load_take_places_of_creates(tmp_path: Path) -> None:
    async def wait_s(lists: int) -> float:
        time, service = VirtualTime(), Service()
        pace = Pace(max_rate=10, max_concurrency=1)
        with open_journal(tmp_path / str(lists)) as journal:
            session = build_session(service, journal, time=time)
            session.pace = pace
            gate = Gate(session)
            answers: list[Answer] = [*[CREATED] * 9, *[LIMITED] * 9]  # a limit is known from then on
            for service.answer in answers:
                assert await gate.enter()
                await gate.create_subscriber(b"")
                gate.leave()
            service.counts["list"].sent += lists
            before = time.now
            assert await gate.enter()
            return time.now - before

    without, with_some = asyncio.run(wait_s(0)), asyncio.run(wait_s(3))
    assert with_some > without + 0.1
