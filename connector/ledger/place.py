"""Where a ledger is kept: CONNECTOR_LEDGER read, and shown again without what is secret. It opens nothing."""

import re
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from connector.errors import ConfigurationError

_POSTGRESQL = {"postgresql", "postgres", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}
_FORMS = "use a SQLite file, sqlite:////path/to/ledger.db, or postgresql://user:password@host/database"
# Cut as SQLAlchemy cuts it: a password ends at the first @, and one that holds an @ would become part of the host.
_AFTER_CREDENTIALS = re.compile(r"[\w+]+://(?:[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)
_OPTIONS = frozenset({  # libpq's, which say how the server is reached; a driver's own could change what a commit is
    "channel_binding", "connect_timeout", "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "password", "port", "service",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    "user",
})  # fmt: skip
_LEAST_MASKED = 4  # characters: a shorter option (user=u) is no secret, and would be masked within words


def parse_place(text: str) -> Path | URL:
    """The path of a SQLite file, or the URL of a PostgreSQL database, its driver filled in (psycopg 3).

    Raises ConfigurationError, without showing what may be secret, for anything else.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigurationError(f"CONNECTOR_LEDGER is no database URL: {_FORMS}") from None
    if url.drivername in _SQLITE:
        return _parse_path(url)
    if url.drivername in _POSTGRESQL:
        _refuse_stray_at(text)
        _refuse_options(url)
        return url.set(drivername="postgresql+psycopg")
    raise ConfigurationError(f"a ledger cannot be kept at a {url.drivername} URL: {_FORMS}")


def show_place(place: Path | URL) -> str:
    """The place for people: no password, and no options, which may hold one too."""
    if isinstance(place, Path):
        return str(place)
    return place.set(query={}, drivername="postgresql").render_as_string(hide_password=True)


def find_emails(ledger: Path) -> Path:
    """The file of a ledger's emails: `ledger-emails.db` for `ledger.db`, whose symbolic links are resolved. A load does
    not lock it."""
    return ledger.with_name(f"{ledger.stem}-emails{ledger.suffix}")


def digest_campaign(name: str) -> bytes:
    """What the lock of a campaign's name is known by, of whichever account: 16 bytes."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16, person=b"campaign").digest()


def find_campaign_lock(emails: Path, name: str) -> Path:
    """The file whose lock a campaign's run holds; `emails` is the emails' own, symbolic links resolved."""
    return emails.with_name(f"{emails.name}.{digest_campaign(name).hex()}.lock")


def mask_secrets(message: str, url: URL) -> str:
    """What a driver says, with the URL's password and long options masked should they be in it."""
    options = [value for values in url.normalized_query.values() for value in values if len(value) >= _LEAST_MASKED]
    for secret in sorted({str(url.password or ""), *options} - {""}, key=len, reverse=True):  # one may hold another
        message = message.replace(secret, "***")
    return message


def _parse_path(url: URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise ConfigurationError(f"a ledger cannot be kept in memory: {_FORMS}")
    if url.query or url.database.startswith("file:"):
        raise ConfigurationError(f"a SQLite ledger's URL takes no options: {_FORMS}")
    return Path(url.database)


def _refuse_options(url: URL) -> None:
    strange = sorted(set(url.query) - _OPTIONS)
    if strange:
        raise ConfigurationError(
            f"CONNECTOR_LEDGER has options that a ledger does not take ({', '.join(strange)}): leave them out"
        )
    if not all(
        each.isascii() and each.isdigit()
        for name in ("port", "connect_timeout")
        for each in url.normalized_query.get(name, ())
    ):
        raise ConfigurationError("CONNECTOR_LEDGER has a port or a connect_timeout that is no whole number")


def _refuse_stray_at(text: str) -> None:
    parts = _AFTER_CREDENTIALS.match(text)
    if parts is None or "@" in parts["rest"]:
        raise ConfigurationError(
            "CONNECTOR_LEDGER holds an @ in its host, database or options: in a password, and wherever else one is "
            "meant, write @ as %40 and / as %2F"
        )
