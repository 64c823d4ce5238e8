"""Sends one request with aiohttp, and returns one raw answer. An exception of aiohttp is returned as a value.

This module does not retry, follow redirects or parse answers. NotSent means that no byte was written. If a byte may
have been written, the result is AmbiguousResult.
"""

import io
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from connector.service.settings import PROXY_FROM_ENVIRONMENT, Service
from connector.service.wire import AmbiguousResult, NotSent, RawAnswer, Request

MAX_IDLE_S: Final = 3.0
"""Seconds after which an idle connection is closed. The shortest common keep-alive is 5 s (Node.js, Apache). A request
must not leave on a connection that the service is closing, because its result would be unknown."""

MAX_ANSWER_BYTES: Final = 64 * 2**20
"""The largest answer that is read, after decompression. A thousand subscribers with all fields have about 1 MB."""

_CONNECT_TIMEOUT_SHARE: Final = 0.5
"""The share of the time-out that connecting may take. If this share is below 1, aiohttp raises different exceptions for
a time-out while connecting and for a time-out of the answer."""


class _ConnectionCutError(aiohttp.ClientError):
    """The error of a connection that was cut after the request left. aiohttp does not send the request again after an
    error of this type."""


class Transport:
    """Sends requests to one service over a pool of connections. `open_transport` creates the object."""

    def __init__(self, session: aiohttp.ClientSession, service: Service) -> None:
        self._session = session
        self._base_url = service.base_url
        self._timeout_s = service.timeout_s
        # These are headers of each request. aiohttp would send headers of the session, with the token, to a proxy.
        headers = {"Authorization": service.reveal_authorization(), "Accept": "application/json"}
        self._headers = CIMultiDict({**headers, "Cache-Control": "no-cache"})  # no cache may answer (RFC 9111, 5.2.1.4)
        self._posted_headers = CIMultiDict({**headers, "Content-Type": "application/json"})

    async def send(self, request: Request) -> RawAnswer | NotSent | AmbiguousResult:
        """Make one attempt to send the request. A cancellation is not caught, and closes the connection. After a
        cancellation, the result of the request is unknown."""
        body: bytes | io.BytesIO | None = request.body
        if request.body is not None and len(request.body) > 2**20:
            # aiohttp sends a file in parts, and would log a warning for more than 1 MiB of bytes.
            body = io.BytesIO(request.body)
        url_text = self._base_url + request.path
        if request.query:
            # Encode the query here, because yarl would leave some characters that the service would misread.
            url_text += f"?{urlencode(request.query, quote_via=quote)}"
        try:
            async with self._session.request(
                request.method,
                URL(url_text, encoded=True),
                data=body,
                headers=self._headers if request.body is None else self._posted_headers,
                allow_redirects=False,
                middlewares=(_send_once,) if request.method == "GET" else None,
            ) as response:
                content_length = response.content_length
                if (
                    content_length is not None
                    and content_length <= MAX_ANSWER_BYTES
                    and "Content-Encoding" not in response.headers
                ):
                    return RawAnswer(response.status, response.headers, await response.read())
                return await _read_body_up_to_limit(response, content_length or 0)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _translate_error(error, self._timeout_s)


@asynccontextmanager
async def open_transport(service: Service, *, idle_s: float = MAX_IDLE_S) -> AsyncIterator[Transport]:
    """Yield a pool of connections to the service. TLS certificates are verified, cookies are not stored, and the only
    proxy is `service.proxy`."""
    tcp_connector = aiohttp.TCPConnector(limit=service.max_connections, keepalive_timeout=idle_s)
    timeout = aiohttp.ClientTimeout(total=service.timeout_s, connect=service.timeout_s * _CONNECT_TIMEOUT_SHARE)
    async with aiohttp.ClientSession(
        connector=tcp_connector,
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=_find_proxy(service),
        trust_env=False,  # if true, aiohttp would look for a proxy at each request, in a thread, and read a netrc file
    ) as session:
        yield Transport(session, service)


def _find_proxy(service: Service) -> str | None:
    """Return the URL of `service.proxy`, or the proxy of the environment (HTTPS_PROXY and NO_PROXY), or None.

    Plain http never uses a proxy, because it is only for loopback addresses. A proxy cannot reach these addresses, and
    could read the token.
    """
    url_parts = urlsplit(service.base_url)
    if url_parts.scheme != "https" or service.proxy != PROXY_FROM_ENVIRONMENT:
        return service.proxy if url_parts.scheme == "https" else None
    return None if proxy_bypass(url_parts.netloc) else getproxies().get("https")


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a GET again after a dead pooled connection, because the retrier decides on retries."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ConnectionCutError from error


async def _read_body_up_to_limit(response: aiohttp.ClientResponse, announced_bytes: int) -> RawAnswer | AmbiguousResult:
    """Return an answer of unknown length (chunked or compressed). Return AmbiguousResult if the answer exceeds
    MAX_ANSWER_BYTES."""
    chunks: list[bytes] = []
    byte_count = announced_bytes if announced_bytes > MAX_ANSWER_BYTES else 0
    while byte_count <= MAX_ANSWER_BYTES:
        chunk = await response.content.readany()
        if not chunk:
            return RawAnswer(response.status, response.headers, b"".join(chunks))
        byte_count += len(chunk)
        chunks.append(chunk)
    response.close()
    return AmbiguousResult(response.status, f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB and was not read")


def _translate_error(
    error: aiohttp.ClientError | TimeoutError | OSError, timeout_s: float
) -> NotSent | AmbiguousResult:
    """Return NotSent or AmbiguousResult for an exception. The message is new, because the exception's message may
    contain the URL with a person's address.

    Only exceptions that aiohttp raises while connecting are NotSent. Tests check these exceptions on real sockets.
    """
    match error:
        # 1. errors before the first byte was written
        case aiohttp.ConnectionTimeoutError():
            return NotSent(f"no connection within {timeout_s * _CONNECT_TIMEOUT_SHARE:g} s")
        case aiohttp.ClientConnectorDNSError():
            return NotSent(f"the host name {error.host} could not be resolved")
        case aiohttp.ClientConnectorCertificateError():
            return NotSent(f"the certificate of {error.host} is not trusted: {_explain_error(error.certificate_error)}")
        case aiohttp.ClientConnectorSSLError():
            return NotSent(f"no TLS connection to {error.host}: {_explain_error(error.os_error)}")
        case aiohttp.ClientProxyConnectionError():
            return NotSent("no connection to the proxy (service.proxy)")
        case aiohttp.ClientConnectorError():
            return NotSent(f"no connection to {error.host}:{error.port}: {_explain_error(error.os_error)}")
        case aiohttp.ClientHttpProxyError():
            return NotSent(f"the proxy (service.proxy) refused to connect (status {error.status})")
        # 2. errors after the first byte was written, or at an unknown time
        case TimeoutError():
            return AmbiguousResult(None, f"no complete answer within {timeout_s:g} s")
        case aiohttp.ClientPayloadError():
            return AmbiguousResult(None, "the connection was cut in the middle of the answer")
        case aiohttp.ClientResponseError():
            return AmbiguousResult(None, "the answer was not valid HTTP")
        case _:
            return AmbiguousResult(None, "the connection was cut before the answer")


def _explain_error(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or "no reason given"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__
