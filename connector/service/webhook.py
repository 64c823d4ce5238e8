"""Posts an alert to the webhook of a job, signed by the rules of Standard Webhooks (standardwebhooks.com).

The request goes to an address of the job, and carries no token of the service.
"""

import base64
import binascii
import hashlib
import hmac
from urllib.parse import urlsplit

_PREFIX = "whsec_"
_FEWEST, _MOST = 24, 64  # bytes of a key, by the specification
_TIMEOUT_S = 10.0


def read_key(secret: str) -> bytes:
    """Return the key of a secret: `whsec_` and base64. Raises ValueError if the secret is of another form."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _FEWEST <= len(key) <= _MOST:
        raise ValueError(
            f"must be {_PREFIX} and the base64 of {_FEWEST} to {_MOST} random bytes. "
            f'Make one: echo "{_PREFIX}$(openssl rand -base64 32)"'
        )
    return key


def build_headers(message_id: str, timestamp: int, body: bytes, secret: str | None) -> dict[str, str]:
    """Return the headers of a request; `timestamp` is in Unix seconds. A request without a `secret` is not signed."""
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
    }
    if secret is not None:
        signed = f"{message_id}.{timestamp}.".encode() + body
        digest = hmac.new(read_key(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


async def post_webhook(url: str, body: bytes, headers: dict[str, str]) -> str | None:
    """Post a JSON `body` once; redirects are not followed.

    Return None if the receiver accepted the request (2xx), else the reason. The reason names only the host of the
    address, because the path often is a secret.
    """
    import aiohttp

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
