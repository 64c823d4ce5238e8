"""Looks people up by whichever way is cheaper, the list's filters or one sweep of it, and by the other whom that cannot
tell. What makes an answer certain is each way's own business."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from connector.listing import ListFailed
from connector.load.looks.filtering import can_tell, count_requests, look_by_filter
from connector.load.looks.sighting import Sighting, Wanted
from connector.load.looks.surveying import take_survey
from connector.load.looks.sweeping import Listing, list_base, list_on, sweep_for
from connector.load.session import Session

__all__ = [
    "Estimate",
    "Listing",
    "estimate",
    "list_base",
    "list_on",
    "look_as_sent",
    "look_as_well_as_can_be",
    "look_by_filter",
    "look_for",
    "sweep_for",
]

_OF_THE_TOKEN = frozenset({401, 403})
_NOBODY = float("-inf")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What looks would take in requests: `listing` (None: not known) by a sweep, `filtering` by filters, or fewer than
    that where it is more than `listing` anyway.

    `untellable` are those whom no filter can tell; `is_list_unreadable`: the last sweep was not complete.
    """

    listing: int | None
    filtering: int
    untellable: frozenset[bytes]
    is_list_unreadable: bool

    @property
    def is_filter_cheaper(self) -> bool:
        """Whether to begin with filters: they may tell everybody, for less than a sweep or where that tells nothing."""
        if self.untellable:
            return False
        return self.is_list_unreadable or (self.listing is not None and self.filtering < self.listing)


async def estimate(session: Session, wanted: Sequence[Wanted]) -> Estimate:
    """What it would take to look for these; reads one page of the list unless what is known of it is fresh.

    Raises ListFailed, and RunAborted when the run is to stop.
    """
    survey = await take_survey(session)
    if survey.pages is not None and len(wanted) >= survey.pages and not session.lookout.is_list_unreadable:
        return Estimate(survey.pages, len(wanted), frozenset(), is_list_unreadable=False)  # one for each at the least
    return Estimate(
        survey.pages,
        count_requests(wanted),
        frozenset(each.identity for each in wanted if not can_tell(session, each)),
        session.lookout.is_list_unreadable,
    )


async def look_for(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """Look for these identities in the run's base, the cheaper way first.

    Raises ListFailed when the service does not give its list, RunAborted when the base is not the one that was meant or
    the run is to stop.
    """
    if not wanted:
        return Sighting({}, frozenset(), _NOBODY, 0.0, session.clock.monotonic())
    cost = await estimate(session, wanted)
    if session.lookout.known or not cost.is_filter_cheaper:
        swept = await sweep_for(session, wanted)
        rest = _untold(wanted, swept)
        return _join(swept, await _try_filters(session, rest)) if rest else swept
    filtered = await _try_filters(session, wanted)
    if not _shows_what_we_send(session, filtered):
        filtered = replace(filtered, missed=frozenset())
    rest = _untold(wanted, filtered)
    return _join(filtered, await sweep_for(session, rest)) if rest else filtered


async def look_as_sent(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """Look for them by what architecture 4.7 asks at least, as sent and as normalised: the way where the list cannot be
    read whole, and its filters tell capitals apart. Raises as `look_for` does."""
    sighting = await look_for(session, [replace(each, in_any_spelling=False) for each in wanted])
    if sighting.missed:
        session.tally.say(
            "the list could not be read whole, so people were looked up one by one, as they would be sent and as "
            "normalised: somebody who is there in other capitals may be created once more"
        )
    return sighting


async def look_as_well_as_can_be(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """Look for them as they are wanted and, where the list turns out to be unreadable, as sent whom that cannot tell.

    Raises as `look_for` does.
    """
    sighting = await look_for(session, wanted)
    rest = [each for each in _untold(wanted, sighting) if each.in_any_spelling]
    if not rest or not session.lookout.is_list_unreadable:
        return sighting
    return _join(sighting, await look_as_sent(session, rest))


async def _try_filters(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """By filters, whose failing is no failing of the list: a service may choke on one strange text."""
    started_at = session.clock.monotonic()
    try:
        return await look_by_filter(session, wanted)
    except ListFailed as failure:
        if failure.status in _OF_THE_TOKEN:
            raise
        session.lookout.useless.update(each.field for each in wanted)
        return Sighting({}, frozenset(), _NOBODY, 0.0, started_at)


def _shows_what_we_send(session: Session, sighting: Sighting) -> bool:
    """Whether the filters showed this run's latest witness, or that the service lags; else they say too little."""
    latest = max((each.at for each in session.witnesses if each.at < sighting.started_at), default=_NOBODY)
    return sighting.latest_seen_at >= latest or sighting.lag_s > 0


def _untold(wanted: Sequence[Wanted], sighting: Sighting) -> list[Wanted]:
    return [each for each in wanted if each.identity not in sighting.found and each.identity not in sighting.missed]


def _join(first: Sighting, second: Sighting) -> Sighting:
    """Both together; a witness must show to each look that missed anybody."""
    seen = [each.latest_seen_at for each in (first, second) if each.missed]
    return Sighting(
        {**first.found, **second.found},
        first.missed | second.missed,
        min(seen, default=max(first.latest_seen_at, second.latest_seen_at)),
        max(first.lag_s, second.lag_s),
        min(first.started_at, second.started_at),
    )
