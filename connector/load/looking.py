"""Looks people up by reading the whole list: who is in the base already, and who of the unknown is there.

Nothing the service filters is trusted: what comes back is compared here, by base and by identity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.api.listing import read_list
from connector.fields import BY_NAME
from connector.ledger import Base
from connector.load.session import Session
from connector.pages import Certificate
from connector.plan import digest_identity
from connector.protocol.requests import ListQuery

_RECORDED_AT_ONCE = 20_000  # listed subscribers that share a commit


@dataclass(frozen=True, slots=True)
class Sighting:
    """A look at the list: `found` maps identity digests to subscriber ids, `seen_ids` are the witnesses it showed.

    `started_at` is monotonic, and so is `latest_seen_at`: when the last of those witnesses was confirmed (-inf: none).
    Only a complete look (design, section 7) can say that somebody is absent.
    """

    found: Mapping[bytes, int]
    seen_ids: frozenset[int]
    latest_seen_at: float
    started_at: float
    certificate: Certificate

    @property
    def is_complete(self) -> bool:
        """Whether whoever it does not show was not on the list."""
        return self.certificate.is_complete


class BaseReader:
    """Takes from pages of the list those of one base: the digest of the identity and the id of each."""

    def __init__(self, base: Base, identity: str) -> None:
        self._base = base
        self._path = BY_NAME[identity].path[0]
        self._identity = identity
        self.ids_of_name: set[int] = set()

    def read(self, wire_objects: Sequence[dict[str, Any]]) -> list[tuple[bytes, int]]:
        """(identity, subscriber id) of those that are of the base and have an identity."""
        listed = []
        for wire in wire_objects:
            value = wire.get(self._path)
            if isinstance(value, str) and value.strip() and self._is_of_base(wire.get("Base")):
                listed.append((digest_identity(self._identity, value), int(wire["Id"])))
        return listed

    def _is_of_base(self, base: object) -> bool:
        if not isinstance(base, dict):
            return False
        if self._base.service_id is not None:
            return bool(base.get("Id") == self._base.service_id)
        if base.get("Name") != self._base.name:
            return False
        if isinstance(base.get("Id"), int):
            self.ids_of_name.add(base["Id"])
        return True


@dataclass(slots=True)
class _Recording:
    """Writes all of the base that a listing shows into the ledger. What is seen is there: no verdict is needed."""

    session: Session
    reader: BaseReader
    waiting: list[tuple[bytes, int]] = field(default_factory=list)

    def start_sweep(self, number: int) -> None:
        """Every sweep may show somebody new."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        self.waiting += self.reader.read(wire_objects)
        if len(self.waiting) >= _RECORDED_AT_ONCE:
            self.write()

    def write(self) -> None:
        listed, self.waiting = self.waiting, []
        base = self.session.journal.base
        self.session.journal.do(lambda ledger: ledger.record_listed(base, listed))


@dataclass(slots=True)
class _Searching:
    """Keeps, of a listing, the wanted identities and the witnesses of the last sweep."""

    reader: BaseReader
    wanted: frozenset[bytes]
    witnesses: frozenset[int]
    found: dict[bytes, int] = field(default_factory=dict)
    seen_ids: set[int] = field(default_factory=set)

    def start_sweep(self, number: int) -> None:
        """Presence counts in whichever sweep; witnesses only in the last, which decides."""
        self.seen_ids.clear()

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for identity, subscriber_id in self.reader.read(wire_objects):
            if identity in self.wanted:
                self.found.setdefault(identity, subscriber_id)
            if subscriber_id in self.witnesses:
                self.seen_ids.add(subscriber_id)


async def list_base(session: Session) -> Certificate:
    """Record everybody on the list who is of the base, so that nobody among them is created (design 4.7).

    Raises ListFailed when the service does not give its list.
    """
    session.activity = "listing who is there already"
    recording = _Recording(session, BaseReader(session.journal.base, session.policy.identity))
    await session.journal.flush()
    certificate = await read_list(session.client, session.retrier, ListQuery(), recording, now=session.clock.now)
    recording.write()
    _check_name(session, recording.reader)
    for service_id in recording.reader.ids_of_name:  # one at most: the base was given by name, and here is its id
        await session.journal.learn_base(service_id, session.journal.base.name or "")
    return certificate


async def search_base(session: Session, wanted: frozenset[bytes]) -> Sighting:
    """Look for these identities on the list; raises ListFailed when the service does not give it."""
    session.activity = f"looking for {len(wanted):,} unknown"
    started_at = session.clock.monotonic()
    witnesses = frozenset(subscriber_id for _, subscriber_id in session.witnesses)
    searching = _Searching(BaseReader(session.journal.base, session.policy.identity), wanted, witnesses)
    certificate = await read_list(session.client, session.retrier, ListQuery(), searching, now=session.clock.now)
    _check_name(session, searching.reader)
    seen = searching.seen_ids
    latest = max((at for at, subscriber_id in session.witnesses if subscriber_id in seen), default=float("-inf"))
    return Sighting(searching.found, frozenset(seen), latest, started_at, certificate)


def _check_name(session: Session, reader: BaseReader) -> None:
    if len(reader.ids_of_name) > 1:
        ids = ", ".join(str(each) for each in sorted(reader.ids_of_name))
        session.end(f"several bases bear this name (ids {ids}): give the base by its id")
        session.check()
