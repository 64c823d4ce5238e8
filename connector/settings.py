"""Settings of a run. Options (or arguments in Python) have precedence over the environment. The environment has
precedence over the job, and the job over the defaults.

The token comes from the environment or a file, and never from an option. No message contains the token.
"""

import os
import resource
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import platformdirs

from connector.errors import ConfigurationError
from connector.service.settings import Service, Token, parse_base_url
from connector.texts import escape_to_one_line, is_unicode

# 2,048 descriptors are enough for 1,000 requests at once, the look-ups and the files.
# With many more descriptors, the function `select` fails in some database drivers.
_WANTED_DESCRIPTOR_LIMIT = 2048
# Number of file descriptors for the ledger, its journal, reports, row files, temporary copies, the source and modules.
_RESERVED_DESCRIPTOR_COUNT = 32


def raise_descriptor_limit() -> None:
    """Raise the number of files and connections that this process may open (the soft limit), at most to the hard limit.
    If the system refuses, the number does not change."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_soft_limit = (
        _WANTED_DESCRIPTOR_LIMIT if hard_limit == resource.RLIM_INFINITY else min(_WANTED_DESCRIPTOR_LIMIT, hard_limit)
    )
    if soft_limit != resource.RLIM_INFINITY and soft_limit < new_soft_limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_soft_limit, hard_limit))


def limit_connection_count(requested_count: int) -> int:
    """Return how many of `requested_count` connections may be opened, so that the run can still open its files.

    Raises ConfigurationError if not even one connection may be opened.
    """
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return requested_count
    try:
        # The descriptor with which this code lists the folder does not count.
        open_count = sum(1 for _ in Path("/dev/fd").iterdir()) - 1
    except OSError:
        open_count = 32  # an assumption, because the open descriptors cannot be counted
    available_count = soft_limit - open_count - _RESERVED_DESCRIPTOR_COUNT
    if available_count < 1:
        raise ConfigurationError(
            f"this process may have {soft_limit} files and connections open at once (ulimit -n), too few for a run. "
            f"Raise the limit, for example by: ulimit -n {_WANTED_DESCRIPTOR_LIMIT}"
        )
    return min(requested_count, available_count)


_LEDGER_FILE_NAME = "ledger.db"  # the file in the state folder, used if CONNECTOR_LEDGER is not set
_LOOKUP_CONNECTION_COUNT = 64  # connections for look-ups, in addition to the connections for creates and emails
_TIMEOUT_S = 30.0  # twice the time that a person waits for a page, because service-api.md gives no time limit
RETENTION_S = 90 * 86_400.0  # seconds for which rejects files, drift files and reports are stored
_MAX_TOKEN_BYTES = 16384  # a JSON Web Token with all its claims has less than 8 kB


@dataclass(frozen=True, slots=True)
class StateLocation:
    """The location of the files that this user's runs share: the state folder, and the ledger (a URL for
    SQLAlchemy)."""

    state_dir: Path
    ledger_url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run. `account` is the name under which the ledger stores the entries."""

    service: Service
    account: str
    state_dir: Path
    ledger_url: str = field(repr=False)
    may_create_ledger: bool = True
    retention_s: float = RETENTION_S  # seconds after which rejects files, drift files and reports are deleted
    time_limit_s: float | None = None  # seconds after which the run is stopped; None: no limit

    @property
    def is_ledger_missing(self) -> bool:
        """Whether the ledger belongs in the state folder and does not exist. Users who only export have no ledger.

        This check does not import SQLAlchemy, because the import would delay an export without a ledger.
        """
        return (
            self.ledger_url == _build_ledger_url(self.state_dir) and not (self.state_dir / _LEDGER_FILE_NAME).exists()
        )


def read_settings(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    token: Token | None = None,
    account: str | None = None,
    authorization: str | None = None,
    timeout_s: float | None = None,
    proxy: str | None = None,
    may_create_ledger: bool = True,
    retention_s: float = RETENTION_S,
    time_limit_s: float | None = None,
    writes_state: bool = True,
) -> Settings:
    """Return the settings of a run that sends requests to the service. If `writes_state`, create the state folder
    (0700).

    The keyword arguments except `token` and `writes_state` are values of a job. Only a caller in Python passes `token`.
    The base URL of the environment has precedence over `base_url`.

    Raises ConfigurationError in these cases:

    - There is no base URL, or a base URL over plain http that is not a loopback address.
    - There is no token, or there are two tokens.
    - The token file is empty or cannot be read.
    - The state folder cannot be used.
    """
    service = read_service(
        environ, base_url=base_url, token=token, authorization=authorization, timeout_s=timeout_s, proxy=proxy
    )
    state_location = read_state_location(environ, writes_state=writes_state)
    return Settings(
        service=service,
        account=account or service.base_url,
        state_dir=state_location.state_dir,
        ledger_url=state_location.ledger_url,
        may_create_ledger=may_create_ledger,
        retention_s=retention_s,
        time_limit_s=time_limit_s,
    )


def read_base_url(environ: Mapping[str, str], base_url: str | None) -> str:
    """Return the base URL of the environment, or else of the job. Raises ConfigurationError if no base URL is set, or
    if the base URL is invalid."""
    url_text = environ.get("CONNECTOR_BASE_URL") or base_url
    if not url_text:
        raise ConfigurationError("no base URL: set CONNECTOR_BASE_URL, or service.base_url in the job")
    return parse_base_url(url_text)


def read_service(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    token: Token | None = None,
    authorization: str | None = None,
    timeout_s: float | None = None,
    proxy: str | None = None,
    max_connections: int = _LOOKUP_CONNECTION_COUNT,
) -> Service:
    """Return only the service, for code that needs no ledger and no state folder. Raises ConfigurationError."""
    return Service(
        base_url=read_base_url(environ, base_url),
        token=token or read_token(environ),
        authorization=authorization or "{token}",
        timeout_s=timeout_s or _TIMEOUT_S,
        max_connections=max_connections,
        proxy=proxy,
    )


def build_service(settings: Settings, max_concurrency: int) -> Service:
    """Return the service with enough connections for `max_concurrency` requests at once and for look-ups. If this
    process may not open so many connections, return the service with fewer. Raises ConfigurationError if the process
    may not open any connection."""
    return replace(settings.service, max_connections=limit_connection_count(max_concurrency + _LOOKUP_CONNECTION_COUNT))


def limit_in_flight_count(service: Service, max_concurrency: int) -> int:
    """Return the number of requests, at most `max_concurrency`, that may be in flight, so that some of the service's
    connections remain for look-ups."""
    lookup_connection_count = min(_LOOKUP_CONNECTION_COUNT, service.max_connections // 4)
    return max(1, min(max_concurrency, service.max_connections - lookup_connection_count))


def read_token(environ: Mapping[str, str]) -> Token:
    """Return the token of CONNECTOR_TOKEN, or of the file that CONNECTOR_TOKEN_FILE names. An empty variable has no
    effect.

    Raises ConfigurationError if no token or two tokens are set, if the file cannot be read, or if a header cannot
    contain the token. The message contains no part of the token.
    """
    text, path = environ.get("CONNECTOR_TOKEN"), environ.get("CONNECTOR_TOKEN_FILE")
    if text and path:
        raise ConfigurationError("both CONNECTOR_TOKEN and CONNECTOR_TOKEN_FILE are set; unset one of them")
    if text:
        return _check_token(text, "CONNECTOR_TOKEN")
    if not path:
        raise ConfigurationError("no token: set CONNECTOR_TOKEN, or CONNECTOR_TOKEN_FILE to a file with the token")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"the token file {path} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_TOKEN_BYTES:
        raise ConfigurationError(
            f"the token file {path} has more than {_MAX_TOKEN_BYTES:,} bytes, so the file does not hold a token; name "
            "the right file"
        )
    # Bytes that are not UTF-8 are replaced by a character that `_check_token` refuses.
    return _check_token(content.decode("utf-8-sig", errors="replace"), f"the token file {path}")


def _check_token(text: str, origin: str) -> Token:
    token = text.strip(" \t\r\n")  # remove the line end of an editor, and blanks that HTTP would drop
    if not token:
        raise ConfigurationError(f"{origin} is empty; write the API token there")
    if any(unicodedata.category(character) == "Cc" for character in token):
        raise ConfigurationError(
            f"{origin} contains a line break or another control character; write only the token there"
        )
    if not token.isascii():
        raise ConfigurationError(f"{origin} contains a character that a token cannot have, such as a typographic quote")
    return Token(token)


def read_state_location(environ: Mapping[str, str], *, writes_state: bool = True) -> StateLocation:
    """Return the location of the ledger and the other files of this user. If `writes_state`, create a missing folder,
    which only its owner can open (0700), because the files contain personal data.

    Raises ConfigurationError if the folder begins with ~, is not in UTF-8, or cannot be read. If `writes_state`,
    also raises ConfigurationError if the folder cannot be created or written.
    """
    configured_folder = environ.get("CONNECTOR_STATE_DIR")
    if configured_folder and configured_folder.startswith("~"):  # cron and systemd pass the variable unchanged
        raise ConfigurationError(
            f"CONNECTOR_STATE_DIR is {escape_to_one_line(configured_folder)}, and only a shell replaces ~ by your home "
            "folder: write the full path"
        )
    folder = (
        Path(configured_folder).absolute()
        if configured_folder
        else platformdirs.user_state_path("subscriber-connector", appauthor=False)
    )
    if not is_unicode(str(folder)):
        raise ConfigurationError(
            f"the path of the state folder, {escape_to_one_line(str(folder))}, is not in UTF-8, and the ledger's "
            "database needs a path in UTF-8: set CONNECTOR_STATE_DIR to another folder"
        )
    is_folder_usable = True
    if writes_state:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)  # the permissions of an existing folder do not change
        except OSError as error:
            raise ConfigurationError(
                f"the state folder {folder} cannot be created: {error.strerror}; set CONNECTOR_STATE_DIR to another "
                "folder"
            ) from None
        is_folder_usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    else:
        try:
            os.scandir(folder).close()
        except OSError as error:
            # If the folder is missing, no run has stored anything yet. The caller reads an empty state.
            is_folder_usable = isinstance(error, FileNotFoundError)
    if not is_folder_usable:
        raise ConfigurationError(
            f"this user cannot {'write' if writes_state else 'read'} the state folder {folder}: change the "
            "permissions. If the folder has no ledger of this account, you can also set CONNECTOR_STATE_DIR to another "
            "folder"
        )
    return StateLocation(folder, environ.get("CONNECTOR_LEDGER") or _build_ledger_url(folder))


def _build_ledger_url(folder: Path) -> str:
    return f"sqlite:///{quote(str(folder / _LEDGER_FILE_NAME))}"
