"""Shares as people write them in a job: `5%`, `0.5%`."""

import re

_SHARE = re.compile(r"(?P<percent>\d{1,3}(?:\.\d{1,9})?)\s*%", re.ASCII)


def parse_share(text: object) -> float:
    """`5%` as 0.05. Raises ValueError for what is none, or more than the whole; a number without its sign is none."""
    found = _SHARE.fullmatch(text.strip()) if isinstance(text, str) else None
    share = float(found["percent"]) / 100 if found is not None else -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a share with its sign, such as 5%, and at most 100%")
    return share


def show_share(share: float) -> str:
    """0.05 as `5 %`."""
    return f"{100 * share:.3g} %"
