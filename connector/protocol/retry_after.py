"""Retry-After as seconds to wait, whether it came as seconds or as a date (RFC 9110, 10.2.3)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT_S = 86_400.0
"""A day: longer demands are cut to it. No run waits that long, so it only has to be more than any run's patience."""

_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{1,30})?", re.ASCII)


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait, in [0, LONGEST_WAIT_S], or None when nothing was asked that can be understood.

    A date is read against the answer's own Date header where there is one, so that a difference between the two
    machines' clocks does not shorten the wait; else against `now` (aware).
    """
    asked = find_header(headers, "retry-after")
    if asked is None:
        return None
    if _SECONDS.fullmatch(asked):
        return min(float(asked), LONGEST_WAIT_S)
    until = _parse_date(asked)
    if until is None:
        return None
    answered_at = _parse_date(find_header(headers, "date") or "") or now
    return min(max((until - answered_at).total_seconds(), 0.0), LONGEST_WAIT_S)


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """The header's value, trimmed, whatever the case of its name; `name` is given in lower case."""
    for key, value in headers.items():
        if key.lower() == name:
            return value.strip()
    return None


def _parse_date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):  # the standard parser has failed in each of these ways
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
