"""Checks refused creates by look-ups (architecture 4.8).

The service may refuse a create and store the subscriber all the same. So every refused row is looked up once at the
end of a run: a subscriber that is found is confirmed, and every other row is rejected with the service's message. A
create that was answered with 429 is settled with the unresolved creates instead (`connector.load.resolution`). A
refusal that is not final (`NOT_FINAL`) is sent again by the next run.
"""

import asyncio
from collections.abc import Sequence

from connector.ledger.entries import Entry, Ledger, Unfinished
from connector.ledger.records import RefusingRun, find_refusing_runs
from connector.listing.access import LookupKey
from connector.listing.pages import ListFailed, fetch_page
from connector.load.candidates import ENDS_A_RUN
from connector.load.lookups import look_for
from connector.load.session import Session
from connector.service.wire import ListQuery


class Refusals:
    """Decides which refused creates are looked up, and which of them an earlier run left to be sent again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._refusing_runs: dict[int, RefusingRun] = {}  # by the key of the run
        self._recent_after = float("-inf")  # Unix seconds
        self._check_of_list: asyncio.Task[None] | None = None

    async def begin(self) -> list[bytes]:
        """Move the base's refusals that are not final to UNKNOWN; return the identities of these entries.

        Raises LedgerError.
        """
        session, base = self._session, self._session.journal.base
        self._recent_after = session.clock.now().timestamp() - 2 * session.access.shown_after_s

        def write(ledger: Ledger) -> tuple[list[bytes], list[RefusingRun]]:
            identities = ledger.find_not_final(base)
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
        """Cancel a request for the list that is still under way."""
        if self._check_of_list is not None:
            self._check_of_list.cancel()
            await asyncio.gather(self._check_of_list, return_exceptions=True)

    async def check_list(self) -> None:
        """End the run if the service refuses the list as well: the refusal is about the token or the address.

        Refusals that arrive while the list is being asked share the answer. A job that skips look-ups asks nothing.
        """
        if not self._session.policy.is_looking:
            return
        if self._check_of_list is None or self._check_of_list.done():
            self._check_of_list = asyncio.ensure_future(self._ask_list())
        await asyncio.shield(self._check_of_list)

    async def _ask_list(self) -> None:
        try:
            await fetch_page(self._session.access.client, self._session.access.retrier, ListQuery(limit=1))
        except ListFailed as failure:
            if failure.status in ENDS_A_RUN:
                self._session.control.end(f"the service refuses creates and its list alike: {failure}")
