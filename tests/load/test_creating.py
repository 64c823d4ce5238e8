"""Creates that are sent one after another: a refusal that needs a check, and a create that is not sent in time."""

import asyncio
from pathlib import Path

import orjson
import pytest

from connector.ledger.entries import Intent, Transition
from connector.load.candidates import Candidate, CandidateList
from connector.load.creates import Creator
from connector.load.outcomes import Outcomes
from connector.load.session import RunMode, Session
from connector.service.retry import RequestCounts
from connector.service.wire import CreatedAnswer, ListQuery, NotSent, Refused, encode_subscriber
from connector.states import Event, State
from tests.load.sessions import BASE_ID, VirtualTime, build_session, compute_identity, open_ledger_writer

CREATE_COUNT = 5


def build_candidate(candidate_number: int, valid_until: float = float("inf")) -> Candidate:
    email = f"person{candidate_number}@x.org"
    sent_fields: dict[str, object] = {"base_id": BASE_ID, "email": email}
    intent = Intent(compute_identity(email), b"f" * 8, encode_subscriber(sent_fields))
    return Candidate(intent, sent_fields, entry_state=State.NONE, valid_until=valid_until)


class FakeService:
    """A service that accepts each create, except the creates with an email in `answers`: these get the answer from
    `answers`. `sent_emails` has the emails of all creates, in order."""

    def __init__(self, answers: dict[str, Refused | NotSent]) -> None:
        self._answers = answers
        self.counts = {"create": RequestCounts(), "list": RequestCounts()}
        self.paused_until = float("-inf")
        self.sent_emails: list[str] = []
        self.has_sent_all = asyncio.Event()

    async def create_subscriber(self, body: bytes) -> CreatedAnswer | Refused | NotSent:
        subscriber = orjson.loads(body)["Subscriber"]
        self.sent_emails.append(subscriber["Email"])
        if len(self.sent_emails) == CREATE_COUNT:
            self.has_sent_all.set()
        return self._answers.get(subscriber["Email"]) or CreatedAnswer(len(self.sent_emails), subscriber, 200)

    async def list_subscribers(self, query: ListQuery, _parse: object) -> Refused:
        if query.limit > 1:
            return Refused(404, "there is no list")
        await self.has_sent_all.wait()  # this request checks whether the service also refuses the list
        return Refused(400, "the limit must be larger than 1")


class RecordedOutcomes(Outcomes):
    """Outcomes that also store the transition of each create, by email."""

    def __init__(self, session: Session, transitions: dict[str, Transition]) -> None:
        super().__init__(session, RunMode.LOAD)
        self._transitions = transitions

    def record_result(self, candidate: Candidate, transition: Transition) -> None:
        """Store the transition under the email of the candidate."""
        self._transitions[str(candidate.sent_values["email"])] = transition


def create_all(
    folder: Path, candidates: list[Candidate], answers: dict[str, Refused | NotSent]
) -> dict[str, Transition]:
    """Send the candidates one at a time, and return their transitions by email. A creator that hangs fails
    after ten seconds."""
    transitions: dict[str, Transition] = {}

    async def run() -> None:
        service = FakeService(answers)
        with open_ledger_writer(folder) as ledger_writer:
            session = build_session(service, ledger_writer, virtual_time=VirtualTime(), max_concurrency=1)
            creator = Creator(session, RecordedOutcomes(session, transitions))
            fetch_candidates = CandidateList(candidates, session.clock.monotonic).fetch
            await asyncio.wait_for(creator.create_subscribers(fetch_candidates), 10)

    asyncio.run(run())
    return transitions


def test_other_creates_do_not_wait_for_the_list_request_after_a_refused_create(tmp_path: Path) -> None:
    """After the refusal, the connector requests the list. The service answers this request only when all creates were
    sent."""
    candidates = [build_candidate(candidate_number) for candidate_number in range(CREATE_COUNT)]
    transitions = create_all(tmp_path, candidates, {"person2@x.org": Refused(403, "no")})
    assert sorted(transition.event for transition in transitions.values()) == sorted(
        [Event.ANSWERED] * 4 + [Event.REFUSED]
    )


@pytest.mark.parametrize("unsent_number", [0, 2])  # the first create, which is sent alone, and a later create
def test_the_look_up_of_a_subscriber_has_expired_if_its_create_was_not_sent_in_time(
    tmp_path: Path, unsent_number: int
) -> None:
    candidates = [
        build_candidate(candidate_number, valid_until=VirtualTime().now_s + 30)
        for candidate_number in range(CREATE_COUNT)
    ]
    email = f"person{unsent_number}@x.org"
    transitions = create_all(tmp_path, candidates, {email: NotSent("connection refused")})
    assert (transitions[email].event, transitions[email].has_expired_look_up) == (Event.NOT_SENT, True)
