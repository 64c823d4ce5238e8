"""The address of the service, the token, and the limits of connections. The values are checked when the objects are
created."""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from connector.errors import ConfigurationError


class Token:
    """An API token (service-api.md 5). Only `reveal` returns the text of the token.

    Raises ConfigurationError for a text that cannot be the value of a header: an empty text, blanks at the ends,
    control characters, or characters beyond ASCII. The message does not show the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text:
            raise ConfigurationError("The token is empty; set CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE.")
        if text != text.strip():
            raise ConfigurationError("The token begins or ends with a blank or a line break; remove it.")
        if not text.isascii() or not text.isprintable():
            raise ConfigurationError(
                "The token contains a character that an HTTP header cannot contain; copy the token again."
            )
        self._text = text

    def reveal(self) -> str:
        """Return the text of the token. Use the text only for the header of a request."""
        return self._text

    def __repr__(self) -> str:
        return "Token(****)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A token cannot be pickled or copied: pass the token in the environment or in a file.")


_BASE_URL_NAME = "The base URL (CONNECTOR_BASE_URL, or service.base_url in the job)"
_FORBIDDEN_CHARACTERS_PATTERN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_PLACEHOLDER = "{token}"
PROXY_FROM_ENVIRONMENT = "env"
_PROXY_PATTERN = re.compile(r"https?://[^\s/?#]+/?")
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Service:
    """The service's address, the token, and the limits of its connections.

    `base_url` is stored without a slash at its end. `authorization` is the template of the Authorization header, and
    contains `{token}` once. `timeout_s` is the maximum time of one attempt, and half of `timeout_s` is the maximum time
    to connect. `max_connections` is the maximum number of open connections, for creates and look-ups together. `proxy`
    is the URL of a proxy, or `env` for the proxy of the environment. Raises ConfigurationError.
    """

    base_url: str
    token: Token
    authorization: str = _PLACEHOLDER
    timeout_s: float = 30.0
    max_connections: int = 128
    proxy: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", parse_base_url(self.base_url))
        template_without_token = self.authorization.replace(_PLACEHOLDER, "", 1)
        if template_without_token == self.authorization or _PLACEHOLDER in template_without_token:
            raise ConfigurationError(
                f"service.authorization must contain {_PLACEHOLDER} once, like 'Bearer {_PLACEHOLDER}'."
            )
        if not template_without_token.isascii() or not (
            template_without_token.isprintable() or not template_without_token
        ):
            raise ConfigurationError("service.authorization contains a character that an HTTP header cannot contain.")
        if not 0 < self.timeout_s <= 3600:
            raise ConfigurationError(f"service.timeout must be more than 0 and at most 1h, not {self.timeout_s:g}s.")
        if self.proxy not in (None, PROXY_FROM_ENVIRONMENT) and not _PROXY_PATTERN.fullmatch(self.proxy or ""):
            raise ConfigurationError(
                f"service.proxy must be `{PROXY_FROM_ENVIRONMENT}`, or a URL like http://proxy.example:3128."
            )
        if self.max_connections < 1:
            raise ConfigurationError(f"The connections must be at least 1, not {self.max_connections}.")

    def reveal_authorization(self) -> str:
        """Return the whole value of the Authorization header (service-api.md 5)."""
        return self.authorization.replace(_PLACEHOLDER, self.token.reveal())


def parse_base_url(text: str) -> str:
    """Return the base URL in its canonical form: lower-case scheme and host, no default port, no slash at the end.

    The canonical form is also the default name of the account. The URL must be https, or http to a loopback address
    (127.0.0.0/8, ::1, localhost). Raises ConfigurationError for any other URL, and for a URL with credentials, a query
    or a fragment. The error shows no part of a URL with credentials.
    """
    if not text or _FORBIDDEN_CHARACTERS_PATTERN.search(text):
        raise ConfigurationError(
            f"{_BASE_URL_NAME} is empty or contains a blank or a backslash; write a URL such as https://host."
        )
    try:
        url_parts = urlsplit(text)
        host, port = url_parts.hostname, url_parts.port
    except ValueError:  # `from None`, because the message may contain a part of the URL with a password
        raise ConfigurationError(
            f"{_BASE_URL_NAME} is not a URL; write a URL such as https://host or https://host:8443."
        ) from None
    if "@" in url_parts.netloc:
        raise ConfigurationError(
            f"{_BASE_URL_NAME} contains a user name or password; remove both, because the token is a separate setting."
        )
    if url_parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(f"{_BASE_URL_NAME} must begin with https:// and a host, such as https://host.")
    if "?" in text or "#" in text:
        raise ConfigurationError(
            f"{_BASE_URL_NAME} ends in a query or a fragment; remove the ? or # and everything after it."
        )
    if url_parts.scheme == "http" and not is_loopback(host):
        raise ConfigurationError(
            f"{_BASE_URL_NAME} is plain http to {host}, which would show the token to the network; "
            "use https (plain http is only for 127.0.0.1, ::1 and localhost)."
        )
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _DEFAULT_PORTS[url_parts.scheme]) else f":{port}"
    return f"{url_parts.scheme}://{shown_host}{shown_port}{url_parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Return whether the host is localhost or a loopback address. No name server is asked."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
