"""Which names and addresses are this machine's own: what the sandbox listens on, and what its clients may call it."""

import ipaddress
import re
from functools import lru_cache

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII)


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost`, in 127.0.0.0/8 or ::1, without asking a name server."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)  # a client sends the same one with every request
def is_loopback_header(host: str) -> bool:
    """Whether a Host header (RFC 9110, 7.2) names this machine; "" and two in one are none."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    literal = found["v6"]
    return is_loopback(found["name"]) if literal is None else ":" in literal and is_loopback(literal)
