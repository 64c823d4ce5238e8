"""Settings of a run: defaults, then the job, then the environment, then options (or arguments, from Python).

The token comes from the environment or a file and never from an option; it is never part of a message.
"""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import platformdirs

from connector.errors import ConfigurationError
from connector.run_log import RETENTION_S
from connector.service.settings import Service, Token, parse_base_url

_APPLICATION = "subscriber-connector"
_BESIDE = 64  # connections; looks ask for 16 pages at once, at most
_TIMEOUT_S = 30.0  # the service promises nothing; twice the slowest answer that a user waits for
_LARGEST_TOKEN = 16384  # bytes; a JSON Web Token with all its claims stays below 8 kB


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a job says of its service, its ledger and its time; None where it says nothing."""

    base_url: str | None = None
    account: str | None = None
    authorization: str | None = None
    timeout_s: float | None = None
    proxy: str | None = field(default=None, repr=False)
    may_make_ledger: bool = True
    retention_s: float = RETENTION_S
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """What the command line, or the arguments of a function, gave: None where an option was not used."""

    base_url: str | None = None
    token: Token | None = None  # never by the command line: arguments show in process lists
    account: str | None = None
    state_dir: Path | None = None
    ledger_url: str | None = field(default=None, repr=False)  # may hold a password
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where this user's runs leave what they know: a folder of files, and the ledger (a SQLAlchemy URL)."""

    state_dir: Path
    ledger_url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run needs to know of its service and its place; `account` names the ledger's entries."""

    base_url: str
    token: Token
    authorization: str
    timeout_s: float
    account: str
    state_dir: Path
    ledger_url: str = field(repr=False)
    proxy: str | None = field(default=None, repr=False)
    may_make_ledger: bool = True
    retention_s: float = RETENTION_S  # after which rejects, drift files and reports are deleted
    time_limit_s: float | None = None  # after which a run is ended

    @property
    def has_no_ledger(self) -> bool:
        """Whether the ledger is the state folder's own, and none was made yet: who exports alone has none, and need not
        wait for SQLAlchemy to see it."""
        file = _find_ledger(self.state_dir)
        return self.ledger_url == _write_url(file) and not file.exists()


def read_settings(
    environ: Mapping[str, str], job: JobSettings, options: SettingOptions, *, is_writing: bool = True
) -> Settings:
    """Return the settings of a run that talks to the service; if it `is_writing`, makes the state folder (0700).

    Raises ConfigurationError: no base URL or one over plain http that is not loopback, no token or two, an unreadable
    or empty token file, a state folder that cannot be used.
    """
    base_url = _read_base_url(environ, job, options)
    token = options.token or read_token(environ)
    state = read_state(environ, options, is_writing=is_writing)
    return Settings(
        base_url=base_url,
        token=token,
        authorization=job.authorization or "{token}",
        timeout_s=job.timeout_s or _TIMEOUT_S,
        account=read_account(environ, job, options),
        state_dir=state.state_dir,
        ledger_url=state.ledger_url,
        proxy=job.proxy,
        may_make_ledger=job.may_make_ledger,
        retention_s=job.retention_s,
        time_limit_s=job.time_limit_s if options.time_limit_s is None else options.time_limit_s,
    )


def read_account(environ: Mapping[str, str], job: JobSettings, options: SettingOptions) -> str:
    """Return the account that the ledger's entries are of: by option or job, else the base URL, for commands without a
    token.

    Raises ConfigurationError when neither is given, or the base URL is invalid.
    """
    return options.account or job.account or _read_base_url(environ, job, options)


def _read_base_url(environ: Mapping[str, str], job: JobSettings, options: SettingOptions) -> str:
    base_url = options.base_url or environ.get("CONNECTOR_BASE_URL") or job.base_url
    if not base_url:
        raise ConfigurationError("no base URL: set CONNECTOR_BASE_URL, or service.base_url in the job")
    return parse_base_url(base_url)


def build_service(settings: Settings, max_concurrency: int) -> Service:
    """Return the service for `max_concurrency` requests at once, with connections of their own for look-ups beside
    them."""
    return Service(
        base_url=settings.base_url,
        token=settings.token,
        authorization=settings.authorization,
        timeout_s=settings.timeout_s,
        max_connections=max_concurrency + _BESIDE,
        proxy=settings.proxy,
    )


def read_service(
    environ: Mapping[str, str], job: JobSettings, options: SettingOptions, max_connections: int
) -> Service:
    """Return the service alone, for what needs neither ledger nor state folder. Raises ConfigurationError."""
    return Service(
        base_url=_read_base_url(environ, job, options),
        token=options.token or read_token(environ),
        authorization=job.authorization or "{token}",
        timeout_s=job.timeout_s or _TIMEOUT_S,
        max_connections=max_connections,
        proxy=job.proxy,
    )


def read_token(environ: Mapping[str, str]) -> Token:
    """Return the token of CONNECTOR_TOKEN or of the file that CONNECTOR_TOKEN_FILE names; an empty variable counts as
    unset.

    Raises ConfigurationError, never with any of the token: none, two, a file that cannot be read, characters that no
    header can carry.
    """
    text, path = environ.get("CONNECTOR_TOKEN"), environ.get("CONNECTOR_TOKEN_FILE")
    if text and path:
        raise ConfigurationError("both CONNECTOR_TOKEN and CONNECTOR_TOKEN_FILE are set; unset one of them")
    if path:
        return _check_token(_read_token_file(Path(path)), f"the token file {path}")
    if text:
        return _check_token(text, "CONNECTOR_TOKEN")
    raise ConfigurationError("no token: set CONNECTOR_TOKEN, or CONNECTOR_TOKEN_FILE to a file that holds it")


def _read_token_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_TOKEN + 1)
    except OSError as error:
        raise ConfigurationError(f"the token file {path} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST_TOKEN:
        raise ConfigurationError(f"the token file {path} is too large for a token; is it the right file?")
    return content.decode("utf-8-sig", errors="replace")  # what is no text is refused with the characters below


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


def read_state(environ: Mapping[str, str], options: SettingOptions, *, is_writing: bool = True) -> StateLocation:
    """Return where the ledger and other files of this user are, for commands that talk to no service; makes the folder
    (0700) if the command `is_writing`.

    Raises ConfigurationError when the folder cannot be made or written, or else not read.
    """
    given = options.state_dir or environ.get("CONNECTOR_STATE_DIR")
    folder = Path(given).absolute() if given else platformdirs.user_state_path(_APPLICATION, appauthor=False)
    (_make_folder if is_writing else _check_readable)(folder)
    ledger_url = options.ledger_url or environ.get("CONNECTOR_LEDGER")
    return StateLocation(folder, ledger_url or _write_url(_find_ledger(folder)))


def _find_ledger(folder: Path) -> Path:
    """The ledger's file where no other place is named."""
    return folder / "ledger.db"


def _write_url(file: Path) -> str:
    return f"sqlite:///{quote(str(file))}"


def _make_folder(folder: Path) -> None:
    """Make the folder for its owner alone, since it holds personal data; an existing one stays as its owner set it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the state folder {folder} cannot be made: {error.strerror}; set CONNECTOR_STATE_DIR to another"
        ) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _build_denied(folder, "written")


def _check_readable(folder: Path) -> None:
    try:
        os.scandir(folder).close()
    except FileNotFoundError:  # nothing was kept yet
        return
    except OSError:
        raise _build_denied(folder, "read") from None


def _build_denied(folder: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the state folder {folder} cannot be {what} by this user: allow it; or, if it holds no ledger of this "
        "account, set CONNECTOR_STATE_DIR to another"
    )
