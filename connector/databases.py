"""URLs of databases: functions parse a URL, show it without secrets, and build an engine for it.

psycopg 3 is the driver of `postgresql://`, and PyMySQL of `mysql://` and `mariadb://`. SQLAlchemy chooses the driver of
any other URL.
"""

import logging
import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError
from connector.texts import is_unicode

DatabaseUrl = sa.URL

_DRIVER_BY_SCHEME = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_EXTRA_BY_DRIVER = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}

# SQLAlchemy divides a URL into these parts. The user name may contain an @, but the password must not.
_URL_PARTS_PATTERN = re.compile(r"(?P<scheme>[\w+]+)://(?P<user>[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)
_ESCAPE_ADVICE = "write each @ within a part of the URL as %40 and each / in a password as %2F"

_SECRET_OPTION_NAME_PATTERN = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_MIN_MASKED_LENGTH = 4  # a shorter value (user=u) is not secret, and the same letters may be a part of other words


def parse_url(text: str, url_name: str = "a SQL source's url") -> sa.URL:
    """Parse a database URL, and add the driver. `url_name` names the URL in messages.

    Raises ConfigurationError if the text is not a database URL. The message does not contain the text.
    """
    _refuse_invalid_utf8(text, url_name)
    _refuse_stray_at_sign(text, url_name)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ConfigurationError(
            f"{url_name} is not a database URL; write postgresql://user:password@host/database or sqlite:///file.db; "
            f"{_ESCAPE_ADVICE}"
        ) from None
    return url.set(drivername=_DRIVER_BY_SCHEME.get(url.drivername, url.drivername))


def _refuse_invalid_utf8(text: str, url_name: str) -> None:
    """Raise ConfigurationError if the text is not UTF-8, because every driver needs UTF-8."""
    if not is_unicode(text):
        raise ConfigurationError(f"{url_name} is not in UTF-8: write it in UTF-8, or with escapes such as %C3%BC")


def _refuse_stray_at_sign(text: str, url_name: str) -> None:
    """Raise ConfigurationError if a URL with a user or a host has an @ after the user and the password.

    Then the password probably contains an @. SQLAlchemy would end the password at its first @, and read the rest as the
    host. Messages would show this rest of the password.
    """
    url_match = _URL_PARTS_PATTERN.match(text)
    if url_match is None or "@" not in url_match["rest"]:
        return
    if url_match["user"] is not None or not url_match["rest"].startswith(("/", "?")):
        raise ConfigurationError(
            f"{url_name}, {url_match['scheme']}://…, has an @ in its host, database or options: {_ESCAPE_ADVICE}"
        )


def format_url(url: sa.URL) -> str:
    """Return the URL for messages, without the password and the options, because an option may contain a password."""
    return url.set(query={}, drivername=url.drivername.partition("+")[0]).render_as_string(hide_password=True)


def _is_log_record_safe(record: logging.LogRecord) -> bool:
    """Return False for a log record that psycopg writes while it closes a failed connection. Such a log record contains
    the current row of the table."""
    return not str(record.msg).startswith("error ignored")


def build_engine(url: sa.URL, **options: Any) -> sa.Engine:
    """Return an engine without a pool. The engine is not connected yet. `options` are options of `create_engine`.

    Raises ConfigurationError for a missing driver. The message names the extra to install. If the extra installs
    another driver than the driver of the URL, the message names the scheme to write.
    """
    logging.getLogger("psycopg").addFilter(_is_log_record_safe)
    try:
        return sa.create_engine(url, poolclass=sa.pool.NullPool, **options)
    except (sa.exc.NoSuchModuleError, ModuleNotFoundError):
        backend = url.drivername.partition("+")[0]
        if backend not in _EXTRA_BY_DRIVER:
            advice = "install SQLAlchemy's dialect and driver"
        elif url.drivername != _DRIVER_BY_SCHEME[backend]:  # the extra would not install this driver
            advice = f"write {backend}:// in place of {url.drivername}://"
        else:
            advice = f"pip install 'subscriber-connector[{_EXTRA_BY_DRIVER[backend]}]'"
        raise ConfigurationError(f"{format_url(url)}: there is no driver for {url.drivername}; {advice}") from None
    except (sa.exc.ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{format_url(url)}: {mask_secrets(str(error).strip().splitlines()[0], url)}"
        ) from None


def explain(error: BaseException, url: sa.URL) -> str:
    """Return the first line of a driver's message, without values of rows and without secrets of the URL."""
    return mask_secrets(describe_error(error).strip().splitlines()[0], url)


def mask_secrets(message: str, url: sa.URL) -> str:
    """Return a driver's message with `***` in place of the URL's password and of the values of its options. Short
    values are not replaced, unless the name of the option says that the value is secret."""
    secrets = {
        option_value
        for option_name, option_values in url.normalized_query.items()
        for option_value in option_values
        if _SECRET_OPTION_NAME_PATTERN.search(option_name) or len(option_value) >= _MIN_MASKED_LENGTH
    }
    secrets.add(str(url.password or ""))
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        # The longest secret comes first, because a secret may be a part of another secret.
        message = message.replace(secret, "***")
    return message


# Functions for the database of a ledger

_POSTGRESQL_SCHEMES = {"postgresql", "postgres", "postgresql+psycopg"}
_SQLITE_SCHEMES = {"sqlite", "sqlite+pysqlite"}
_LEDGER_URL_ADVICE = "use a SQLite file, sqlite:////path/to/ledger.db, or postgresql://user:password@host/database"
_LEDGER_OPTIONS = frozenset({  # only libpq's options for the connection: other options could make commits unsafe
    "channel_binding", "connect_timeout", "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "password", "port", "service",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    "user",
})  # fmt: skip


def parse_ledger_location(text: str) -> Path | sa.URL:
    """Return the path of a SQLite ledger, or the URL of a PostgreSQL ledger with its driver (psycopg 3).

    Raises ConfigurationError for any other URL, and for options that the URL of a ledger cannot have. The message
    contains no secret.
    """
    _refuse_invalid_utf8(text, "CONNECTOR_LEDGER")
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ConfigurationError(f"CONNECTOR_LEDGER is not a database URL: {_LEDGER_URL_ADVICE}") from None
    if url.drivername in _SQLITE_SCHEMES:
        if not url.database or url.database == ":memory:":
            raise ConfigurationError(f"a ledger cannot be kept in memory: {_LEDGER_URL_ADVICE}")
        if url.query or url.database.startswith("file:"):
            raise ConfigurationError(f"the URL of a SQLite ledger takes no options: {_LEDGER_URL_ADVICE}")
        if url.database.startswith("~"):
            raise ConfigurationError(f"CONNECTOR_LEDGER begins with ~, not with a full path: {_LEDGER_URL_ADVICE}")
        return Path(url.database)
    if url.drivername not in _POSTGRESQL_SCHEMES:
        raise ConfigurationError(f"a ledger cannot be kept at a {url.drivername} URL: {_LEDGER_URL_ADVICE}")
    _refuse_stray_at_sign(text, "CONNECTOR_LEDGER")
    if unknown_options := sorted(set(url.query) - _LEDGER_OPTIONS):
        raise ConfigurationError(
            f"CONNECTOR_LEDGER has options that the URL of a ledger cannot have ({', '.join(unknown_options)}): leave "
            "them out"
        )
    for option_name in ("port", "connect_timeout"):
        if not all(value.isascii() and value.isdigit() for value in url.normalized_query.get(option_name, ())):
            raise ConfigurationError("CONNECTOR_LEDGER has a port or a connect_timeout that is not a whole number")
    return url.set(drivername="postgresql+psycopg")


def format_ledger_location(location: Path | sa.URL) -> str:
    """Return a ledger's path or URL for messages, without the password and the options."""
    return str(location) if isinstance(location, Path) else format_url(location)
