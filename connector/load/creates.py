"""Sends creates with a `Sender`, checks the answers by look-ups, and ends the run if the answers show a fault
(architecture 4.8, 4.9)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from connector.ledger.entries import NOT_FINAL_STATUSES, Transition
from connector.limiter import RequestLimiter
from connector.listing.access import ConfirmedCreate, shows_identity
from connector.listing.answered import find_ids_of_confirmed_create, find_known_subscriber, find_rows_by_id
from connector.listing.requests import build_query
from connector.load.candidates import RUN_ENDING_STATUSES, Candidate, describe_base
from connector.load.create_answers import CreateAnswer, choose_recorded_transition, classify_answer
from connector.load.outcomes import Outcomes
from connector.load.session import Canaries, Session
from connector.pace.pace import Pace
from connector.pace.refusals import SERIES_LENGTH
from connector.sender import FetchItems, GiveUpReason, Sender
from connector.service.answers import build_refusal_kind, is_about_row
from connector.service.wire import (
    TOO_MANY_REQUESTS,
    UNAUTHENTICATED,
    AmbiguousResult,
    CreatedAnswer,
    Refused,
    read_base,
)
from connector.states import Event, State
from connector.texts import choose_form, count

_MAX_UNKNOWN_CANARIES = 3  # the run ends if this many of its first creates get no usable answer
_MAX_REFUSED_CANARIES = 20  # the run ends if this many of its first creates get refusals of one kind
_MAX_EXISTING_SUBSCRIBERS = 3  # the run ends after this number of answers with existing subscribers

_CREATE_COUNT_IN_SMALL_ROUNDS = 512
"""The number of first creates that are sent in small rounds. The first round has one create. Each later round has a
quarter of the number of earlier creates, but at least one.

So if the service moves or merges existing subscribers, the answers show this before many subscribers are moved. The
number 512 is an estimate."""

_PLAN_BATCH_SIZE = 1024  # a plan checks for signals after this many candidates
_MAX_LOST_CREATES_IN_A_ROW = 100  # creates in a row without a readable answer; a short fault of a server causes fewer
_TRANSITION_BY_REASON = {
    GiveUpReason.STOPPED: Transition(Event.NOT_SENT, message=GiveUpReason.STOPPED.value),
    GiveUpReason.STALE: Transition(Event.NOT_SENT, message=GiveUpReason.STALE.value, has_expired_look_up=True),
    GiveUpReason.INTERRUPTED: Transition(Event.LOST, message=GiveUpReason.INTERRUPTED.value),
}

_NEXT_STEP_TEXT = "Nothing more was sent. Look at this subscriber, then decide about the held row with connector retry"


class Creator:
    """Sends the candidates of one base, and records the result of each create in `outcomes`. The `Sender` calls the
    methods of this class as its `Delivery`."""

    max_intents_per_commit = (
        256  # intents in one commit: a create then takes 14 µs, against 22 to 32 µs with 64 intents
    )

    def __init__(self, session: Session, outcomes: Outcomes) -> None:
        self.has_accepted_item = False  # whether the service has accepted a create of this base in this run
        self._session, self._outcomes = session, outcomes
        self._base_canaries = Canaries()
        self._open_create_count = 0  # creates that were fetched and have no result yet
        # The number of results since the last create that was answered with an existing subscriber.
        self._ended_count_since_existing = 0
        self._all_ended_event = asyncio.Event()
        # The refusals (429) of creates that are sent again.
        self._refusal_transition_by_identity: dict[bytes, Transition] = {}
        self._answered_base: tuple[int, str] | None = None  # the base in the answer to the first accepted create
        policy, stop = session.policy, session.stop
        pace = session.pace or Pace(policy.max_rate, policy.max_concurrency)
        self._limiter = RequestLimiter(stop, session.list_access.client, pace, "create")
        self._sender: Sender[Candidate, CreateAnswer, Transition] = Sender(
            stop, self._limiter, session.list_access.retrier, self, policy.max_concurrency
        )

    async def create_subscribers(self, fetch: FetchItems[Candidate]) -> None:
        """Send all candidates that `fetch` returns, until `fetch` returns no candidate or the run must stop. After a
        stop, a request in flight ends within the grace period, or is lost."""
        stop = self._session.stop
        stop.activity = "creating"
        known_ids = self._session.list_access.known_ids
        if known_ids.largest_ledger_id is None:
            known_ids.largest_ledger_id = await self._session.ledger_writer.execute(
                lambda ledger: ledger.read_largest_subscriber_id()
            )
        await stop.run_with_grace(self._sender.send(partial(self._fetch_round, fetch)), self._session.policy.grace_s)
        await self._session.ledger_writer.flush()

    async def _fetch_round(self, fetch: FetchItems[Candidate], max_count: int) -> list[Candidate]:
        """Return the next candidates, at most `max_count`.

        If a create may move or merge an existing subscriber, return small rounds of candidates. A round ends before the
        next round begins. So the answers show the first moves before many subscribers are moved."""
        if self.has_accepted_item:
            await self._stop_if_created_twice()
            if self._session.stop.is_stopping:
                return []
        if (
            self._ended_count_since_existing < _CREATE_COUNT_IN_SMALL_ROUNDS
            and self._session.list_access.known_ids.has_earlier_subscribers
        ):
            while self._open_create_count:
                self._all_ended_event.clear()
                await self._all_ended_event.wait()
            if self._session.stop.is_stopping:
                return []
            max_count = min(max_count, max(1, self._ended_count_since_existing // 4))
        candidates = await fetch(max_count)
        self._open_create_count += len(candidates)
        return candidates

    async def _stop_if_created_twice(self) -> None:
        """Look up the first new subscriber of the run. End the run if the list shows the subscriber twice. If the list
        does not show the subscriber yet, a later call repeats the look-up. Raises RunAborted."""
        session, first_confirmed_create = self._session, self._session.canaries.first_confirmed_create
        delays_s = session.canaries.look_up_delays_s
        if first_confirmed_create is None or not delays_s or not session.policy.looks_up_first:
            return
        if session.clock.monotonic() < first_confirmed_create.confirmed_at + delays_s[0]:
            return
        delays_s.pop(0)
        ids, ids_shown_in_base = await find_ids_of_confirmed_create(
            session.list_access,
            first_confirmed_create,
            build_query(first_confirmed_create.field, first_confirmed_create.identity_text),
        )
        if ids:
            delays_s.clear()
        session.tally.record_duplicates(ids_shown_in_base)
        if len(ids_shown_in_base) > 1:
            session.stop.request_stop(
                "the list shows the first new subscriber twice. A proxy or the service executes requests twice, or "
                "another program creates the same people. Nothing more was sent. Find the cause before you run again"
            )

    def find_deadline(self, candidate: Candidate) -> float:
        """Return the time (monotonic) until which the candidate may be sent.

        Until then the look-up of its subscriber is fresh, and the run holds its lease of the ledger."""
        return min(candidate.valid_until, self._session.ledger_writer.send_deadline)

    async def commit_intents(self, candidates: Sequence[Candidate]) -> None:
        """Write the intents of these candidates, and return only after they are durable."""
        self._session.list_access.known_ids.record_first_create()
        # Rows with UNKNOWN entries already count as started.
        new_candidate_count = sum(candidate.entry_state is not State.UNKNOWN for candidate in candidates)
        self._session.tally.add_started_rows(new_candidate_count)
        try:
            identity_texts = [str(candidate.sent_values[candidate.intent.identity_field]) for candidate in candidates]
            intents = [(candidate.entry_state, candidate.intent) for candidate in candidates]
            await self._session.ledger_writer.commit_intents(intents, identity_texts)
        except Exception:  # the intents are not durable, so no create is sent
            self._session.tally.remove_started_rows(new_candidate_count)
            raise

    async def attempt(self, candidate: Candidate) -> CreateAnswer:
        """Create one subscriber (service-api.md 4.2), and mark a refusal that may be temporary."""
        candidate.sent_at = self._session.clock.monotonic()
        answer = await self._session.list_access.client.create_subscriber(candidate.intent.body)
        if isinstance(answer, CreatedAnswer | Refused):
            return self._mark_temporary_refusal(candidate, answer)
        return answer

    def _mark_temporary_refusal(self, candidate: Candidate, answer: CreatedAnswer | Refused) -> CreatedAnswer | Refused:
        """Return the answer. If the answer is a refusal that may be temporary, set its `may_be_temporary`. A 429 does
        not set `may_be_temporary`, and does not end a series of refusals.
        """
        temporary_refusals, sent_at = self._session.temporary_refusals, candidate.sent_at
        earlier_refusal_kind = (
            "" if candidate.earlier_refusal is None else build_refusal_kind(*candidate.earlier_refusal)
        )
        if isinstance(answer, CreatedAnswer):
            temporary_refusals.record_accepted_create(sent_at, earlier_refusal_kind)
        elif is_about_row(answer.status, answer.message, candidate.normal_identity):
            temporary_refusals.end_series()
        elif answer.status != TOO_MANY_REQUESTS:
            refusal_kind = build_refusal_kind(answer.status, answer.message)
            if answer.retry_after_s is not None:
                temporary_refusals.mark_temporary(refusal_kind)
            now = self._session.clock.monotonic()
            return replace(
                answer,
                may_be_temporary=temporary_refusals.record_refusal(
                    refusal_kind, sent_at, now, is_repeated=refusal_kind == earlier_refusal_kind
                ),
            )
        return answer

    async def classify(self, candidate: Candidate, answer: CreateAnswer) -> Transition | None:
        """Return the state transition that follows from the answer, or None if the create had no effect and must be
        sent again."""
        transition = classify_answer(
            answer, candidate, self._session.ledger_writer.base, self._session.list_access.requested_base_name
        )
        if isinstance(answer, CreatedAnswer):
            transition = await self._check_answered_subscriber(answer, transition, candidate.sent_at)
        if transition.event is Event.NOT_SENT:
            return None
        if transition.is_refusal_possibly_temporary:
            self._stop_if_refusals_continue(transition)
            if not self.has_accepted_item:  # the base may be the cause of all refusals
                self._stop_on_first_failures(candidate, answer, transition)
        if transition.is_retryable_refusal and self._session.policy.looks_up_first:
            return transition
        # Without look-ups, a create that got a 429 is sent again at once (architecture 4.8).
        if transition.status == TOO_MANY_REQUESTS and transition.is_retryable_refusal:
            self._refusal_transition_by_identity[candidate.intent.identity] = transition
            return None
        transition.is_refusal_possibly_temporary = False
        self._stop_on_faults(transition)
        if not self.has_accepted_item:
            self._stop_on_first_failures(candidate, answer, transition)
        return transition

    def finish(self, candidate: Candidate, transition: Transition) -> None:
        """Keep the state transition in memory until the next commit, and record the outcome of the row."""
        session, field = self._session, candidate.intent.identity_field
        self._refusal_transition_by_identity.pop(candidate.intent.identity, None)
        if transition.event is Event.ANSWERED and transition.subscriber_id is not None:
            now, value = session.stop.clock.monotonic(), str(candidate.sent_values[field])
            base_id = self._answered_base[0] if self._answered_base else session.ledger_writer.base.service_id
            is_active = candidate.sent_values.get("is_active") is True
            confirmed_create = ConfirmedCreate(
                now, transition.subscriber_id, field, value, candidate.sent_at, is_active, base_id
            )
            session.list_access.confirmed_creates.append(confirmed_create)
            session.canaries.first_confirmed_create = session.canaries.first_confirmed_create or confirmed_create
        session.ledger_writer.record(candidate.intent.identity, choose_recorded_transition(candidate, transition))
        self._ended_count_since_existing = (
            0 if transition.is_subscriber_older_than_create else self._ended_count_since_existing + 1
        )
        self._open_create_count -= 1
        if not self._open_create_count:
            self._all_ended_event.set()
        self._outcomes.record_result(candidate, transition)

    def give_up(self, candidate: Candidate, reason: GiveUpReason) -> None:
        """Record the result of a create that ends without an answer, for this reason.

        If the create got a 429 before, the event is never NOT_SENT, so that this run settles the entry. The event is
        LOST if the look-up has expired, and REFUSED otherwise (architecture 4.8).
        """
        transition, refusal_transition = (
            _TRANSITION_BY_REASON[reason],
            self._refusal_transition_by_identity.get(candidate.intent.identity),
        )
        if refusal_transition is not None and transition.event is Event.NOT_SENT:
            transition = (
                replace(refusal_transition, event=Event.LOST) if transition.has_expired_look_up else refusal_transition
            )
        self.finish(candidate, transition)

    async def commit_results(self) -> None:
        """Write the state transitions to the ledger. If the run knew only the name of the base, first record the Id of
        the base from the answer.
        """
        ledger_writer = self._session.ledger_writer
        if self._answered_base not in (None, (ledger_writer.base.service_id, ledger_writer.base.name)):
            await ledger_writer.record_base_id(*self._answered_base)
        await ledger_writer.flush()

    async def _check_answered_subscriber(
        self, answer: CreatedAnswer, transition: Transition, sent_at: float
    ) -> Transition:
        """Look up in the service and the ledger whether the subscriber in the answer is new, and return the state
        transition. If the subscriber existed before the create, the entry is held."""
        session = self._session
        known_subscriber = await find_known_subscriber(session.list_access, answer.subscriber_id, sent_at)
        if not self.has_accepted_item and transition.event is Event.ANSWERED and session.policy.looks_up_first:
            await self._stop_if_list_lacks_identity_field(answer.subscriber_id)
        if known_subscriber is None or transition.event is not Event.ANSWERED:
            return transition
        subscriber_id, identity_text, base = (
            known_subscriber.subscriber_id,
            known_subscriber.identity_text,
            known_subscriber.base,
        )
        message = f"the service answered with subscriber {subscriber_id}, which existed before"
        message += "" if identity_text is None else f" as {identity_text!r}"
        message += "" if base == (None, None) else f" in the base {describe_base(*base)}"
        return Transition(
            Event.MISANSWERED, subscriber_id, answer.status, message, is_subscriber_older_than_create=True
        )

    async def _stop_if_list_lacks_identity_field(self, subscriber_id: int) -> None:
        """End the run if no row of the list has shown the identity field, not even the row of this new subscriber.
        Without the field, look-ups find nobody."""
        list_access, field = self._session.list_access, self._session.policy.identity_field
        list_stats = list_access.state.list_stats
        if list_stats is None or field in list_stats.shown_fields:
            return
        rows = await find_rows_by_id(list_access, subscriber_id, can_wait=list_access.known_ids.has_earlier_subscribers)
        if rows and not any(shows_identity(row, field) for row in rows):
            self._session.stop.request_stop(
                f"the list shows the new subscriber {subscriber_id} without the {field} that was sent, so the "
                "connector cannot find out which subscribers exist. Nothing more was sent. Set `load.look: none` to "
                "create without looking, which creates existing subscribers a second time"
            )

    def _stop_if_refusals_continue(self, transition: Transition) -> None:
        """End the run if, after accepted creates, all answers of a minute are refusals of one kind. If the service
        refuses the token, end the run after 20 refusals in a row."""
        session = self._session
        refusal_count = session.temporary_refusals.series_length
        if transition.status == UNAUTHENTICATED and refusal_count >= SERIES_LENGTH:
            session.stop.request_stop(
                f"the service accepted creates, then refused the last {refusal_count:,} with "
                f"status 401 ({transition.message or 'no message'}). Nothing more was sent. Check the token, then "
                "run again: the next run sends the refused rows again"
            )
        if session.temporary_refusals.has_series_lasted_a_minute(session.clock.monotonic()):
            session.stop.request_stop(
                f"the service accepted creates, then refused the last {refusal_count:,} for the "
                f"same reason ({transition.status}: {transition.message or 'no message'}). Nothing more was sent, and "
                "the report counts the other rows as unsent. Read the service's message, then run again later. The "
                "next run sends one of the refused rows again, and the others if the service accepts that row"
            )

    def _stop_on_faults(self, transition: Transition) -> None:
        """End the run if too many answers in a row are unusable, or if the service redirects. Also end the run if an
        answer has another base, or if too many answers have existing subscribers.
        """
        stop, canaries = self._session.stop, self._session.canaries
        if transition.is_subscriber_older_than_create:
            self._stop_on_existing_subscribers(transition)
        if transition.answered_base is not None:
            stop.request_stop(f"{transition.message}. {_NEXT_STEP_TEXT}")
        if transition.event in (Event.ANSWERED, Event.REFUSED, Event.MISANSWERED):
            canaries.lost_create_count = 0
            return
        if transition.status is None or transition.status >= 500:
            return  # the limiter slows down after these answers
        canaries.lost_create_count += 1
        if 300 <= transition.status < 400:
            stop.request_stop(f"the service redirects (status {transition.status}): correct the base URL and run again")
        elif canaries.lost_create_count >= max(_MAX_LOST_CREATES_IN_A_ROW, 2 * self._limiter.max_in_flight):
            stop.request_stop(
                f"{canaries.lost_create_count} creates in a row had no readable answer (last: {transition.message}): "
                "nothing more was sent. Run again when the service works. The next run first looks up the creates that "
                "were sent"
            )

    def _stop_on_existing_subscribers(self, transition: Transition) -> None:
        """End the run after three answers with existing subscribers. If no create was accepted before, end the run
        after the first of these answers."""
        existing_ids = self._session.canaries.existing_ids
        existing_ids.append(transition.subscriber_id or 0)
        if len(existing_ids) >= _MAX_EXISTING_SUBSCRIBERS or not self.has_accepted_item:
            ids_text, create_count = ", ".join(map(str, existing_ids)), len(existing_ids)
            self._session.stop.request_stop(
                f"the service answered {count(create_count, 'create')} with "
                f"{choose_form(create_count, 'a subscriber', 'subscribers')} that existed before "
                f"({choose_form(create_count, 'id', 'ids')} {ids_text}). So the service merges subscribers, or moves "
                "them from one base to another. Nothing more was sent. The rejects file names the changed subscribers. "
                "Look at these subscribers in the service before you run again"
            )

    def _stop_on_first_failures(self, candidate: Candidate, answer: CreateAnswer, transition: Transition) -> None:
        """End the run after too many failed creates, unless the service has accepted a create of this base.

        The failures in all bases count together until the service accepts a create of the run. Then the failures in
        each base count alone."""
        session = self._session
        canaries = self._base_canaries if session.canaries.has_accepted_create else session.canaries
        # A second refusal of the same row does not count, because the row may be the cause.
        is_second_refusal = candidate.entry_state is State.UNKNOWN and candidate.earlier_refusal is not None
        if transition.event is Event.ANSWERED and isinstance(answer, CreatedAnswer):
            self.has_accepted_item = session.canaries.has_accepted_create = True
            base_id, base_name = read_base(answer.subscriber)
            self._answered_base = None if base_id is None or base_name is None else (base_id, base_name)
        elif transition.event is Event.REFUSED and transition.status in RUN_ENDING_STATUSES and not is_second_refusal:
            session.stop.request_stop(
                f"the service refused the first create with status {transition.status}: "
                f"{transition.message or 'no message'}. "
                "Check the token, its prefix (service.authorization) and the base URL, then run again"
            )
        elif transition.event is Event.REFUSED:
            refusal_kind = build_refusal_kind(transition.status or 0, transition.message)
            canaries.refusal_counts[refusal_kind] += 1
            if canaries.refusal_counts[refusal_kind] >= _MAX_REFUSED_CANARIES:
                next_step = "run again when the service accepts creates"
                if transition.status not in NOT_FINAL_STATUSES:
                    next_step = f"correct the mapping or the base, or {next_step}"
                session.stop.request_stop(
                    f"the service refused each of the run's first {_MAX_REFUSED_CANARIES} creates in the same way "
                    f"({refusal_kind}): {next_step}"
                )
        elif transition.event is Event.MISANSWERED:
            session.stop.request_stop(f"{transition.message}. {_NEXT_STEP_TEXT}")
        elif isinstance(answer, AmbiguousResult) and answer.has_unusable_id:
            session.stop.request_stop(
                f"{transition.message} (such as a UUID), and the connector needs whole numbers. Nothing more was sent. "
                "The service may have created the subscriber: look for it in the service. Ask the service's operator "
                "for numeric ids"
            )
        elif transition.event is Event.LOST:
            canaries.unknown_entries.add((session.ledger_writer.base.key, candidate.intent.identity))
            if len(canaries.unknown_entries) >= _MAX_UNKNOWN_CANARIES:
                session.stop.request_stop(
                    f"the run's first creates got no usable answer ({transition.message}): "
                    "nothing more was sent. Run again when the service answers as its documentation says"
                )


async def plan_creates(session: Session, outcomes: Outcomes, fetch: FetchItems[Candidate]) -> None:
    """Count each candidate from `fetch` with the outcome CREATED. Send nothing, and record nothing in the ledger."""
    while not session.stop.is_stopping and (batch := await fetch(_PLAN_BATCH_SIZE)):
        for candidate in batch:
            session.tally.add_started_rows(candidate.entry_state is not State.UNKNOWN)
            outcomes.record_result(candidate, Transition(Event.ANSWERED))
        await asyncio.sleep(0)
