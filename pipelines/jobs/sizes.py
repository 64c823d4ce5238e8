"""Sizes of files as people write them: `500kB`, `20MB`; in bytes, a kilobyte being a thousand."""

import re

_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>B|kB|KB|MB|GB)?")
_UNITS = {None: 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1_000_000, "GB": 1_000_000_000}


def parse_size(text: object) -> int:
    """Bytes. Raises ValueError for what is no size, or none at all."""
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    size = int(float(found["number"]) * _UNITS[found["unit"]]) if found else 0
    if size < 1:
        raise ValueError("must be a size, such as 500kB or 20MB")
    return size
