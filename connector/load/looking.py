"""Looks people up by reading the whole list: who is in the base already, and who of the unknown is there.

Nothing the service filters is trusted: what comes back is compared here, by base and by identity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.api.listing import PageSink, read_list
from connector.errors import RunAborted
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
    """Takes from pages of the list those of one base: the digests of the identities and the id of each.

    `fields` are the identities to read (email, client_user_id). Raises RunAborted when the name that the job gave is
    borne by several bases, or by another than it was: then nobody can say which base is meant.
    """

    def __init__(self, base: Base, asked_name: str | None, fields: Sequence[str]) -> None:
        self._asked_name = asked_name
        self._paths = [(name, BY_NAME[name].path[0]) for name in fields]
        self.service_id = base.service_id

    def read(self, wire_objects: Sequence[dict[str, Any]]) -> list[tuple[bytes, int]]:
        """(identity, subscriber id) of those that are of the base and have an identity."""
        listed = []
        for wire in wire_objects:
            if not self._is_of_base(wire.get("Base")):
                continue
            for name, path in self._paths:
                value = wire.get(path)
                if isinstance(value, str) and value.strip():
                    listed.append((digest_identity(name, value), int(wire["Id"])))
        return listed

    def _is_of_base(self, base: object) -> bool:
        if not isinstance(base, dict):
            return False
        service_id, name = base.get("Id"), base.get("Name")
        if self._asked_name is None:
            return bool(service_id == self.service_id)
        if name == self._asked_name and isinstance(service_id, int):
            self._learn(service_id)
            return True
        if self.service_id is not None and service_id == self.service_id:
            raise RunAborted(f"the base {service_id} is no longer called {self._asked_name}: give the base by its id")
        return False

    def _learn(self, service_id: int) -> None:
        if self.service_id not in (None, service_id):
            raise RunAborted(
                f"several bases are called {self._asked_name} (ids {self.service_id}, {service_id}): give it by its id"
            )
        self.service_id = service_id


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
        """What was read so far, under the base's Id: a line that has the name alone might be another base's."""
        journal, field = self.session.journal, self.session.policy.identity
        listed, self.waiting = self.waiting, []
        if journal.base.service_id is None and self.reader.service_id is not None:
            journal.learn_base_now(self.reader.service_id, self.session.asked_name or "")
        base = journal.base
        journal.do(lambda ledger: ledger.record_listed(base, field, listed))


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

    Raises ListFailed when the service does not give its list, RunAborted when the base is not the one that was meant or
    the run is to stop.
    """
    session.activity = "listing who is there already"
    recording = _Recording(session, _build_reader(session, [session.policy.identity]))
    await session.journal.flush()
    certificate = await _read(session, recording)
    recording.write()
    return certificate


async def search_base(session: Session, wanted: frozenset[bytes], fields: Sequence[str]) -> Sighting:
    """Look for these identities, which are of these fields, on the list; raises as `list_base` does."""
    session.activity = f"looking for {len(wanted):,} unknown"
    started_at = session.clock.monotonic()
    witnesses = frozenset(subscriber_id for _, subscriber_id in session.witnesses)
    searching = _Searching(_build_reader(session, fields), wanted, witnesses)
    certificate = await _read(session, searching)
    seen = searching.seen_ids
    latest = max((at for at, subscriber_id in session.witnesses if subscriber_id in seen), default=float("-inf"))
    return Sighting(searching.found, frozenset(seen), latest, started_at, certificate)


async def _read(session: Session, sink: PageSink) -> Certificate:
    return await session.until_stopped(
        read_list(session.client, session.retrier, ListQuery(), sink, now=session.clock.now)
    )


def _build_reader(session: Session, fields: Sequence[str]) -> BaseReader:
    return BaseReader(session.journal.base, session.asked_name, fields)
