"""A database's URL: read, shown without secrets, and made an engine. The error for a missing driver names its extra.

`postgresql://` means psycopg 3, `mysql://` and `mariadb://` PyMySQL; any other URL is as SQLAlchemy takes it.
"""

import logging
import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError
from connector.printable import is_unicode

DatabaseUrl = sa.URL

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
# A URL cut as SQLAlchemy cuts it: a user may hold an @, a password none, and what is left is host, database, options.
_PARTS = re.compile(r"(?P<scheme>[\w+]+)://(?P<user>[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)

_SECRET_KEY = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_LEAST_MASKED = 4  # characters: a shorter option (user=u) is no secret, and would be masked within words

_EXTRAS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}


_ESCAPES = "in a password, and wherever else one is meant, write @ as %40 and / as %2F"


def parse_url(text: str, what: str = "a SQL source's url") -> sa.URL:
    """Parse a database URL, the driver filled in; `what` names it in errors.

    Raises ConfigurationError, without showing the URL.
    """
    _refuse_broken(text, what)
    _refuse_stray_at(text, what)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigurationError(
            f"{what} is no database URL; it looks like postgresql://user:password@host/database "
            f"or sqlite:///file.db; {_ESCAPES}"
        ) from None
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


def _refuse_broken(text: str, what: str) -> None:
    """Raise ConfigurationError for bytes that are not UTF-8: no driver takes them."""
    if not is_unicode(text):
        raise ConfigurationError(f"{what} is not in UTF-8: write it in UTF-8, or with escapes such as %C3%BC")


def _refuse_stray_at(text: str, what: str) -> None:
    """An @ after the one that ends the password is most likely the password's own: what looks like the host is then
    a piece of it, and would be looked up and shown. A URL without user and host, of a file, may hold any."""
    parts = _PARTS.match(text)
    if parts is None or "@" not in parts["rest"]:
        return
    if parts["user"] is not None or not parts["rest"].startswith(("/", "?")):
        raise ConfigurationError(
            f"{what}, {parts['scheme']}://…, holds an @ in its host, database or options; {_ESCAPES}"
        )


def show_url(url: sa.URL) -> str:
    """Return the URL fit to show: no password, and no options, which may hold one too."""
    return url.set(query={}, drivername=url.drivername.partition("+")[0]).render_as_string(hide_password=True)


class _Aside(logging.Filter):
    """psycopg logs, with the row that it was at, what it meets while it ends what has failed already."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record: failures are raised, and reported without values."""
        return not str(record.msg).startswith("error ignored")


_ASIDE = _Aside()


def build_engine(url: sa.URL, **options: Any) -> sa.Engine:
    """Make an engine without a pool; nothing is connected yet.

    `options` are those of SQLAlchemy's create_engine. Raises ConfigurationError naming the extra for a missing driver.
    """
    logging.getLogger("psycopg").addFilter(_ASIDE)
    try:
        return sa.create_engine(url, poolclass=sa.pool.NullPool, **options)
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError):
        extra = _EXTRAS.get(url.drivername.partition("+")[0])
        advice = f"pip install 'subscriber-connector[{extra}]'" if extra else "install SQLAlchemy's dialect and driver"
        raise ConfigurationError(f"{show_url(url)}: there is no driver for {url.drivername}; {advice}") from None
    except (sa.exc.ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{show_url(url)}: {mask_secrets(str(error).strip().splitlines()[0], url)}") from None


def list_errors(engine: sa.Engine) -> tuple[type[Exception], ...]:
    """Return what its connections raise: SQLAlchemy's errors, and the driver's own where that is spoken to directly."""
    return sa.exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error


def explain(error: BaseException, url: sa.URL) -> str:
    """Return the first line of what a driver says, without values of rows, and with the password and whatever else may
    be secret masked should it be there."""
    return mask_secrets(describe_error(error).strip().splitlines()[0], url)


def mask_secrets(said: str, url: sa.URL) -> str:
    """Return what a driver says, with the URL's password and long or secret options masked should they be in it."""
    options = [(key, value) for key, values in url.normalized_query.items() for value in values]
    secrets = {value for key, value in options if _SECRET_KEY.search(key) or len(value) >= _LEAST_MASKED}
    secrets.add(str(url.password or ""))
    for secret in sorted(secrets - {""}, key=len, reverse=True):  # one may be a part of another
        said = said.replace(secret, "***")
    return said


# Where a ledger is kept

_POSTGRESQL = {"postgresql", "postgres", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}
_FORMS = "use a SQLite file, sqlite:////path/to/ledger.db, or postgresql://user:password@host/database"
_OPTIONS = frozenset({  # libpq's, which say how the server is reached; a driver's own could change what a commit is
    "channel_binding", "connect_timeout", "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "password", "port", "service",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    "user",
})  # fmt: skip


def parse_place(text: str) -> Path | sa.URL:
    """Return the path of a SQLite file, or the URL of a PostgreSQL database, its driver filled in (psycopg 3).

    Raises ConfigurationError, without showing what may be secret, for anything else.
    """
    _refuse_broken(text, "CONNECTOR_LEDGER")
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigurationError(f"CONNECTOR_LEDGER is no database URL: {_FORMS}") from None
    if url.drivername in _SQLITE:
        return _parse_path(url)
    if url.drivername in _POSTGRESQL:
        _refuse_stray_at(text, "CONNECTOR_LEDGER")
        _refuse_options(url)
        return url.set(drivername="postgresql+psycopg")
    raise ConfigurationError(f"a ledger cannot be kept at a {url.drivername} URL: {_FORMS}")


def show_place(place: Path | sa.URL) -> str:
    """Return the place fit to show: no password, and no options, which may hold one too."""
    if isinstance(place, Path):
        return str(place)
    return show_url(place)


def _parse_path(url: sa.URL) -> Path:
    if not url.database or url.database == ":memory:":
        raise ConfigurationError(f"a ledger cannot be kept in memory: {_FORMS}")
    if url.query or url.database.startswith("file:"):
        raise ConfigurationError(f"a SQLite ledger's URL takes no options: {_FORMS}")
    return Path(url.database)


def _refuse_options(url: sa.URL) -> None:
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
