"""Checks refused creates by look-ups (architecture 4.8).

The service may refuse a create and store the subscriber all the same. So every refused row is looked up once at the
end of a run: a subscriber that is found is confirmed, and every other row is rejected with the service's message. A
create that was answered with 429 is sent again in the same run, so the first 429 of a run is looked up at once. A
refusal that is not final (`NOT_FINAL`) is sent again by the next run.
"""

import asyncio
from collections.abc import Sequence

from connector.errors import RunAborted
from connector.ledger.entries import Entry, Ledger, Move, Unfinished
from connector.ledger.records import RefusingRun, find_refusing_runs
from connector.listing.access import LookupKey
from connector.listing.pages import ListFailed, fetch_page
from connector.load.candidates import ENDS_A_RUN, NOT_FINAL, Candidate, want_candidate
from connector.load.lookups import look_for
from connector.load.session import Session
from connector.service.wire import TOO_MANY_REQUESTS, ListQuery
from connector.states import Event

_LAG_POLL_S = 1.0
"""Seconds between two look-ups of the first 429, while the list lags."""


class Refusals:
    """Decides which refused creates are looked up, and whether a 429 of this run can be believed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._refusing_runs: dict[int, RefusingRun] = {}  # by the key of the run
        self._recent_after = float("-inf")  # Unix seconds
        self._check_of_429: asyncio.Task[bool | None] | None = None
        self._check_of_list: asyncio.Task[None] | None = None

    async def begin(self) -> list[bytes]:
        """Move the base's refusals that are not final to UNKNOWN; return the identities of these entries.

        Raises LedgerError.
        """
        session, base = self._session, self._session.journal.base
        self._recent_after = session.clock.now().timestamp() - 2 * session.access.shown_after_s

        def write(ledger: Ledger) -> tuple[list[bytes], list[RefusingRun]]:
            identities = ledger.find_refused_with(base, NOT_FINAL)
            ledger.mark_unresolved(base, identities)
            return identities, find_refusing_runs(ledger.connection, base)

        identities, runs = await session.journal.ask(write)
        self._refusing_runs = {run.run_key: run for run in runs}
        return identities

    def may_not_show_yet(self, entry: Entry | Unfinished) -> bool:
        """Return whether a subscriber that a refused create made may still be missing from the list.

        Such an entry is resolved by architecture 4.5 before a newer row is sent.
        """
        run = self._find_run(entry)
        return run is not None and (run.ended_at is None or run.ended_at > self._recent_after)

    def is_unchecked(self, entry: Entry) -> bool:
        """Return whether the run that recorded a refusal ended before it looked its refused rows up."""
        run = self._find_run(entry)
        return run is not None and not run.has_finished

    def _find_run(self, entry: Entry | Unfinished) -> RefusingRun | None:
        return None if entry.run_key is None else self._refusing_runs.get(entry.run_key)

    async def classify(self, candidate: Candidate, move: Move) -> Event:
        """Return REFUSED, or LOST for a 429 whose create may have taken effect and must not be sent again."""
        if not self._session.policy.is_looking:
            return (
                Event.REFUSED
            )  # without look-ups before creates, a subscriber that is found may be older than the create
        if move.status == TOO_MANY_REQUESTS and not await self._has_429_no_effect(candidate):
            return Event.LOST
        if move.status in ENDS_A_RUN:
            await self._end_if_list_is_refused()
        return Event.REFUSED

    async def look_up(self, keys: Sequence[LookupKey]) -> None:
        """Look these refused subscribers up once, and confirm the ones that are found.

        Raises ListFailed and RunAborted as a look-up does.
        """
        if not keys or not self._session.policy.is_looking:
            return
        result = await look_for(self._session.access, keys)
        journal, field = self._session.journal, self._session.policy.identity
        found = [(identity, ids[0]) for identity, ids in result.found.items()]
        checked = [key.identity for key in keys if key.identity not in result.found]

        def write(ledger: Ledger) -> None:
            ledger.record_listed(journal.base, field, found)
            ledger.record_checked(journal.base, journal.run_key, checked)

        await journal.ask(write)

    async def close(self) -> None:
        """Cancel look-ups that are still under way."""
        checks = [check for check in (self._check_of_429, self._check_of_list) if check is not None]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _has_429_no_effect(self, candidate: Candidate) -> bool:
        """Look the subscriber of the run's first 429 up; other 429s wait for the result of that look-up.

        After an inconclusive look-up the next 429 is looked up.
        """
        if self._check_of_429 is None or (self._check_of_429.done() and self._check_of_429.result() is None):
            self._check_of_429 = asyncio.ensure_future(self._is_absent(want_candidate(candidate)))
        return bool(await asyncio.shield(self._check_of_429))

    async def _is_absent(self, key: LookupKey) -> bool | None:
        """Return whether the subscriber is absent, or None if that cannot be proved within a quiet period.

        A list that lags does not show the subscriber yet. Then absence counts once the list shows a subscriber that was
        confirmed after the 429.
        """
        session = self._session
        answered_at = session.clock.monotonic()
        while True:
            try:
                result = await look_for(session.access, [key])
            except ListFailed as failure:
                self._end_if_refused(failure)
                return None
            except RunAborted:
                return None
            if key.identity in result.found:
                session.tally.say(
                    "The service answered 429 to a create that took effect. Creates that get a 429 in this run are "
                    "looked up before they are sent again."
                )
                return False
            if key.identity not in result.missed:
                return None
            if result.lag_s <= 0 or result.latest_seen_at > answered_at:
                return True
            is_over = session.clock.monotonic() > answered_at + session.policy.quiet_period_s
            if is_over or not await session.control.rest(_LAG_POLL_S):
                return None

    async def _end_if_list_is_refused(self) -> None:
        """End the run if the service refuses the list as well: the refusal is about the token or the address.

        Refusals that arrive while the list is being asked share the answer.
        """
        if self._check_of_list is None or self._check_of_list.done():
            self._check_of_list = asyncio.ensure_future(self._ask_list())
        await asyncio.shield(self._check_of_list)

    async def _ask_list(self) -> None:
        try:
            await fetch_page(self._session.access.client, self._session.access.retrier, ListQuery(limit=1))
        except ListFailed as failure:
            self._end_if_refused(failure)

    def _end_if_refused(self, failure: ListFailed) -> None:
        if failure.status in ENDS_A_RUN:
            self._session.control.end(f"the service refuses creates and its list alike: {failure}")
