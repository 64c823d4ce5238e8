"""Sends creates by the sending engine, checks their answers by look-ups, and ends a run if the answers demand it
(architecture 4.8, 4.9)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from connector.ledger.entries import NOT_FINAL_STATUSES, Move
from connector.limiter import RequestLimiter
from connector.listing.access import Sentinel, shows_identity
from connector.listing.answered import KnownSubscriber, find_ids, find_known, list_id
from connector.listing.pages import ListFailed, fetch_page
from connector.listing.requests import build_query
from connector.load.answers import CreateAnswer, choose_recorded_move, classify_answer
from connector.load.candidates import ENDS_A_RUN, Candidate, describe_other
from connector.load.outcomes import Outcomes
from connector.load.session import Canaries, Session
from connector.pace.pace import Pace
from connector.sender import FetchItems, GiveUpReason, Sender
from connector.service.answers import is_about_row, refusal_kind
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    Ambiguous,
    Created,
    ListQuery,
    Refused,
    read_base,
)
from connector.states import Event, State
from connector.texts import agree, count

_UNKNOWN_CANARIES = 3
_REFUSED_CANARIES = 20
_EXISTING = 3  # answered subscribers that existed before; then the run ends
_CAREFUL = 512  # creates that leave in rounds of a quarter of the earlier creates: 28 rounds, at first of one create
_PLANNED_AT_ONCE = 1024  # candidates of a plan between two looks for signals
_LOST_IN_A_ROW = 100  # unreadable answers in a row, and more than are in flight when a server hiccups
_GIVEN_UP = {
    GiveUpReason.STOPPED: Move(Event.NOT_SENT, message=GiveUpReason.STOPPED.value),
    GiveUpReason.STALE: Move(Event.NOT_SENT, message=GiveUpReason.STALE.value, is_stale=True),
    GiveUpReason.CUT_OFF: Move(Event.LOST, message=GiveUpReason.CUT_OFF.value),
}

WHAT_TO_DO = "Nothing more was sent. Look at that subscriber, then decide on what is held by connector retry"


class Creator:
    """Sends the candidates of one base, and records in `outcomes` how each create has ended: a `Delivery` with its
    `Sender`. Close it in any case."""

    most_at_once = 256  # of a fast service: 14 µs a create in commits, where groups of 64 took 22 to 32

    def __init__(self, session: Session, outcomes: Outcomes) -> None:
        self.is_proved = False
        self._session, self._outcomes = session, outcomes
        self._list_check: asyncio.Task[None] | None = None
        self._own = Canaries()
        self._open = 0  # creates that were taken and have not ended
        self._harmless = 0  # creates that have ended since the last one that met an existing subscriber
        self._have_all_ended = asyncio.Event()
        self._limited: dict[bytes, Move] = {}  # refused with 429 last, and to be sent again, by identity
        self._answered_base: tuple[int, str] | None = None  # as the first accepted create was answered
        policy, control = session.policy, session.control
        pace = session.pace or Pace(policy.max_rate, policy.max_concurrency)
        self._limiter = RequestLimiter(control, session.access.client, pace, "create")
        self._sender: Sender[Candidate, CreateAnswer, Move] = Sender(
            control, self._limiter, session.access.retrier, self, policy.max_concurrency
        )

    async def create(self, take: FetchItems[Candidate]) -> None:
        """Send all candidates that `fetch` returns, until it returns none or the run must stop. After a stop, a request
        under way ends within the grace period, or is lost."""
        control = self._session.control
        control.activity = "creating"
        known = self._session.access.known_ids
        if known.largest_ledger_id is None:
            known.largest_ledger_id = await self._session.journal.ask(lambda ledger: ledger.read_largest_id())
        await control.within_grace(self._sender.send(partial(self._take, take)), self._session.policy.grace_s)
        await self._session.journal.flush()

    async def _take(self, take: FetchItems[Candidate], number: int) -> list[Candidate]:
        """Return the next candidates. If creates may move or merge subscribers, return them in small rounds: a round
        ends before the next one leaves, so that few are moved before the answers show it."""
        if self.is_proved:
            await self._end_if_repeated()
            if self._session.control.is_stopping:
                return []
        if self._harmless < _CAREFUL and self._session.access.known_ids.has_earlier_subscribers:
            while self._open:
                self._have_all_ended.clear()
                await self._have_all_ended.wait()
            if self._session.control.is_stopping:
                return []
            number = min(number, max(1, self._harmless // 4))
        taken = await take(number)
        self._open += len(taken)
        return taken

    async def _end_if_repeated(self) -> None:
        """Look the first subscriber of the run up. End the run if the list shows the subscriber twice. If the list does
        not show the subscriber yet, a later call looks again. Raises RunAborted."""
        session, first = self._session, self._session.canaries.first
        times = session.canaries.looks_after_s
        if first is None or not times or not session.policy.is_looking:
            return
        if session.clock.monotonic() < first.confirmed_at + times[0]:
            return
        times.pop(0)
        ids, twins = await find_ids(session.access, first, build_query(first.field, first.value))
        if ids:
            times.clear()
        session.tally.record_twins(twins)
        if len(twins) > 1:
            session.control.end(
                "the list shows the first new subscriber twice. A proxy or the service executes requests twice, or "
                "another program creates the same people. No other row was sent. Find the cause before you run again"
            )

    def find_deadline(self, candidate: Candidate) -> float:
        """Return the time (monotonic) until which the candidate may be sent.

        Until then the look-up of its subscriber is fresh, and the run holds its lease of the ledger."""
        return min(candidate.known_until, self._session.journal.sends_until)

    async def intend(self, candidates: Sequence[Candidate]) -> None:
        """Return when the intents of these candidates are durable."""
        self._session.access.known_ids.begin_creating()
        new = sum(
            candidate.entry_state is not State.UNKNOWN for candidate in candidates
        )  # an unresolved row was taken before
        self._session.tally.add_taken(new)
        try:
            names = [str(candidate.sent[candidate.intent.field]) for candidate in candidates]
            intents = [(candidate.entry_state, candidate.intent) for candidate in candidates]
            await self._session.journal.intend(intents, names)
        except Exception:  # the intents are not durable, so no create leaves
            self._session.tally.remove_taken(new)
            raise

    async def attempt(self, candidate: Candidate) -> CreateAnswer:
        """Create one subscriber (service-api.md 4.2), and mark a refusal that may pass."""
        candidate.sent_at = self._session.clock.monotonic()
        answer = await self._session.access.client.create_subscriber(candidate.intent.body)
        if isinstance(answer, Created | Refused):
            return self._mark_passing(candidate, answer)
        return answer

    def _mark_passing(self, candidate: Candidate, answer: Created | Refused) -> Created | Refused:
        """Return the answer, with a mark if it is a refusal that may pass. A 429 needs no mark, and does not break a
        row of refusals."""
        passing, sent_at = self._session.passing, candidate.sent_at
        before = "" if candidate.refused is None else refusal_kind(*candidate.refused)
        if isinstance(answer, Created):
            passing.record_accepted(sent_at, before)
        elif is_about_row(answer.status, answer.message, candidate.name):
            passing.break_row()
        elif answer.status != TOO_MANY_REQUESTS:
            kind = refusal_kind(answer.status, answer.message)
            if answer.retry_after_s is not None:
                passing.record_limit(kind)
            now = self._session.clock.monotonic()
            return replace(answer, may_pass=passing.record_refused(kind, sent_at, now, is_again=kind == before))
        return answer

    async def classify(self, candidate: Candidate, answer: CreateAnswer) -> Move | None:
        """Return the meaning of the answer, or None if the create had no effect and must be sent again."""
        move = classify_answer(answer, candidate, self._session.journal.base, self._session.access.asked_name)
        if isinstance(answer, Created):
            move = await self._verify(answer, move)
        if move.event is Event.NOT_SENT:
            return None
        if move.may_pass:
            self._end_lasting(move)
            if not self.is_proved:  # the base's first creates: all may be refused because of the base
                self._watch_first(candidate, answer, move)
        if move.is_limited and self._session.policy.is_looking:
            return move
        if move.status == TOO_MANY_REQUESTS and move.is_limited:  # no look-ups: the refusal is believed
            self._limited[candidate.intent.identity] = move
            return None
        move.may_pass = False
        if move.event is Event.REFUSED and move.status in ENDS_A_RUN:
            await self._end_if_list_is_refused()
        self._watch(move)
        if not self.is_proved:
            self._watch_first(candidate, answer, move)
        return move

    def finish(self, candidate: Candidate, move: Move) -> None:
        """Record the move for the next commit, and the outcome."""
        session, field = self._session, candidate.intent.field
        self._limited.pop(candidate.intent.identity, None)
        if move.event is Event.ANSWERED and move.subscriber_id is not None:
            now, value = session.control.clock.monotonic(), str(candidate.sent[field])
            base_id = self._answered_base[0] if self._answered_base else session.journal.base.service_id
            is_active = candidate.sent.get("is_active") is True
            sentinel = Sentinel(now, move.subscriber_id, field, value, candidate.sent_at, is_active, base_id)
            session.access.sentinels.append(sentinel)
            session.canaries.first = session.canaries.first or sentinel
        session.journal.record(candidate.intent.identity, choose_recorded_move(candidate, move))
        self._harmless = 0 if move.is_known else self._harmless + 1
        self._open -= 1
        if not self._open:
            self._have_all_ended.set()
        self._outcomes.record(candidate, move)

    def give_up(self, candidate: Candidate, reason: GiveUpReason) -> None:
        """Record the end of a create without an answer.

        A create that was refused with 429 before is REFUSED, or unknown if this run must send it again, and never
        NOT_SENT (architecture 4.8).
        """
        move, refusal = _GIVEN_UP[reason], self._limited.get(candidate.intent.identity)
        if refusal is not None and move.event is Event.NOT_SENT:
            move = replace(refusal, event=Event.LOST) if move.is_stale else refusal
        self.finish(candidate, move)

    async def record(self) -> None:
        """Make the recorded moves durable. Entries of a base that is known by its name alone move to the answered
        base."""
        journal = self._session.journal
        if self._answered_base not in (None, (journal.base.service_id, journal.base.name)):
            await journal.learn_base(*self._answered_base)
        await journal.flush()

    async def _end_if_list_is_refused(self) -> None:
        """End the run if the service refuses the list as well: the refusal is about the token or the address.

        Refusals that arrive while the list is being requested share the answer. Without look-ups, do nothing.
        """
        if not self._session.policy.is_looking:
            return
        if self._list_check is None or self._list_check.done():
            self._list_check = asyncio.ensure_future(self._request_list())
        await asyncio.shield(self._list_check)

    async def _request_list(self) -> None:
        try:
            await fetch_page(self._session.access.client, self._session.access.retrier, ListQuery(limit=1))
        except ListFailed as failure:
            if failure.status in ENDS_A_RUN:
                self._session.control.end(f"the service refuses creates and its list alike: {failure}")

    async def close(self) -> None:
        """Cancel a request for the list that is still under way."""
        if self._list_check is not None:
            self._list_check.cancel()
            await asyncio.gather(self._list_check, return_exceptions=True)

    async def _verify(self, answer: Created, move: Move) -> Move:
        """Return the move after look-ups in the service and the ledger: an answered subscriber that existed before the
        create is held."""
        session = self._session
        known = await find_known(session.access, answer.subscriber_id)
        if not self.is_proved and move.event is Event.ANSWERED and session.policy.is_looking:
            await self._end_if_unreadable(answer.subscriber_id)
        if known is None or move.event is not Event.ANSWERED:
            return move
        words = f"the service answered with subscriber {known.subscriber_id}, {_describe_known(known)}"
        return Move(Event.MISANSWERED, known.subscriber_id, answer.status, words, is_known=True)

    async def _end_if_unreadable(self, subscriber_id: int) -> None:
        """End the run if no row of the list has shown the identity yet, and the row of this new subscriber does not
        either: the list would show nobody who exists."""
        access, field = self._session.access, self._session.policy.identity
        stats = access.state.stats
        if stats is None or field in stats.shown_fields:
            return
        rows = await list_id(access, subscriber_id, is_waiting=access.known_ids.has_earlier_subscribers)
        if rows and not any(shows_identity(row, field) for row in rows):
            self._session.control.end(
                f"the list shows the new subscriber {subscriber_id} without the {field} that was sent, so nothing "
                "tells who exists. Nothing more was sent. Set load.look to none to create without looking, which "
                "creates existing subscribers a second time"
            )

    def _end_lasting(self, move: Move) -> None:
        """End the run if nothing but refusals of one kind has come for a minute after accepted creates."""
        session = self._session
        if session.passing.has_lasted(session.clock.monotonic()):
            session.control.end(
                f"the service accepted creates, and has refused the last {session.passing.count:,} for the same reason "
                f"({move.status}: {move.message or 'no words'}). No other row was sent: the report counts these "
                "rows as unsent. Look at the service's words, then run again later. The next run sends one of the "
                "refused rows again, and the others if that one is accepted"
            )

    def _watch(self, move: Move) -> None:
        """End the run when too many answers in a row are unusable, when the service redirects, or when it answers
        with another base."""
        control, canaries = self._session.control, self._session.canaries
        if move.is_known:
            self._watch_existing(move)
        if move.answered_base is not None:
            control.end(f"{move.message}. {WHAT_TO_DO}")
        if move.event in (Event.ANSWERED, Event.REFUSED, Event.MISANSWERED):
            canaries.lost = 0
            return
        if move.status is None or move.status >= 500:
            return  # the limiter's business
        canaries.lost += 1
        if 300 <= move.status < 400:
            control.end(f"the service redirects (status {move.status}): correct the base URL and run again")
        elif canaries.lost >= max(_LOST_IN_A_ROW, 2 * self._limiter.allowed):
            control.end(
                f"{canaries.lost} creates in a row had no readable answer (last: {move.message}): "
                "run again when the service is well; what was sent will be looked up first"
            )

    def _watch_existing(self, move: Move) -> None:
        """End the run after three answers with existing subscribers, or after one if no create has been accepted
        yet."""
        existing = self._session.canaries.existing
        existing.append(move.subscriber_id or 0)
        if len(existing) >= _EXISTING or not self.is_proved:
            ids, number = ", ".join(map(str, existing)), len(existing)
            self._session.control.end(
                f"the service answered {count(number, 'create')} with {agree(number, 'a subscriber', 'subscribers')} "
                f"that existed before ({agree(number, 'id', 'ids')} {ids}): it merges subscribers, or moves them from "
                "one base to another. No other row was sent. The rejects file names who was changed; look at these "
                "subscribers in the service before you run again"
            )

    def _watch_first(self, candidate: Candidate, answer: CreateAnswer, move: Move) -> None:
        """End the run after too many failed creates, as long as the run, or this base, has no accepted create."""
        session = self._session
        canaries = self._own if session.canaries.is_answered else session.canaries
        is_again = (
            candidate.entry_state is State.UNKNOWN and candidate.refused is not None
        )  # one refused row says little
        if move.event is Event.ANSWERED and isinstance(answer, Created):
            self.is_proved = session.canaries.is_answered = True
            service_id, name = read_base(answer.subscriber)
            self._answered_base = None if service_id is None or name is None else (service_id, name)
        elif move.event is Event.REFUSED and move.status in ENDS_A_RUN and not is_again:
            session.control.end(
                f"the service refused the first create with status {move.status}: {move.message or 'no words'}. "
                "Look at the token, its prefix (service.authorization) and the base URL, then run again"
            )
        elif move.event is Event.REFUSED:
            kind = refusal_kind(move.status or 0, move.message)
            canaries.refused[kind] += 1
            if canaries.refused[kind] >= _REFUSED_CANARIES:
                what_to_do = "run again once the service accepts creates"
                if move.status not in NOT_FINAL_STATUSES:
                    what_to_do = f"correct the mapping or the base, or {what_to_do}"
                session.control.end(
                    f"the service refused each of the run's first {_REFUSED_CANARIES} creates alike ({kind}): "
                    f"{what_to_do}"
                )
        elif move.event is Event.MISANSWERED:
            session.control.end(f"{move.message}. {WHAT_TO_DO}")
        elif isinstance(answer, Ambiguous) and answer.is_without_id:
            session.control.end(
                f"{move.message} (such as a UUID), and the connector needs whole numbers. Nothing more was sent. "
                "The service may have created that subscriber: look at it. Ask the service's operator for numeric ids"
            )
        elif move.event is Event.LOST:
            canaries.unknown.add((session.journal.base.key, candidate.intent.identity))
            if len(canaries.unknown) >= _UNKNOWN_CANARIES:
                session.control.end(
                    f"the run's first creates got no usable answer ({move.message}): "
                    "nothing more was sent; run again once the service answers as its document says"
                )


async def plan_creates(session: Session, outcomes: Outcomes, fetch: FetchItems[Candidate]) -> None:
    """Record all candidates that `fetch` returns as to be created. Send nothing, and record nothing in the ledger."""
    while not session.control.is_stopping and (batch := await fetch(_PLANNED_AT_ONCE)):
        for candidate in batch:
            session.tally.add_taken(candidate.entry_state is not State.UNKNOWN)
            outcomes.record(candidate, Move(Event.ANSWERED))
        await asyncio.sleep(0)


def _describe_known(known: KnownSubscriber) -> str:
    """Return what the run knows of a subscriber that existed before a create. The text may hold an address."""
    text = "" if known.text is None else f" as {known.text!r}"
    base = "" if known.base == (None, None) else f" in the base {describe_other(*known.base)}"
    return f"which existed before{text}{base}"
