"""Paths and database URLs of a job, made independent of the folder that a run happens to start in."""

import re
from pathlib import Path

_FILE_DATABASE = re.compile(
    r"(?P<scheme>(?:sqlite|duckdb)(?:\+\w+)?):///(?P<path>[^/?][^?]*)(?P<query>\?.*)?", re.DOTALL
)


def resolve_path(text: str, folder: Path) -> Path:
    """`text` as a path of its own, or relative to `folder`; `~` is the user's home. Raises ValueError."""
    if not text.strip() or "\0" in text:
        raise ValueError("must be a path")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise ValueError("names the home of a user who is not known here; write the path out") from None


def resolve_url(url: str, folder: Path) -> str:
    """A SQLite or DuckDB URL with a relative path (`sqlite:///w.db`), made relative to `folder`; any other as it is."""
    found = _FILE_DATABASE.fullmatch(url)
    if found is None or found["path"].startswith((":memory:", "file:")):
        return url
    # In a URL a % begins an escape and a ? the query; whatever else a folder's name holds stays as it is.
    escaped = str(folder).replace("%", "%25").replace("?", "%3F")
    return f"{found['scheme']}:///{escaped}/{found['path']}{found['query'] or ''}"


def resolve_destination(text: str, folder: Path) -> str:
    """Where an export goes: a URL by `resolve_url`, anything else a path by `resolve_path`."""
    return resolve_url(text, folder) if "://" in text else str(resolve_path(text, folder))
