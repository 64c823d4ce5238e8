"""Looks people up by reading the whole list: who is in the base already, and who of some wanted is there."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from connector.listing import PageSink, read_list
from connector.load.guarding import EmptiedError
from connector.load.looks.listed import BaseReader, bears_identity
from connector.load.looks.lookout import Lookout, Survey
from connector.load.looks.reading_on import ListEnd, read_on
from connector.load.looks.sighting import Sighting, Wanted
from connector.load.looks.visibility import read_visibility
from connector.load.session import Session
from connector.pages import Certificate, IdArray, Order, Reason
from connector.service import ListQuery
from connector.subscribers import IDENTITY_BYTES

_RECORDED_AT_ONCE = 20_000  # listed subscribers that share a commit
_KNOWN_COMPARED = 20_000  # confirmed entries that are laid beside a listing: one in a thousand missing shows
_TOLD_APART_BY = 8  # bytes of an identity's digest: two of ten million are taken for one once in 400,000 listings


@dataclass(frozen=True, slots=True)
class Listing:
    """A reading of all the base: its certificate, how many identities were met under more than one id, and its end
    where the list is in ascending id order."""

    certificate: Certificate
    doubled: int
    end: ListEnd | None = None

    @property
    def is_complete(self) -> bool:
        """Whether whoever it did not show was not on the list."""
        return self.certificate.is_complete

    @property
    def reason(self) -> Reason:
        """Why it is complete, or what stood in the way."""
        return self.certificate.reason


async def list_base(session: Session) -> Listing:
    """Record everybody on the list who is of the base, so that nobody among them is created (architecture 4.7).

    Raises ListFailed when the service does not give its list, EmptiedError when it shows none of those who should be
    there, RunAborted when the base is not the one that was meant or the run is to stop.
    """
    session.activity = "listing who is there already"
    recording = _Recording(session, _build_reader(session, [session.policy.identity]))
    await session.journal.flush()
    certificate, _ = await _sweep(session, recording, frozenset())
    if not session.lookout.known:
        recording.write()
    is_ascending = certificate.is_complete and certificate.order is Order.ID
    end = ListEnd(recording.last_id, certificate.distinct) if is_ascending else None
    return Listing(certificate, recording.count_doubled(), end)


async def list_on(session: Session, end: ListEnd) -> ListEnd | None:
    """Record who has come since a listing in ascending id order ended there; returns the new end, or None where that
    cannot be told. Raises as `list_base` does."""
    session.activity = "reading on for new subscribers"
    recording = _Recording(session, _build_reader(session, [session.policy.identity]))
    await session.journal.flush()
    renewed = await read_on(session, end, recording)
    recording.write()
    return renewed


async def sweep_for(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """Look for these identities on the whole list; nobody is missed unless the sweep was complete.

    Raises as `list_base` does.
    """
    session.activity = f"looking for {len(wanted):,} on the list"
    started_at, witnesses = session.clock.monotonic(), tuple(session.witnesses)
    seen_before = session.lookout.swept
    identities = frozenset(each.identity for each in wanted)
    searching = _Searching(_build_reader(session, sorted({each.field for each in wanted})), identities)
    certificate, seen = await _sweep(session, searching, frozenset(each.subscriber_id for each in witnesses))
    visibility = read_visibility(witnesses, seen, seen_before, certificate, started_at)
    found = {identity: tuple(sorted(ids)) for identity, ids in searching.found.items()}
    missed = identities.difference(found) if certificate.is_complete else frozenset()
    return Sighting(found, missed, visibility.latest_seen_at, visibility.lag_s, started_at)


@dataclass(slots=True)
class _Recording:
    """Writes all of the base that a listing shows into the ledger. What is seen is there: no verdict is needed."""

    session: Session
    reader: BaseReader
    waiting: list[tuple[bytes, int]] = field(default_factory=list)
    digests: "array[int]" = field(default_factory=lambda: array("Q"))  # 8 bytes for each of the last sweep
    last_id: int = 0

    def start_sweep(self, number: int) -> None:
        """Every sweep may show somebody new; twice in one sweep is another id."""
        self.digests, self.last_id = array("Q"), 0

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        listed = self.reader.read(wire_objects)
        self.last_id = max(self.last_id, max((wire["Id"] for wire in wire_objects), default=0))
        self.digests.frombytes(b"".join(identity[:_TOLD_APART_BY] for identity, _ in listed))
        self.waiting += listed
        if len(self.waiting) >= _RECORDED_AT_ONCE and not self.session.lookout.known:
            self.write()

    def write(self) -> None:
        """What was read so far, under the base's Id: a line that has the name alone might be another base's."""
        journal, identity = self.session.journal, self.session.policy.identity
        listed, self.waiting = self.waiting, []
        if journal.base.service_id is None and self.reader.service_id is not None:
            journal.learn_base_now(self.reader.service_id, self.session.asked_name or "")
        base = journal.base
        journal.do(lambda ledger: ledger.record_listed(base, identity, listed))

    def count_doubled(self) -> int:
        """The identities that the last sweep met more than once."""
        _, counts = np.unique(np.frombuffer(self.digests, dtype=np.uint64), return_counts=True)
        return int(np.count_nonzero(counts > 1))


@dataclass(slots=True)
class _Searching:
    """Keeps, of a listing, the wanted identities with all the ids that bear them."""

    reader: BaseReader
    wanted: frozenset[bytes]
    found: dict[bytes, set[int]] = field(default_factory=dict)

    def start_sweep(self, number: int) -> None:
        """Presence counts in whichever sweep."""

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        for identity, subscriber_id in self.reader.read(wire_objects):
            if identity in self.wanted:
                self.found.setdefault(identity, set()).add(subscriber_id)


@dataclass(slots=True)
class _Watching:
    """Hands all on to another sink; notes which of the watched ids the last sweep shows, and makes a survey of it.

    Once somebody is shown who is known, it is the right account, and `lookout.known` is empty.
    """

    sink: PageSink
    lookout: Lookout
    watched: frozenset[int]
    survey: Survey
    seen: set[int] = field(default_factory=set)

    def start_sweep(self, number: int) -> None:
        """Only the last sweep decides who shows."""
        self.seen.clear()
        self.sink.start_sweep(number)

    def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        if self.lookout.known:
            self._look_for_known(wire_objects)
        self.seen.update(self.watched.intersection(wire["Id"] for wire in wire_objects))
        self.survey.note(wire_objects)
        self.sink.take(wire_objects)

    def _look_for_known(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        known = {each.subscriber_id: each.identity for each in self.lookout.known}
        if any(wire["Id"] in known and bears_identity(wire, known[wire["Id"]]) for wire in wire_objects):
            self.lookout.known = ()


async def _sweep(session: Session, sink: PageSink, watched: frozenset[int]) -> tuple[Certificate, frozenset[int]]:
    """Read the list, and remember for other looks what it tells; returns which of the watched ids it showed.

    Raises EmptiedError when it is complete and shows none of those who should be there (architecture 4.10).
    """
    lookout = session.lookout
    witnesses = frozenset(each.subscriber_id for each in session.witnesses)
    watching = _Watching(sink, lookout, watched | witnesses, Survey(session.clock.monotonic()))
    reading = read_list(
        session.client,
        session.retrier,
        ListQuery(),
        watching,
        now=session.clock.now,
        ahead=0,
        is_thorough=False,
        accept_cut_off_possible=session.policy.accepts_cut_off_possible,
        find_lacking=partial(_find_lacking, session),
        draw=session.draw,
    )
    certificate = await session.until_stopped(reading)
    seen = frozenset(watching.seen)
    lookout.swept, lookout.is_list_unreadable = seen & witnesses, not certificate.is_complete
    lookout.unreadable_because = describe_unreadable(certificate)
    watching.survey.total, watching.survey.pages = certificate.total_last, certificate.pages
    lookout.survey = watching.survey
    if certificate.is_complete and lookout.known:
        raise EmptiedError(len(lookout.known))
    return certificate, seen & watched


async def _find_lacking(session: Session, ids: IdArray) -> Sequence[int]:
    """Confirmed entries that should show by now and are not among these ids (architecture 7, rule 7)."""
    base, besides, start = session.journal.base, session.journal.run_key, session.draw(IDENTITY_BYTES)
    known = await session.journal.ask(
        lambda ledger: ledger.find_confirmed(base, start, _KNOWN_COMPARED, besides=besides)
    )
    shown_since = session.clock.now().timestamp() - session.shown_after_s
    old = [each.subscriber_id for each in known if (each.known_since or 0.0) <= shown_since]
    asked = np.array(old, dtype=np.int64)
    lacking: list[int] = asked[~np.isin(asked, ids)].tolist()
    return lacking


def describe_unreadable(certificate: Certificate) -> str:
    """Why nothing can be told from this listing; "" if it can."""
    if certificate.is_complete:
        return ""
    if certificate.reason is Reason.CUT_OFF:
        said = "; ".join(f"{kind} {words}" for kind, words in certificate.evidence.items())
        return f"the service cuts its list off after {certificate.distinct:,} subscribers ({said})"
    if certificate.reason is Reason.CUT_OFF_POSSIBLE:
        return (
            f"the service may cut its list off: it ends after {certificate.distinct:,} subscribers, a size that result "
            "windows have, and nothing tells (if that is how many there are, run again with --accept-cut-off-possible, "
            "or load.accept_cut_off_possible in the job)"
        )
    return f"the list could not be read whole ({certificate.reason})"


def _build_reader(session: Session, fields: Sequence[str]) -> BaseReader:
    return BaseReader(session.journal.base, session.asked_name, fields, session.inactive)
