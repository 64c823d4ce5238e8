"""Sends creates: one alone until one is answered (the canary, design 4.9), then several at a time.

A candidate's intent is durable before its request leaves. Whatever was intended gets an event; what never left is
put back. A request that is cancelled from outside stays SENDING: the next run takes it for unknown.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from connector.load.candidates import Candidate
from connector.load.judging import ENDS_A_RUN, Verdict, judge_answer
from connector.load.session import Session
from connector.load.throttle import Throttle
from connector.protocol.answers import Ambiguous, Created, NotSent, Refused
from connector.protocol.words import refusal_kind
from connector.states import Event, State

INTENDED_AT_ONCE = 64  # intents that share a commit (design 4.1): the disk is waited for once for all of them
_UNKNOWN_CANARIES = 3
_REFUSED_CANARIES = 20
_FAILURES_IN_A_ROW = 100  # at least; and more than are under way at once, so that one hiccup of a server is not the end
_TOO_MANY_REQUESTS = 429

Take = Callable[[int], list[Candidate]]
Settle = Callable[[Candidate, Verdict], None]


class Creator:
    """Sends candidates and tells each one's verdict; it keeps the canary's and the pause's state for a whole run."""

    def __init__(self, session: Session, on_verdict: Settle) -> None:
        self._session = session
        self._on_verdict = on_verdict
        self._is_proved = False
        self._unknown_canaries = 0
        self._refused: Counter[str] = Counter()
        self._failures = 0
        self._throttle = Throttle(session)

    async def create(self, take: Take) -> None:
        """Send all that `take(n)` gives, n at a time at most, until it gives nothing or the run is to stop."""
        self._session.activity = "creating"
        while not self._is_proved and not self._session.stopping.is_set():
            canary = take(1)
            if not canary:
                return
            await self._session.journal.intend(canary)
            await self._send_canary(canary[0])
        if not self._session.stopping.is_set():
            await self._create_together(take)
        await self._session.journal.flush()

    async def _send_canary(self, candidate: Candidate) -> None:
        answer, verdict = await self._attempt(candidate)
        if verdict.event is Event.ANSWERED and isinstance(answer, Created):
            self._is_proved = True
        elif verdict.status in ENDS_A_RUN and verdict.event is Event.REFUSED:
            verdict = Verdict(Event.NOT_SENT, message=verdict.message, status=verdict.status)
            self._session.end(
                f"the service refused the first create with status {verdict.status}: {verdict.message or 'no words'}. "
                "Look at the token, its prefix (service.authorization) and the base URL, then run again"
            )
        elif verdict.event is Event.REFUSED:
            self._count_refused_canary(verdict)
        elif verdict.event is Event.LOST:
            self._unknown_canaries += 1
            if verdict.is_misdirected or self._unknown_canaries >= _UNKNOWN_CANARIES:
                self._session.end(
                    f"the run's first creates could not be told to have worked ({verdict.message}): "
                    "nothing more was sent; run again once the service answers as its document says"
                )
        self._tell(candidate, verdict)
        await self._session.journal.flush()
        if isinstance(answer, Created) and self._is_proved:
            await self._learn_base(answer)

    def _count_refused_canary(self, verdict: Verdict) -> None:
        kind = refusal_kind(verdict.status or 0, verdict.message)
        self._refused[kind] += 1
        if self._refused[kind] >= _REFUSED_CANARIES:
            self._session.end(
                f"the service refused each of the run's first {_REFUSED_CANARIES} creates alike ({kind}): "
                "correct the mapping or the base and run again"
            )

    async def _learn_base(self, answer: Created) -> None:
        service_id, name = answer.values["base_id"], answer.values["base_name"]
        base = self._session.journal.base
        if isinstance(service_id, int) and isinstance(name, str) and (base.service_id, base.name) != (service_id, name):
            await self._session.journal.learn_base(service_id, name)

    async def _create_together(self, take: Take) -> None:
        """Workers send while the next intents are being committed; the queue holds those that may be sent already."""
        limit = self._session.policy.max_concurrency
        ready: asyncio.Queue[Candidate | None] = asyncio.Queue(limit)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(limit):
                    group.create_task(self._work(ready))
                while not self._session.stopping.is_set() and (batch := take(INTENDED_AT_ONCE)):
                    await self._session.journal.intend(batch)
                    for candidate in batch:
                        await ready.put(candidate)
                for _ in range(limit):
                    await ready.put(None)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _work(self, ready: asyncio.Queue[Candidate | None]) -> None:
        while (candidate := await ready.get()) is not None:
            if self._session.stopping.is_set():
                verdict = Verdict(Event.NOT_SENT, message="the run was stopped before it was sent")
            else:
                _, verdict = await self._attempt(candidate)
            self._tell(candidate, verdict)

    async def _attempt(self, candidate: Candidate) -> tuple[object, Verdict]:
        """Send one create until it is answered with anything but a refusal for its rate."""
        while await self._throttle.enter():
            answer = await self._send(candidate)
            if isinstance(answer, Refused) and answer.status == _TOO_MANY_REQUESTS:
                self._throttle.note_refused(answer.retry_after_s)
                continue
            self._throttle.note_taken()
            session = self._session
            verdict = judge_answer(answer, candidate, session.journal.base, session.asked_name)
            self._watch(verdict)
            return answer, verdict
        return None, Verdict(Event.NOT_SENT, message="the run was stopped before it was sent")

    async def _send(self, candidate: Candidate) -> Created | Refused | Ambiguous | NotSent:
        try:
            return await self._session.retrier.create(self._session.client, candidate.intent.body)
        except asyncio.CancelledError:
            self._tell(candidate, Verdict(Event.LOST, message="the run was cut off while this was under way"))
            raise
        finally:
            self._throttle.leave()

    def _watch(self, verdict: Verdict) -> None:
        """End the run when nothing works any more, or when the service sends us elsewhere."""
        if verdict.event in (Event.ANSWERED, Event.REFUSED):
            self._failures = 0
            return
        self._failures += 1
        if verdict.event is Event.NOT_SENT:
            self._session.end(f"the service could not be reached ({verdict.message}): run again when it is up")
        elif verdict.status is not None and 300 <= verdict.status < 400:
            self._session.end(f"the service redirects (status {verdict.status}): correct the base URL and run again")
        elif self._failures >= max(_FAILURES_IN_A_ROW, 2 * self._session.policy.max_concurrency):
            self._session.end(
                f"{self._failures} creates in a row had no readable answer (last: {verdict.message}): "
                "run again when the service is well; what was sent will be looked up first"
            )

    def _tell(self, candidate: Candidate, verdict: Verdict) -> None:
        if verdict.event is Event.ANSWERED and verdict.subscriber_id is not None:
            self._session.witnesses.append((self._session.clock.monotonic(), verdict.subscriber_id))
        is_unknown_still = verdict.event is Event.NOT_SENT and candidate.left is State.UNKNOWN
        # Then its entry may be all that is known of it: that stays, with its body, for a run to settle (design 4.4).
        self._session.journal.note(candidate, replace(verdict, event=Event.LOST) if is_unknown_still else verdict)
        self._on_verdict(candidate, verdict)


def take_from(candidates: Iterable[Candidate]) -> Take:
    """A list of candidates as something to take from."""
    waiting = iter(candidates)

    def take(number: int) -> list[Candidate]:
        return list(islice(waiting, number))

    return take
