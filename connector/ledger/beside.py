"""Runs that work beside the ledger (exports, reconciliations, mail runs) begin at the limit that the account's last run
found, and keep what they find.

What was found is a guess, and a convenience: what stands in its way is logged, and no run fails or waits for it. A file
is read without SQLAlchemy, which takes longer to import than a short list takes to be read.
"""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from connector.clock import Clock
from connector.control import Stop, call_in_thread
from connector.errors import ConnectorError
from connector.ledger.reading import build_uri
from connector.pace.pace import Pace
from connector.pace.rate import Found
from connector.settings import Settings

_LOG = logging.getLogger(__name__)
_FILE = "sqlite:///"
_PATIENCE_S = 2  # for a process that opens or closes the file, or a server that does not answer: libpq's least


@asynccontextmanager
async def open_pace(
    settings: Settings, max_rate: float, clock: Clock, stop: Stop, *, max_concurrency: int = 1
) -> AsyncIterator[Pace]:
    """Yield a pace that begins at the limit that the account's last run found; what shows of it meanwhile is kept.

    `max_rate` (requests/s) and `max_concurrency` (requests under way) are ceilings. The ledger must not be open here
    when the context ends.
    """
    place = settings.ledger_url, settings.account
    found, age_s = await call_in_thread(partial(read_limit, *place, clock.now().timestamp()), stop)
    pace = Pace(max_rate, max_concurrency, found, age_s)
    known = pace.rate.found
    try:
        yield pace
    finally:
        if (found := pace.rate.found) is not None and found != known:
            await call_in_thread(partial(keep_limit, *place, found, clock.now().timestamp()), stop)


def read_limit(url: str, account: str, at: float) -> tuple[Found | None, float]:
    """Return what the account's last run found of its limit, and its age in seconds at `at` (Unix seconds).

    None and 0 where the ledger at `url` has nothing of it, is not there, is of another version, or cannot be read. It
    takes no lock, and leaves no file behind.
    """
    try:
        kept = _read(url, account)
    except (ConnectorError, sqlite3.Error, OSError, ValueError) as error:
        _LOG.debug("the ledger gives no first guess of the limit: %s", error)
        kept = None
    return (None, 0.0) if kept is None else (kept[0], at - kept[1])


def keep_limit(url: str, account: str, found: Found, at: float) -> None:
    """Keep what a run, at its end at `at` (Unix seconds), has found of the account's limit, for the next one.

    Nothing is kept where another run holds the ledger at `url`, where there is no ledger, or where it is of another
    version or cannot be written.
    """
    from connector.ledger.opening import open_ledger
    from connector.ledger.records import record_found_limit

    try:
        _read(url, account)  # another application's file is not opened for writing
        with open_ledger(_limit_wait(url), may_make=False) as ledger, ledger.transaction() as connection:
            record_found_limit(connection, account, found, at)
    except (ConnectorError, sqlite3.Error, OSError, ValueError) as error:
        _LOG.debug("the limit that was found is not kept: %s", error)


_READ = (
    "SELECT limit_low, limit_high, limit_burst, limit_pause_s, limit_window_s, limit_found_at FROM account "
    "WHERE account = :account AND limit_low IS NOT NULL"
)


def _read(url: str, account: str) -> tuple[Found, float] | None:
    """What was found, and when (Unix seconds)."""
    if not url.startswith(_FILE):
        return _read_server(url, account)
    uri = build_uri(Path(unquote(url.removeprefix(_FILE))))
    with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S)) as ledger:
        row = ledger.execute(_READ, {"account": account}).fetchone()
        if row is None:
            return None
        from connector.ledger.schema import VERSION  # with SQLAlchemy

        is_ours = VERSION.items() <= dict(ledger.execute("SELECT name, value FROM meta").fetchall()).items()
        return (Found(*row[:5]), row[5]) if is_ours else None


def _read_server(url: str, account: str) -> tuple[Found, float] | None:
    from connector.databases import parse_url, show_url
    from connector.ledger.postgres import read_server
    from connector.ledger.records import read_found_limit
    from connector.ledger.schema import check_version

    place = parse_url(_limit_wait(url))
    with read_server(place) as server:
        check_version(server, show_url(place))
        return read_found_limit(server, account)


def _limit_wait(url: str) -> str:
    """The same place; a server that does not answer is given up soon, unless the URL says when."""
    from connector.databases import parse_place

    place = parse_place(url)
    if isinstance(place, Path) or "connect_timeout" in place.query:
        return url
    return place.update_query_dict({"connect_timeout": str(_PATIENCE_S)}).render_as_string(hide_password=False)
