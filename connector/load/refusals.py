"""Chooses the refused creates of earlier runs that this run sends again, and looks refused rows up (architecture 4.8).

The service may refuse a create and store the subscriber all the same. So every refused row is looked up once at the end
of a run. If the look-up shows the subscriber, the entry is confirmed. Every other row is rejected with the service's
message. A 429 is handled elsewhere: `connector.load.resolution` settles its create with the unresolved creates. The
same is true for a refusal that may be temporary.

The next run sends a create again if its refusal is not final (`NOT_FINAL_STATUSES`). If many entries share a kind of
refusal, the next run sends only one of their creates again.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from connector.ledger.entries import NOT_FINAL_STATUSES, Entry, Ledger, Refusal, UnfinishedEntry
from connector.ledger.records import RunWithRefusals, find_runs_with_refusals
from connector.listing.access import LookupKey
from connector.load.lookups import look_up_all
from connector.load.session import Session
from connector.pace.refusals import SERIES_LENGTH
from connector.rows import LoadRow
from connector.service.answers import build_refusal_kind, is_about_row
from connector.states import State


class EarlierRefusals:
    """Decides which refused creates of earlier runs are sent again, and which refused rows are looked up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._runs_with_refusals: dict[int | None, RunWithRefusals] = {}  # by the key of the run
        self._recent_after = float("-inf")  # a refusal is recent if its run ended after this time (Unix seconds)
        # These creates were refused recently, so a later run must look their subscribers up again.
        self._recently_refused_identities = set[bytes]()

    async def choose_retried_refusals(self) -> None:
        """Choose the refused creates of the base that this run sends again, and move their entries to UNKNOWN. Raises
        LedgerError.

        If many entries share a kind of refusal, choose one entry of this kind. The other entries wait until the service
        has accepted the create of the chosen entry. Of other kinds, choose every refusal that is not final. If the run
        has planned all rows before this load (the survey), use the choice of the survey.
        """
        session, base = self._session, self._session.ledger_writer.base
        self._recent_after = session.clock.now().timestamp() - 2 * session.list_access.expected_lag_s

        def update_ledger(ledger: Ledger) -> list[RunWithRefusals]:
            runs_with_refusals, refusals = find_runs_with_refusals(ledger.connection, base), ledger.find_refusals(base)
            if session.retried_refusals:
                identities = {refusal.identity for refusal in refusals}
                session.retried_refusals = {
                    identity: refusal
                    for identity, refusal in session.retried_refusals.items()
                    if identity in identities
                }
            else:
                self._choose_refusals(refusals)
            ledger.mark_unresolved(base, list(session.retried_refusals))
            return runs_with_refusals

        self._runs_with_refusals |= {run.run_key: run for run in await session.ledger_writer.execute(update_ledger)}

    def _choose_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Choose the refused creates that this run sends again at once. Other creates of a kind wait until the chosen
        create of this kind is accepted."""
        session, refusals_by_kind = self._session, defaultdict[str, list[Refusal]](list)
        for refusal in refusals:
            refusals_by_kind[build_refusal_kind(refusal.status, refusal.message)].append(refusal)
        for refusal_kind, similar_refusals in refusals_by_kind.items():
            is_cause_shared = len(similar_refusals) >= SERIES_LENGTH and not is_about_row(
                similar_refusals[0].status, similar_refusals[0].message
            )
            if is_cause_shared:
                session.temporary_refusals.earlier_kinds.add(refusal_kind)
                session.waiting_refusals.update((refusal.identity, refusal) for refusal in similar_refusals)
                chosen_refusals = [
                    similar_refusals[int.from_bytes(session.list_access.draw_bytes(8), "big") % len(similar_refusals)]
                ]
            else:
                chosen_refusals = [refusal for refusal in similar_refusals if refusal.status in NOT_FINAL_STATUSES]
            for refusal in chosen_refusals:
                session.retried_refusals[refusal.identity] = refusal
                session.waiting_refusals.pop(refusal.identity, None)

    async def reopen_waiting_refusals(self, *, is_resending_all: bool) -> dict[bytes, Refusal]:
        """Move the entries that need not wait any longer from REJECTED to UNKNOWN, and return their refusals by
        identity. Raises LedgerError.

        An entry waits until a create with the same kind of refusal was sent again and accepted. With
        `is_resending_all`, an entry waits only if its refusal is final, because a person wants to send the other
        creates again. Leave out entries that this run has changed meanwhile.
        """
        session, base = self._session, self._session.ledger_writer.base
        refusals = [
            refusal
            for refusal in session.waiting_refusals.values()
            if build_refusal_kind(refusal.status, refusal.message) in session.temporary_refusals.accepted_kinds
            or (is_resending_all and refusal.status in NOT_FINAL_STATUSES)
        ]
        if not refusals:
            return {}

        def update_ledger(ledger: Ledger) -> dict[bytes, Refusal]:
            entries = ledger.find_entries(base, [refusal.identity for refusal in refusals])
            reopened_refusals = {
                refusal.identity: refusal
                for refusal in refusals
                if _has_refusal(entries.get(refusal.identity), refusal)
            }
            ledger.mark_unresolved(base, list(reopened_refusals))
            return reopened_refusals

        for refusal in refusals:
            del session.waiting_refusals[refusal.identity]
        return await session.ledger_writer.execute(update_ledger)

    def find_recently_refused_identities(self, refusals: Iterable[Refusal]) -> set[bytes]:
        """Return the identities of the refusals that are so recent that the list may not show their subscribers yet."""
        return {refusal.identity for refusal in refusals if self.is_recent_refusal(refusal)}

    def is_recent_refusal(self, entry: Entry | UnfinishedEntry | Refusal) -> bool:
        """Return whether the refusal is recent. A recent create may have taken effect, and the list may show its
        subscriber later. So the run settles the entry (architecture 4.5) before it sends a newer row.
        """
        run = self._runs_with_refusals.get(entry.run_key)
        return run is not None and (run.ended_at is None or run.ended_at > self._recent_after)

    def is_unchecked(self, identity: bytes, entry: Entry) -> bool:
        """Return whether this run must look up the refused subscriber. This is the case if the run that recorded the
        refusal ended before its own look-up. It is also the case if that look-up was so early that the list may have
        lagged.
        """
        run = self._runs_with_refusals.get(entry.run_key)
        if run is None or (run.has_finished and entry.reported_fingerprint is not None):
            return False
        if self.is_recent_refusal(entry):
            self._recently_refused_identities.add(identity)
        return True

    async def look_up_rows(self, rows: Sequence[LoadRow]) -> None:
        """Look up the subscribers of these refused rows once. Confirm the entries of subscribers that the look-up
        shows.

        Raises ListFailed and RunAborted as a look-up does.
        """
        if not rows or not self._session.policy.looks_up_first:
            return
        keys = [LookupKey(row.identity, self._session.policy.identity_field, row.identity_text) for row in rows]
        result = await look_up_all(self._session.list_access, keys)
        ledger_writer, field = self._session.ledger_writer, self._session.policy.identity_field
        found_identities_and_ids = [(identity, ids[0]) for identity, ids in result.found_ids.items()]
        excluded_identities = {*result.found_ids, *self._recently_refused_identities}
        checked_identities = [key.identity for key in keys if key.identity not in excluded_identities]
        checked_at = self._session.clock.now().timestamp()

        def update_ledger(ledger: Ledger) -> None:
            ledger.record_listed_subscribers(ledger_writer.base, field, found_identities_and_ids)
            ledger.record_checked_identities(ledger_writer.base, ledger_writer.run_key, checked_identities, checked_at)

        await ledger_writer.execute(update_ledger)


def _has_refusal(entry: Entry | None, refusal: Refusal) -> bool:
    """Return whether the entry is still REJECTED, with the status, the message and the run of this refusal."""
    if entry is None or entry.state is not State.REJECTED:
        return False
    return (entry.status, entry.message or "", entry.run_key) == (refusal.status, refusal.message, refusal.run_key)
