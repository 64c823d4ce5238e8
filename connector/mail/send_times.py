"""When an email is to go: a time with its zone, as a person writes it, and the service's Unix timestamp."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from connector.protocol.email_rules import MessageError

FIELD = "EmailSettings.SendAt"
_FORMS = "write it as 2026-12-24T09:00+01:00, 2026-12-24T08:00Z or 2026-12-24T09:00 Europe/Berlin"


def parse_send_at(text: str) -> datetime:
    """The time, aware. Raises MessageError: it is none, has no zone, or falls into the hour that clocks leave out."""
    told, _, zone = text.strip().partition(" ")
    if zone and zone[0].isdigit():  # "2026-12-24 09:00 Europe/Berlin": a blank in place of the T
        time, _, zone = zone.strip().partition(" ")
        told = f"{told}T{time}"
    try:
        at = datetime.fromisoformat(told)
    except ValueError:
        raise MessageError(FIELD, f"is no time; {_FORMS}") from None
    if zone.strip():
        if at.tzinfo is not None:
            raise MessageError(FIELD, f"has two zones; {_FORMS}")
        at = at.replace(tzinfo=_find_zone(zone.strip()))
        if at.astimezone(UTC).astimezone(at.tzinfo).replace(tzinfo=None) != at.replace(tzinfo=None):
            raise MessageError(FIELD, "is a time that this zone does not have: its clocks go forward past it")
    if at.tzinfo is None:
        raise MessageError(FIELD, f"has no zone; {_FORMS}")
    return at


def check_send_at(at: datetime | None, now: datetime) -> int | None:
    """The Unix timestamp of a time that is not past (both aware); None for at once. A part of a second is rounded up:
    it is the earliest time. Raises MessageError."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise MessageError(FIELD, f"has no zone; {_FORMS}")
    if at < now:
        raise MessageError(FIELD, "is past; give a later time, or none to send at once")
    return int(at.timestamp()) + bool(at.microsecond)


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise MessageError(FIELD, f"names a zone that this machine does not know; {_FORMS}") from None
