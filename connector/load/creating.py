"""Sends creates: one alone until one is answered (the canary, architecture 4.9), then several at a time.

A candidate's intent is durable before its request leaves. Whatever was intended gets an event: what never left is put
back, and a request that is cancelled is lost, since it may have been executed.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from connector.load.ahead import Ahead
from connector.load.candidates import Candidate
from connector.load.gate import Gate
from connector.load.judging import ENDS_A_RUN, Verdict, judge_answer
from connector.load.looks.witness import Witness
from connector.load.refusing import Refusals
from connector.load.session import Canaries, Session
from connector.service import TOO_MANY_REQUESTS, Created, Refused, refusal_kind
from connector.states import Event, State

INTENDED_AT_ONCE = 64  # intents that share a commit (architecture 4.1): the disk is waited for once for all of them
_MOST_AT_ONCE = 256  # of a fast service: 14 µs a create in commits, where groups of 64 took 22 to 32
_SOON_S = 0.1  # a group that has left within it may be followed by one of twice as many
_UNKNOWN_CANARIES = 3
_REFUSED_CANARIES = 20
_LOST_IN_A_ROW = 100  # answers that tell nothing, at least; and more than are under way when a server hiccups
_CUT_OFF = Verdict(Event.LOST, message="the run was cut off while this was under way")
_STOPPED = Verdict(Event.NOT_SENT, message="the run was stopped before it was sent")
_STALE = Verdict(Event.NOT_SENT, message="it grew old that nobody was there", is_stale=True)

WHAT_TO_DO = "Nothing more was sent; look at that subscriber, and decide by connector retry what is held"

Take = Callable[[int], list[Candidate]]
Settle = Callable[[Candidate, Verdict], None]


class Creator:
    """Sends candidates and tells each one's verdict; it keeps the canary's state, and the gate, of a base in a run."""

    def __init__(self, session: Session, refusals: Refusals, on_verdict: Settle) -> None:
        self._session = session
        self._refusals = refusals
        self._on_verdict = on_verdict
        self._is_proved = False
        self._own = Canaries()
        self._gate = Gate(session)
        self._limited: dict[bytes, Verdict] = {}  # refused with 429 last, and to be sent again, by identity

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
        except asyncio.CancelledError:  # the commit is made, and nothing of it was sent
            for candidate in candidates:
                self._tell(candidate, _STOPPED)
            raise

    async def _send_canary(self, candidate: Candidate) -> None:
        answer, verdict = await self._attempt_until_told(candidate)
        if verdict.event is Event.ANSWERED and isinstance(answer, Created):
            self._is_proved = self._session.canaries.is_answered = True
        elif verdict.status in ENDS_A_RUN and verdict.event is Event.REFUSED:
            self._session.end(
                f"the service refused the first create with status {verdict.status}: {verdict.message or 'no words'}. "
                "Look at the token, its prefix (service.authorization) and the base URL, then run again"
            )
        elif verdict.event is Event.REFUSED:
            self._count_refused_canary(verdict)
        elif verdict.event is Event.MISANSWERED:
            self._session.end(f"{verdict.message}. {WHAT_TO_DO}")
        elif verdict.event is Event.LOST:
            self._canaries.unknown.add((self._session.journal.base.key, candidate.intent.identity))
            if len(self._canaries.unknown) >= _UNKNOWN_CANARIES:
                self._session.end(
                    f"the run's first creates got no usable answer ({verdict.message}): "
                    "nothing more was sent; run again once the service answers as its document says"
                )
        self._tell(candidate, verdict)
        if isinstance(answer, Created) and self._is_proved:
            await self._learn_base(answer)

    async def _attempt_until_told(self, candidate: Candidate) -> tuple[object, Verdict]:
        ended: tuple[object, Verdict] | None = None
        while ended is None:
            try:
                is_let_in = await self._gate.enter()
            except asyncio.CancelledError:
                self._tell(candidate, _STOPPED)
                raise
            ended = await self._attempt(candidate) if is_let_in else (None, _STOPPED)
        return ended

    @property
    def _canaries(self) -> Canaries:
        """Those that count: once a create of the run was answered, token and shape are right, and it is the base's
        own that tell of it."""
        of_run = self._session.canaries
        return self._own if of_run.is_answered else of_run

    def _count_refused_canary(self, verdict: Verdict) -> None:
        kind = refusal_kind(verdict.status or 0, verdict.message)
        self._canaries.refused[kind] += 1
        if self._canaries.refused[kind] >= _REFUSED_CANARIES:
            self._session.end(
                f"the service refused each of the run's first {_REFUSED_CANARIES} creates alike ({kind}): "
                "correct the mapping or the base and run again"
            )

    async def _learn_base(self, answer: Created) -> None:
        service_id, name = answer.read("base_id"), answer.read("base_name")
        base = self._session.journal.base
        if type(service_id) is int and isinstance(name, str) and (base.service_id, base.name) != (service_id, name):
            await self._session.journal.learn_base(service_id, name)

    async def _create_together(self, take: Take) -> None:
        """Each leaves as the gate lets it, while the next intents are being committed."""
        ahead = Ahead(INTENDED_AT_ONCE, self._session.policy.max_concurrency + INTENDED_AT_ONCE)
        unbegun: dict[bytes, Candidate] = {}  # a group that fails cancels tasks that have not begun: they never do
        try:
            async with asyncio.TaskGroup() as group:
                intending = group.create_task(self._intend_ahead(take, ahead))
                while await ahead.wait():
                    if not self._has_fresh(ahead):
                        continue
                    if not await self._gate.enter():
                        break
                    if not self._has_fresh(ahead):
                        self._gate.turn_back()
                        continue
                    candidate = ahead.take()
                    unbegun[candidate.intent.identity] = candidate
                    group.create_task(self._send_in_turn(candidate, ahead, unbegun))
                intending.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for candidate in unbegun.values():
                self._gate.turn_back()
                self._tell(candidate, _STOPPED)
            for candidate in ahead.take_rest():
                self._tell(candidate, _STOPPED)

    def _is_stale(self, candidate: Candidate) -> bool:
        """Whether it has grown old that nobody is there."""
        return self._session.clock.monotonic() > candidate.known_until

    def _has_fresh(self, ahead: Ahead) -> bool:
        """Whether the first of those at hand may be sent; those before it that have grown old are put back."""
        while (candidate := ahead.first) is not None and self._is_stale(candidate):
            self._tell(ahead.take(), _STALE)
            ahead.note_done()
        return candidate is not None

    async def _intend_ahead(self, take: Take, ahead: Ahead) -> None:
        number, monotonic = INTENDED_AT_ONCE, self._session.clock.monotonic
        while not self._session.stopping.is_set() and (batch := take(number)):
            intended_at = monotonic()
            await self._intend(batch)
            await ahead.put(batch)
            is_fast = monotonic() - intended_at < _SOON_S
            number = min(2 * number, _MOST_AT_ONCE) if is_fast else INTENDED_AT_ONCE
        ahead.end()

    async def _send_in_turn(self, candidate: Candidate, ahead: Ahead, unbegun: dict[bytes, Candidate]) -> None:
        """Send it and then, while one more may leave at once, the next: that spares each a task of its own."""
        del unbegun[candidate.intent.identity]
        is_next = True
        while is_next:
            ended = await self._attempt(candidate)
            if ended is None:
                ahead.take_back(candidate)
            else:
                self._tell(candidate, ended[1])
                ahead.note_done()
            if is_next := self._has_fresh(ahead) and self._gate.enter_now():
                candidate = ahead.take()
            self._gate.tell_room()

    async def _attempt(self, candidate: Candidate) -> tuple[object, Verdict] | None:
        """Send a create that has entered the gate; None if it had no effect and is to be sent again.

        Not once it has grown old that nobody is there.
        """
        try:
            if self._is_stale(candidate):
                self._gate.turn_back()
                return None, _STALE
            try:
                answer = await self._gate.send(candidate.intent.body, candidate.known_until)
            finally:
                self._gate.leave()
            verdict = judge_answer(answer, candidate, self._session.journal.base, self._session.asked_name)
            if isinstance(answer, Refused):
                self._gate.tell_room()  # to look it up takes time, and may wait for others to be created
                verdict = replace(verdict, event=await self._refusals.judge(candidate, verdict))
        except asyncio.CancelledError:  # what is cut off while it is under way may have been executed
            self._tell(candidate, _CUT_OFF)
            raise
        if _is_limited(verdict):
            self._limited[candidate.intent.identity] = verdict
        if verdict.event is Event.NOT_SENT or _is_limited(verdict):
            return None if self._is_going_on else (answer, _STOPPED)
        self._watch(verdict)
        return answer, verdict

    @property
    def _is_going_on(self) -> bool:
        return not self._session.stopping.is_set()

    def _watch(self, verdict: Verdict) -> None:
        """End the run when no answer can be understood any more, or when the service sends us elsewhere."""
        if verdict.answered_base is not None:
            self._session.end(f"{verdict.message}. {WHAT_TO_DO}")
        if verdict.event in (Event.ANSWERED, Event.REFUSED, Event.MISANSWERED):
            self._session.canaries.lost = 0
            return
        if verdict.status is None or verdict.status >= 500:
            return  # the gate's business
        self._session.canaries.lost += 1
        if 300 <= verdict.status < 400:
            self._session.end(f"the service redirects (status {verdict.status}): correct the base URL and run again")
        elif (lost := self._session.canaries.lost) >= max(_LOST_IN_A_ROW, 2 * self._gate.allowed):
            self._session.end(
                f"{lost} creates in a row had no readable answer (last: {verdict.message}): "
                "run again when the service is well; what was sent will be looked up first"
            )

    def _tell(self, candidate: Candidate, verdict: Verdict) -> None:
        verdict = self._keep_refusal(candidate, verdict)
        if verdict.event is Event.ANSWERED and verdict.subscriber_id is not None:
            field = candidate.intent.field
            now, value = self._session.clock.monotonic(), str(candidate.sent[field])
            self._session.witnesses.append(Witness(now, verdict.subscriber_id, field, value))
        self._session.journal.note(candidate, _keep_entry(candidate, verdict))
        self._on_verdict(candidate, verdict)

    def _keep_refusal(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """A create that was refused with 429 and is not sent again is a refusal, or unknown where it must be sent again
        by this run: never "not sent" (architecture 4.8)."""
        refusal = self._limited.pop(candidate.intent.identity, None)
        if refusal is None or verdict.event is not Event.NOT_SENT:
            return verdict
        return replace(refusal, event=Event.LOST) if verdict.is_stale else refusal


def _is_limited(verdict: Verdict) -> bool:
    """Whether it was refused for its rate, and that is believed to have had no effect."""
    return verdict.event is Event.REFUSED and verdict.status == TOO_MANY_REQUESTS


def _keep_entry(candidate: Candidate, verdict: Verdict) -> Verdict:
    """What never left has no entry, unless that may be all that is known of somebody: then it stays, with its body, as
    what it was, for a later run (architecture 4.4)."""
    if verdict.event is Event.NOT_SENT and candidate.left is State.UNKNOWN:
        return replace(verdict, event=Event.LOST)
    if verdict.event is Event.NOT_SENT and candidate.refused is not None:
        status, words = candidate.refused
        return Verdict(Event.REFUSED, status=status, message=words)
    return verdict
