"""Durations, shares, sizes, paths and URLs in the form in which a job file has them."""

import re
from pathlib import Path

_DURATION_PATTERN = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>ms|s|m|h|d)", re.ASCII)
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_SHARE_PATTERN = re.compile(r"(?P<percent>\d{1,3}(?:\.\d{1,9})?)\s*%", re.ASCII)

_SIZE_PATTERN = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>B|kB|KB|MB|GB)?")
_BYTES_BY_UNIT = {None: 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1_000_000, "GB": 1_000_000_000}

_FILE_DATABASE_URL_PATTERN = re.compile(
    r"(?P<scheme>(?:sqlite|duckdb)(?:\+\w+)?):///(?P<path>[^/?][^?]*)(?P<query>\?.*)?", re.DOTALL
)


def parse_duration(text: object) -> float:
    """Return the number of seconds that a text such as `500ms`, `30s`, `10m`, `2h` or `90d` means. Return a number
    unchanged. Raises ValueError for other texts."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    duration_match = _DURATION_PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if duration_match is None:
        raise ValueError("must be a duration with its unit, such as 500ms, 30s, 10m, 2h or 90d")
    return float(duration_match["count"]) * _SECONDS_BY_UNIT[duration_match["unit"]]


def format_duration(seconds: float) -> str:
    """Return the duration in the largest unit in which it is a whole number: 21600.0 gives `6h`."""
    unit = next((unit for unit in ("d", "h", "m", "s") if not seconds % _SECONDS_BY_UNIT[unit]), "ms")
    return f"{seconds / _SECONDS_BY_UNIT[unit]:g}{unit}"


def parse_share(text: object) -> float:
    """Return a share as a number: `5%` gives 0.05. Raises ValueError for more than 100 %, for a number without a
    percent sign, and for other texts."""
    share_match = _SHARE_PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    share = float(share_match["percent"]) / 100 if share_match is not None else -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a percentage with a percent sign, such as 5%, and at most 100%")
    return share


def format_share(share: float) -> str:
    """Return a share as a text: 0.05 gives `5 %`."""
    return f"{100 * share:.3g} %"


def parse_size(text: object) -> int:
    """Return the number of bytes that a text such as `20MB` means. Raises ValueError for a text that is not a size, and
    for a size below one byte."""
    size_match = _SIZE_PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    byte_count = int(float(size_match["number"]) * _BYTES_BY_UNIT[size_match["unit"]]) if size_match else 0
    if byte_count < 1:
        raise ValueError("must be a size, such as 500kB or 20MB")
    return byte_count


def resolve_path(text: str, folder: Path) -> Path:
    """Return `text` as a path. A relative path is relative to `folder`, and `~` is the user's home. Raises ValueError
    if the text is empty, contains a NUL, or names the home of an unknown user."""
    if not text.strip() or "\0" in text:
        raise ValueError("must be a path")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise ValueError("names the home of a user who is not known here; write the full path") from None


def resolve_url(url: str, folder: Path) -> str:
    """Return the URL. If the URL of a SQLite or DuckDB file has a relative path (`sqlite:///w.db`), the path is
    relative to `folder`. Other URLs do not change."""
    url_match = _FILE_DATABASE_URL_PATTERN.fullmatch(url)
    if url_match is None or url_match["path"].startswith((":memory:", "file:")):
        return url
    # In the path of a SQLAlchemy URL, only % (an escape) and ? (the query) have a meaning. Other characters stay.
    escaped_folder = str(folder).replace("%", "%25").replace("?", "%3F")
    return f"{url_match['scheme']}:///{escaped_folder}/{url_match['path']}{url_match['query'] or ''}"


def resolve_destination(text: str, folder: Path) -> str:
    """Return the destination of an export. `-` (standard output) stays unchanged. `resolve_url` resolves a URL, and
    `resolve_path` a path and the path of `delta://PATH`."""
    if text == "-":
        return text
    if text.startswith("delta://") and "://" not in text.removeprefix("delta://"):
        return f"delta://{resolve_path(text.removeprefix('delta://'), folder)}"
    return resolve_url(text, folder) if "://" in text else str(resolve_path(text, folder))
