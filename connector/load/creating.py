"""Sends creates: one alone until one is answered (the canary, design 4.9), then several at a time.

A candidate's intent is durable before its request leaves. Whatever was intended gets an event: what never left is put
back, and a request that is cancelled is lost, since it may have been executed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from connector.load.candidates import Candidate
from connector.load.judging import ENDS_A_RUN, TOO_MANY_REQUESTS, Verdict, judge_answer
from connector.load.looks.witness import Witness
from connector.load.refusing import Refusals
from connector.load.session import Session
from connector.load.throttle import Throttle
from connector.protocol.answers import Ambiguous, Created, NotSent, Refused
from connector.protocol.words import refusal_kind
from connector.states import Event, State

INTENDED_AT_ONCE = 64  # intents that share a commit (design 4.1): the disk is waited for once for all of them
_UNKNOWN_CANARIES = 3
_REFUSED_CANARIES = 20
_FAILURES_IN_A_ROW = 100  # at least; and more than are under way at once, so that one hiccup of a server is not the end
_CUT_OFF = Verdict(Event.LOST, message="the run was cut off while this was under way")
_STOPPED = Verdict(Event.NOT_SENT, message="the run was stopped before it was sent")
_STALE = Verdict(Event.NOT_SENT, message="it grew old that nobody was there", is_stale=True)

Take = Callable[[int], list[Candidate]]
Settle = Callable[[Candidate, Verdict], None]


class Creator:
    """Sends candidates and tells each one's verdict; it keeps the canary's and the pause's state for a whole run."""

    def __init__(self, session: Session, refusals: Refusals, on_verdict: Settle) -> None:
        self._session = session
        self._refusals = refusals
        self._on_verdict = on_verdict
        self._is_proved = False
        self._unknown_canaries: set[bytes] = set()  # different ones: one alone is sent again as often as anybody
        self._refused: Counter[str] = Counter()
        self._failures = 0
        self._throttle = Throttle(session)

    async def create(self, take: Take) -> None:
        """Send all that `take(n)` gives, n at a time at most, until it gives nothing or the run is to stop.

        What is under way when the run is to stop is finished within the grace period, or lost.
        """
        self._session.activity = "creating"
        await self._session.within_grace(self._create(take))
        await self._session.journal.flush()

    async def _create(self, take: Take) -> None:
        while not self._is_proved and not self._session.stopping.is_set():
            canary = take(1)
            if not canary:
                return
            await self._intend(canary)
            await self._send_canary(canary[0])
            await self._session.journal.flush()
        if not self._session.stopping.is_set():
            await self._create_together(take)

    async def _intend(self, candidates: Sequence[Candidate]) -> None:
        try:
            await self._session.journal.intend(candidates)
        except asyncio.CancelledError:  # the commit is made all the same, and nothing of it was sent
            for candidate in candidates:
                self._tell(candidate, _STOPPED)
            raise

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
            self._unknown_canaries.add(candidate.intent.identity)
            if verdict.is_misdirected or len(self._unknown_canaries) >= _UNKNOWN_CANARIES:
                self._session.end(
                    f"the run's first creates could not be told to have worked ({verdict.message}): "
                    "nothing more was sent; run again once the service answers as its document says"
                )
        self._tell(candidate, verdict)
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
        waiting: dict[bytes, Candidate] = {}  # intended, and not begun
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(limit):
                    group.create_task(self._work(ready, waiting))
                try:
                    while not self._session.stopping.is_set() and (batch := take(INTENDED_AT_ONCE)):
                        await self._intend(batch)
                        waiting.update((candidate.intent.identity, candidate) for candidate in batch)
                        for candidate in batch:
                            await ready.put(candidate)
                    for _ in range(limit):
                        await ready.put(None)
                except BaseException:
                    _dismiss(ready)
                    raise
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for candidate in waiting.values():
                self._tell(candidate, _STOPPED)

    async def _work(self, ready: asyncio.Queue[Candidate | None], waiting: dict[bytes, Candidate]) -> None:
        while (candidate := await ready.get()) is not None:
            if not self._session.stopping.is_set():
                del waiting[candidate.intent.identity]
                _, verdict = await self._attempt(candidate)
                self._tell(candidate, verdict)

    async def _attempt(self, candidate: Candidate) -> tuple[object, Verdict]:
        """Send one create until it is answered with anything but a refusal for its rate; not once it has grown old that
        nobody is there."""
        if_cancelled = _STOPPED
        try:
            while await self._throttle.enter():
                if self._session.clock.monotonic() > candidate.known_until:
                    self._throttle.leave()
                    return None, _STALE
                if_cancelled = _CUT_OFF
                answer = await self._send(candidate)
                verdict = judge_answer(answer, candidate, self._session.journal.base, self._session.asked_name)
                if isinstance(answer, Refused):
                    verdict = await self._judge_refusal(candidate, verdict)
                if verdict.event is not Event.REFUSED or verdict.status != TOO_MANY_REQUESTS:
                    self._watch(verdict)
                    return answer, verdict
                if_cancelled = _STOPPED
        except asyncio.CancelledError:  # what is cut off while it is under way may have been executed
            self._tell(candidate, if_cancelled)
            raise
        return None, _STOPPED

    async def _judge_refusal(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """A refusal is believed once the first of its kind has been looked up (design 4.8)."""
        if not self._is_proved and verdict.status in ENDS_A_RUN:
            return verdict  # it says nothing of a row: the run ends, and the next one looks for everybody anew
        await self._throttle.wait_for_pause()  # no look-up, either, leaves before the service wants to hear from us
        return replace(verdict, event=await self._refusals.judge(candidate, verdict))

    async def _send(self, candidate: Candidate) -> Created | Refused | Ambiguous | NotSent:
        try:
            answer = await self._session.retrier.create(self._session.client, candidate.intent.body, self._session.rest)
        finally:
            self._throttle.leave()
        if isinstance(answer, Refused) and answer.status == TOO_MANY_REQUESTS:
            self._throttle.note_refused(answer.retry_after_s)
        else:
            self._throttle.note_taken()
        return answer

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
            field = candidate.intent.field
            now, value = self._session.clock.monotonic(), str(candidate.sent[field])
            self._session.witnesses.append(Witness(now, verdict.subscriber_id, field, value))
        self._session.journal.note(candidate, _keep_entry(candidate, verdict))
        self._on_verdict(candidate, verdict)


def _dismiss(ready: asyncio.Queue[Candidate | None]) -> None:
    """Let each worker find its end in the queue: aiohttp may take the cancellation of one for its own time-out, if that
    falls due at the same moment, and nobody cancels it a second time."""
    while not ready.empty():
        ready.get_nowait()
    while not ready.full():
        ready.put_nowait(None)


def _keep_entry(candidate: Candidate, verdict: Verdict) -> Verdict:
    """What never left has no entry, unless that may be all that is known of somebody: then it stays, with its body, as
    what it was, for a later run (design 4.4)."""
    if verdict.event is Event.NOT_SENT and candidate.left is State.UNKNOWN:
        return replace(verdict, event=Event.LOST)
    if verdict.event is Event.NOT_SENT and candidate.refused is not None:
        status, words = candidate.refused
        return Verdict(Event.REFUSED, status=status, message=words)
    return verdict
