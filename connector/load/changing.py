"""Tells of rows whose source differs from what was sent, with the fields in which it does; and notes what the first row
of somebody says whom a listing brought."""

from collections.abc import Mapping, Sequence

from connector.errors import LedgerError
from connector.ledger import SentFields
from connector.load.candidates import Planned, Row, take_rows
from connector.load.drift import Told, build_change, tell_rows
from connector.load.session import Session


class Changes:
    """Those of one load, each counted and told once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._noted: list[tuple[Row, Told]] = []

    async def tell(self, planned: Planned, places: Sequence[int]) -> None:
        """The rows at these places (0-based) have changed."""
        if places:
            positions = planned.subscribers.index[list(places)].tolist()
            told = tell_rows(planned, places, self._session.policy.identity, self._session.mapping)
            changed = list(zip(take_rows(planned.chunk, positions), told, strict=True))
            self._report(changed, await self._find_sent([each for _, each in changed]))

    async def record_first(self, planned: Planned, places: Sequence[int]) -> None:
        """The rows at these places are the first to tell of their identities."""
        if places:
            session, base = self._session, self._session.journal.base
            key = session.mapping.key if session.mapping is not None else 0
            told = tell_rows(planned, places, session.policy.identity, session.mapping)
            rows = [(each.identity, each.fingerprint, key, each.digests) for each in told]
            await session.journal.ask(lambda ledger: ledger.record_fingerprints(base, rows))

    def note(self, row: Row, told: Told) -> None:
        """This row has changed, as it turned out; to be told at the next `flush`."""
        self._noted.append((row, told))

    async def flush(self) -> None:
        """Tell those that were noted; without their fields, where the ledger fails. Raises its error then.

        They stay noted when it is cancelled: none may end without an outcome.
        """
        if not self._noted:
            return
        try:
            sent = await self._find_sent([told for _, told in self._noted])
        except LedgerError:
            self._report_noted({})
            raise
        self._report_noted(sent)

    def _report_noted(self, sent: Mapping[bytes, SentFields]) -> None:
        noted, self._noted = self._noted, []
        self._report(noted, sent)

    async def _find_sent(self, told: Sequence[Told]) -> dict[bytes, SentFields]:
        base, identities = self._session.journal.base, [each.identity for each in told]
        return await self._session.journal.ask(lambda ledger: ledger.find_sent_fields(base, identities))

    def _report(self, changed: Sequence[tuple[Row, Told]], sent: Mapping[bytes, SentFields]) -> None:
        base_key = self._session.journal.base.key
        for row, told in changed:
            change = build_change(row, told, sent.get(told.identity), self._session.mapping, base_key)
            self._session.tally.report_change(change)
