"""Durations as people write them in a job or an option: `500ms 30s 10m 2h`."""

import re

_DURATION = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: object) -> float:
    """The seconds of `500ms`, `30s`, `10m` or `2h`; a number is seconds already. Raises ValueError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError("must be a duration with its unit, such as 500ms, 30s, 10m or 2h")
    return float(found["count"]) * _SECONDS[found["unit"]]
