"""Durations, shares, sizes and counts as a job file has them, and the paths and URLs of a job."""

import re
from pathlib import Path

_DURATION = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_SHARE = re.compile(r"(?P<percent>\d{1,3}(?:\.\d{1,9})?)\s*%", re.ASCII)

_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>B|kB|KB|MB|GB)?")
_UNITS = {None: 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1_000_000, "GB": 1_000_000_000}

_FILE_DATABASE = re.compile(
    r"(?P<scheme>(?:sqlite|duckdb)(?:\+\w+)?):///(?P<path>[^/?][^?]*)(?P<query>\?.*)?", re.DOTALL
)


def parse_duration(text: object) -> float:
    """Return the seconds of `500ms`, `30s`, `10m`, `2h` or `90d`; a number is seconds already. Raises ValueError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError("must be a duration with its unit, such as 500ms, 30s, 10m, 2h or 90d")
    return float(found["count"]) * _SECONDS[found["unit"]]


def show_duration(seconds: float) -> str:
    """Return 21600.0 as `6h`: in the largest unit of which it is a whole number."""
    unit = next((unit for unit in ("d", "h", "m", "s") if not seconds % _SECONDS[unit]), "ms")
    return f"{seconds / _SECONDS[unit]:g}{unit}"


def parse_share(text: object) -> float:
    """Return `5%` as 0.05. Raises ValueError for more than the whole, a number without its sign, or other text."""
    found = _SHARE.fullmatch(text.strip()) if isinstance(text, str) else None
    share = float(found["percent"]) / 100 if found is not None else -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a share with its sign, such as 5%, and at most 100%")
    return share


def show_share(share: float) -> str:
    """0.05 as `5 %`."""
    return f"{100 * share:.3g} %"


def parse_size(text: object) -> int:
    """Bytes. Raises ValueError for what is no size, or none at all."""
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    size = int(float(found["number"]) * _UNITS[found["unit"]]) if found else 0
    if size < 1:
        raise ValueError("must be a size, such as 500kB or 20MB")
    return size


def resolve_path(text: str, folder: Path) -> Path:
    """Return `text` as a path of its own, or relative to `folder`; `~` is the user's home. Raises ValueError."""
    if not text.strip() or "\0" in text:
        raise ValueError("must be a path")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise ValueError("names the home of a user who is not known here; write the path out") from None


def resolve_url(url: str, folder: Path) -> str:
    """Return a SQLite or DuckDB URL with a relative path (`sqlite:///w.db`), made relative to `folder`; any other as it
    is."""
    found = _FILE_DATABASE.fullmatch(url)
    if found is None or found["path"].startswith((":memory:", "file:")):
        return url
    # In a URL a % begins an escape and a ? the query; whatever else a folder's name holds stays as it is.
    escaped = str(folder).replace("%", "%25").replace("?", "%3F")
    return f"{found['scheme']}:///{escaped}/{found['path']}{found['query'] or ''}"


def resolve_destination(text: str, folder: Path) -> str:
    """Return where an export goes: a URL by `resolve_url`, anything else a path by `resolve_path`."""
    if text.startswith("delta://") and "://" not in text.removeprefix("delta://"):
        return f"delta://{resolve_path(text.removeprefix('delta://'), folder)}"
    return resolve_url(text, folder) if "://" in text else str(resolve_path(text, folder))
