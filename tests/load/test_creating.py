"""Creates that leave one after another, and the reasons to wait."""

import asyncio
from pathlib import Path

import orjson
import pytest

from connector.ledger.entries import Intent, Move
from connector.load.candidates import Candidate, CandidateList
from connector.load.creates import Creator
from connector.load.outcomes import Outcomes
from connector.load.session import RunMode, Session
from connector.service.request_counts import RequestCounts
from connector.service.wire import Created, ListQuery, NotSent, Refused, encode_subscriber
from connector.states import Event, State
from tests.load.sessions import BASE, VirtualTime, build_session, identity, open_journal

NUMBER = 5


def build_candidate(number: int, known_until: float = float("inf")) -> Candidate:
    email = f"person{number}@x.org"
    sent: dict[str, object] = {"base_id": BASE, "email": email}
    intent = Intent(identity(email), b"f" * 8, encode_subscriber(sent))
    return Candidate(intent, sent, entry_state=State.NONE, known_until=known_until)


class Service:
    """Answers as it is told for each email; all others are created. `sent` are the emails, in order."""

    def __init__(self, answers: dict[str, Refused | NotSent]) -> None:
        self._answers = answers
        self.counts = {"create": RequestCounts(), "list": RequestCounts()}
        self.quiet_until = float("-inf")
        self.sent: list[str] = []
        self.has_sent_all = asyncio.Event()

    async def create_subscriber(self, body: bytes) -> Created | Refused | NotSent:
        subscriber = orjson.loads(body)["Subscriber"]
        self.sent.append(subscriber["Email"])
        if len(self.sent) == NUMBER:
            self.has_sent_all.set()
        return self._answers.get(subscriber["Email"]) or Created(len(self.sent), subscriber, 200)

    async def list_subscribers(self, query: ListQuery, _parse: object) -> Refused:
        if query.limit > 1:
            return Refused(404, "there is no list")
        await self.has_sent_all.wait()  # the request that shows whether the list is refused as well
        return Refused(400, "no limit of 1")


class Recorder(Outcomes):
    """Keeps the move of each create, by email."""

    def __init__(self, session: Session, moves: dict[str, Move]) -> None:
        super().__init__(session, RunMode.LOAD)
        self._moves = moves

    def record(self, candidate: Candidate, move: Move) -> None:
        """Keep the move."""
        self._moves[str(candidate.sent["email"])] = move


def create_all(folder: Path, candidates: list[Candidate], answers: dict[str, Refused | NotSent]) -> dict[str, Move]:
    """Send them one at a time; returns what became of each email. A creator that hangs fails in ten seconds."""
    verdicts: dict[str, Move] = {}

    async def run() -> None:
        service = Service(answers)
        with open_journal(folder) as journal:
            session = build_session(service, journal, time=VirtualTime(), max_concurrency=1)
            creator = Creator(session, Recorder(session, verdicts))
            take = CandidateList(candidates, session.clock.monotonic).fetch
            await asyncio.wait_for(creator.create(take), 10)

    asyncio.run(run())
    return verdicts


def test_a_refusal_for_which_the_list_is_asked_holds_no_other_create_up(tmp_path: Path) -> None:
    """The list is asked whether it is refused as well, and answers once all other creates have left."""
    candidates = [build_candidate(number) for number in range(NUMBER)]
    verdicts = create_all(tmp_path, candidates, {"person2@x.org": Refused(403, "no")})
    assert sorted(verdict.event for verdict in verdicts.values()) == sorted([Event.ANSWERED] * 4 + [Event.REFUSED])


@pytest.mark.parametrize("place", [0, 2])  # as the canary, and among others
def test_an_entry_that_was_not_sent_in_time_is_looked_up_again(tmp_path: Path, place: int) -> None:
    candidates = [build_candidate(number, known_until=VirtualTime().now + 30) for number in range(NUMBER)]
    refused = f"person{place}@x.org"
    verdicts = create_all(tmp_path, candidates, {refused: NotSent("connection refused")})
    assert (verdicts[refused].event, verdicts[refused].is_stale) == (Event.NOT_SENT, True)
