"""A signed message to somebody's own address: that a run has ended. It carries no token of the service."""

import hashlib
import hmac
from urllib.parse import urlsplit

import aiohttp

_TIMEOUT_S = 10.0


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the HMAC of the timestamp, a full stop and the body: whoever has the secret can tell that neither
    was altered, nor is an old one sent again."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


async def post_webhook(url: str, body: bytes, secret: str | None, timestamp: int) -> str | None:
    """Post a JSON `body` once, signed if there is a secret; redirects are not followed. `timestamp` is in Unix seconds.

    Returns None when it was taken (2xx), else why not: the address is named by its host alone, since its path often is
    a secret.
    """
    headers = {"Content-Type": "application/json", "X-Connector-Timestamp": str(timestamp)}
    if secret is not None:
        headers["X-Connector-Signature"] = sign(secret, str(timestamp), body)
    host = urlsplit(url).hostname or "the address"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return None if 200 <= answer.status < 300 else f"{host} answered {answer.status}"
    except TimeoutError:
        return f"{host} did not answer within {_TIMEOUT_S:.0f} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"{host} cannot be reached ({type(error).__name__})"
