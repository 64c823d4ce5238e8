"""Posts an alert to the webhook of a job, signed by the rules of Standard Webhooks (standardwebhooks.com).

The request goes to the address in the job, and does not contain the token of the service.
"""

import base64
import hashlib
import hmac
from urllib.parse import urlsplit

_KEY_PREFIX = "whsec_"
_MIN_KEY_BYTES, _MAX_KEY_BYTES = 24, 64  # the limits of the specification of Standard Webhooks
_TIMEOUT_S = 10.0


def read_key(secret: str) -> bytes:
    """Return the key of a secret (`whsec_` and base64). Raises ValueError if the secret has another form."""
    try:
        key = base64.b64decode(secret.removeprefix(_KEY_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ValueError(
            f"must be {_KEY_PREFIX} followed by {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} random bytes in base64. "
            f'Make one: echo "{_KEY_PREFIX}$(openssl rand -base64 32)"'
        )
    return key


def build_headers(message_id: str, timestamp: int, body: bytes, secret: str | None) -> dict[str, str]:
    """Return the headers of a request. `timestamp` is in Unix seconds. If `secret` is None, the request is not
    signed."""
    headers = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if secret is not None:
        signed_content = f"{message_id}.{timestamp}.".encode() + body
        digest = hmac.new(read_key(secret), signed_content, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


async def post_webhook(url: str, body: bytes, headers: dict[str, str]) -> str | None:
    """Post a JSON `body` once. Redirects are not followed.

    Return None if the receiver accepted the request (2xx), else the reason. The reason names only the host of the
    address, because the path is often a secret.
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
