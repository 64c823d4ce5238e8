"""Settings of a run: defaults, then the job, then the environment, then options (or arguments, from Python).

The token comes from the environment or a file and never from an option; it is never part of a message.
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
from connector.texts import is_unicode, make_line

# The limit of open files


_WANTED = 2048  # 1,000 requests at once, look-ups and files; `select` in some drivers fails with much more
_FILES = 32  # the ledger and its journal, reports, row files, temporary copies, the source, imported modules
_ASSUMED_OPEN = 32  # if the open descriptors cannot be counted


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process, at most to the hard limit. A limit that cannot be raised stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bound_connections(wanted: int) -> int:
    """Return the number of connections that may be opened, at most `wanted`. The files of a run stay possible.

    Raises ConfigurationError if not even one connection may be opened.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = soft - _count_open() - _FILES
    if room < 1:
        raise ConfigurationError(
            f"this process may have {soft} files and connections open at once (ulimit -n), too few for a run. "
            f"Raise the limit, for example by: ulimit -n {_WANTED}"
        )
    return min(wanted, room)


def _count_open() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir()) - 1  # without the descriptor that lists them
    except OSError:
        return _ASSUMED_OPEN


_APPLICATION = "subscriber-connector"
_LEDGER = "ledger.db"  # in the state folder, where no other place is named
_BESIDE = 64  # connections; looks ask for 16 pages at once, at most
_TIMEOUT_S = 30.0  # the service promises nothing; twice the slowest answer that a user waits for
RETENTION_S = 90 * 86_400.0  # how long rejects files, drift files and reports are kept
_LARGEST_TOKEN = 16384  # bytes; a JSON Web Token with all its claims stays below 8 kB


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where this user's runs leave what they know: a folder of files, and the ledger (a SQLAlchemy URL)."""

    state_dir: Path
    ledger_url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run needs to know of its service and its place; `account` names the ledger's entries."""

    service: Service
    account: str
    state_dir: Path
    ledger_url: str = field(repr=False)
    may_make_ledger: bool = True
    retention_s: float = RETENTION_S  # after which rejects, drift files and reports are deleted
    time_limit_s: float | None = None  # after which a run is ended

    @property
    def has_no_ledger(self) -> bool:
        """Whether the ledger is the state folder's own, and none was made yet: who exports alone has none, and need not
        wait for SQLAlchemy to see it."""
        return self.ledger_url == _write_url(self.state_dir) and not (self.state_dir / _LEDGER).exists()


def read_settings(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    token: Token | None = None,
    account: str | None = None,
    authorization: str | None = None,
    timeout_s: float | None = None,
    proxy: str | None = None,
    may_make_ledger: bool = True,
    retention_s: float = RETENTION_S,
    time_limit_s: float | None = None,
    is_writing: bool = True,
) -> Settings:
    """Return the settings of a run that talks to the service; if it `is_writing`, makes the state folder (0700).

    The keywords are what a job says, and the `token` of a caller in Python; the environment's base URL has priority.
    Raises ConfigurationError: no base URL or one over plain http that is not loopback, no token or two, an unreadable
    or empty token file, a state folder that cannot be used.
    """
    service = read_service(
        environ, base_url=base_url, token=token, authorization=authorization, timeout_s=timeout_s, proxy=proxy
    )
    state = read_state(environ, is_writing=is_writing)
    return Settings(
        service=service,
        account=account or service.base_url,
        state_dir=state.state_dir,
        ledger_url=state.ledger_url,
        may_make_ledger=may_make_ledger,
        retention_s=retention_s,
        time_limit_s=time_limit_s,
    )


def read_base_url(environ: Mapping[str, str], base_url: str | None) -> str:
    """Return the environment's base URL, else the job's. Raises ConfigurationError for none, and for one that is
    invalid."""
    found = environ.get("CONNECTOR_BASE_URL") or base_url
    if not found:
        raise ConfigurationError("no base URL: set CONNECTOR_BASE_URL, or service.base_url in the job")
    return parse_base_url(found)


def read_service(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    token: Token | None = None,
    authorization: str | None = None,
    timeout_s: float | None = None,
    proxy: str | None = None,
    max_connections: int = _BESIDE,
) -> Service:
    """Return the service alone, for what needs neither ledger nor state folder. Raises ConfigurationError."""
    return Service(
        base_url=read_base_url(environ, base_url),
        token=token or read_token(environ),
        authorization=authorization or "{token}",
        timeout_s=timeout_s or _TIMEOUT_S,
        max_connections=max_connections,
        proxy=proxy,
    )


def build_service(settings: Settings, max_concurrency: int) -> Service:
    """Return the service for `max_concurrency` requests at once, with connections of their own for look-ups beside
    them, or with as many as this process may open. Raises ConfigurationError if it may open none."""
    return replace(settings.service, max_connections=bound_connections(max_concurrency + _BESIDE))


def bound_in_flight(service: Service, max_concurrency: int) -> int:
    """Return how many of the `max_concurrency` requests the connections of the service can carry, with some left for
    look-ups."""
    beside = min(_BESIDE, service.max_connections // 4)
    return max(1, min(max_concurrency, service.max_connections - beside))


def read_token(environ: Mapping[str, str]) -> Token:
    """Return the token of CONNECTOR_TOKEN or of the file that CONNECTOR_TOKEN_FILE names; an empty variable counts as
    unset.

    Raises ConfigurationError, never with any of the token: none, two, a file that cannot be read, characters that no
    header can carry.
    """
    text, path = environ.get("CONNECTOR_TOKEN"), environ.get("CONNECTOR_TOKEN_FILE")
    if text and path:
        raise ConfigurationError("both CONNECTOR_TOKEN and CONNECTOR_TOKEN_FILE are set; unset one of them")
    if text:
        return _check_token(text, "CONNECTOR_TOKEN")
    if not path:
        raise ConfigurationError("no token: set CONNECTOR_TOKEN, or CONNECTOR_TOKEN_FILE to a file that holds it")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_TOKEN + 1)
    except OSError as error:
        raise ConfigurationError(f"the token file {path} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_TOKEN:
        raise ConfigurationError(f"the token file {path} is too large for a token; is it the right file?")
    # what is no text is refused with the characters below
    return _check_token(content.decode("utf-8-sig", errors="replace"), f"the token file {path}")


def _check_token(text: str, where: str) -> Token:
    token = text.strip(" \t\r\n")  # an editor's newline, and the blanks that HTTP itself would drop
    if not token:
        raise ConfigurationError(f"{where} is empty; it must hold the API token")
    if any(unicodedata.category(character) == "Cc" for character in token):
        raise ConfigurationError(
            f"{where} holds a line break or another control character; it must hold the token alone"
        )
    if not token.isascii():
        raise ConfigurationError(f"{where} holds a character that a token cannot have, such as a typographic quote")
    return Token(token)


def read_state(environ: Mapping[str, str], *, is_writing: bool = True) -> StateLocation:
    """Return where the ledger and other files of this user are, for commands that talk to no service. If the command
    `is_writing`, the folder is made for its owner alone (0700), since it holds personal data.

    Raises ConfigurationError when the folder cannot be made or written, or else not read.
    """
    given = environ.get("CONNECTOR_STATE_DIR")
    folder = Path(given).absolute() if given else platformdirs.user_state_path(_APPLICATION, appauthor=False)
    if not is_unicode(str(folder)):
        raise ConfigurationError(
            f"the path of the state folder, {make_line(str(folder))}, is not in UTF-8, and the ledger's database needs "
            "one that is: set CONNECTOR_STATE_DIR to another"
        )
    is_usable = True
    if is_writing:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)  # an existing one stays as its owner set it
        except OSError as error:
            raise ConfigurationError(
                f"the state folder {folder} cannot be made: {error.strerror}; set CONNECTOR_STATE_DIR to another"
            ) from None
        is_usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    else:
        try:
            os.scandir(folder).close()
        except OSError as error:
            is_usable = isinstance(error, FileNotFoundError)  # nothing was kept yet
    if not is_usable:
        raise ConfigurationError(
            f"the state folder {folder} cannot be {'written' if is_writing else 'read'} by this user: allow it; or, if "
            "it holds no ledger of this account, set CONNECTOR_STATE_DIR to another"
        )
    return StateLocation(folder, environ.get("CONNECTOR_LEDGER") or _write_url(folder))


def _write_url(folder: Path) -> str:
    """Return the URL of the ledger of a state folder."""
    return f"sqlite:///{quote(str(folder / _LEDGER))}"
