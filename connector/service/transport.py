"""One request out, one raw answer in, by aiohttp; every foreign exception becomes a value here, once.

It never retries, follows or understands an answer. What counts is the line between NotSent (no byte was written) and
Ambiguous; where that cannot be proved, it is Ambiguous.
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

from connector.service.settings import FROM_ENVIRONMENT, Service
from connector.service.wire import Ambiguous, NotSent, RawAnswer, Request

IDLE_S: Final = 3.0
"""An idle connection is closed after this long. The shortest keep-alive in common use is 5 s (Node.js, Apache): a
request must not leave on a connection that the service is closing, since what became of it would be unknown."""

LARGEST_ANSWER: Final = 64 * 2**20
"""Bytes, decompressed. A thousand subscribers with every field filled are about 1 MB."""

_CONNECT_SHARE: Final = 0.5
"""The part of the time-out that a connection may take. It ends before the whole, so a time-out of the whole is one of
the answer; aiohttp tells the two apart by type only then."""


class _CutError(aiohttp.ClientError):
    """A connection cut after a request went out on it, in a type that aiohttp does not take as leave to send again."""


class Transport:
    """Sends requests over a pool of connections to one service; made by `open_transport`."""

    __slots__ = ("_base_url", "_headers", "_posted_headers", "_session", "_timeout_s", "_urls")

    def __init__(self, session: aiohttp.ClientSession, service: Service) -> None:
        self._session = session
        self._base_url = service.base_url
        self._timeout_s = service.timeout_s
        self._urls: dict[str, URL] = {}
        # With each request and not as the session's own: aiohttp hands those to a proxy too, the token among them.
        headers = {"Authorization": service.reveal_authorization(), "Accept": "application/json"}
        self._headers = CIMultiDict({**headers, "Cache-Control": "no-cache"})  # RFC 9111, 5.2.1.4
        self._posted_headers = CIMultiDict({**headers, "Content-Type": "application/json"})

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """Make one attempt. A cancellation passes through and closes the connection: what became of it is unknown."""
        body: bytes | io.BytesIO | None = request.body
        if request.body is not None and len(request.body) > 2**20:
            body = io.BytesIO(request.body)  # aiohttp warns of bytes past 1 MiB; a file goes out in parts
        try:
            async with self._session.request(
                request.method,
                self._url(request),
                data=body,
                headers=self._headers if request.body is None else self._posted_headers,
                allow_redirects=False,
                middlewares=(_send_once,) if request.method == "GET" else None,
            ) as response:
                length = response.content_length
                if length is not None and length <= LARGEST_ANSWER and "Content-Encoding" not in response.headers:
                    return RawAnswer(response.status, response.headers, await response.read())
                return await _read_bounded(response, length or 0)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return _translate(error, self._timeout_s)

    def _url(self, request: Request) -> URL:
        url = self._urls.get(request.path)
        if url is None:
            url = self._urls[request.path] = URL(self._base_url + request.path, encoded=True)
        if request.query:
            # Encoded here: yarl would leave some characters as they are that a form decoder reads otherwise.
            return URL(f"{url}?{urlencode(request.query, quote_via=quote)}", encoded=True)
        return url


@asynccontextmanager
async def open_transport(service: Service, *, idle_s: float = IDLE_S) -> AsyncIterator[Transport]:
    """Yield a pool of connections to the service: TLS verified, no cookies, no proxy but `service.proxy`."""
    connector = aiohttp.TCPConnector(limit=service.max_connections, keepalive_timeout=idle_s)
    timeout = aiohttp.ClientTimeout(total=service.timeout_s, connect=service.timeout_s * _CONNECT_SHARE)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=_find_proxy(service),
        trust_env=False,  # aiohttp's own would look for a proxy in a thread at each request, and for a netrc
    ) as session:
        yield Transport(session, service)


def _find_proxy(service: Service) -> str | None:
    """The URL of `service.proxy`, or what the environment names (HTTPS_PROXY and its like, less NO_PROXY).

    Plain http is to a loopback address, which a proxy could not reach, and would show it the token: none for that.
    """
    parts = urlsplit(service.base_url)
    if parts.scheme != "https" or service.proxy != FROM_ENVIRONMENT:
        return service.proxy if parts.scheme == "https" else None
    return None if proxy_bypass(parts.netloc) else getproxies().get("https")


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """aiohttp sends a GET again when its pooled connection turns out dead; whether to is the retrier's to decide."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _CutError from error


async def _read_bounded(response: aiohttp.ClientResponse, announced: int) -> RawAnswer | Ambiguous:
    """Read an answer whose length is not known before (chunked, compressed, until the end); give up past the bound."""
    chunks: list[bytes] = []
    size = announced if announced > LARGEST_ANSWER else 0
    while size <= LARGEST_ANSWER:
        chunk = await response.content.readany()
        if not chunk:
            return RawAnswer(response.status, response.headers, b"".join(chunks))
        size += len(chunk)
        chunks.append(chunk)
    response.close()
    return Ambiguous(response.status, f"the answer is larger than {LARGEST_ANSWER >> 20} MiB and was not read")


def _translate(error: aiohttp.ClientError | TimeoutError | OSError, timeout_s: float) -> NotSent | Ambiguous:
    """The one table of failures; words of our own, since an exception's may hold the URL with a person's address.

    Only what aiohttp raises while connecting is NotSent; tests hold it to that on real sockets.
    """
    match error:
        # 1. before the first byte
        case aiohttp.ConnectionTimeoutError():
            return NotSent(f"no connection within {timeout_s * _CONNECT_SHARE:g} s")
        case aiohttp.ClientConnectorDNSError():
            return NotSent(f"the host name {error.host} could not be resolved")
        case aiohttp.ClientConnectorCertificateError():
            return NotSent(f"the certificate of {error.host} is not trusted: {_reason(error.certificate_error)}")
        case aiohttp.ClientConnectorSSLError():
            return NotSent(f"no TLS connection to {error.host}: {_reason(error.os_error)}")
        case aiohttp.ClientProxyConnectionError():
            return NotSent("no connection to the proxy (service.proxy)")
        case aiohttp.ClientConnectorError():
            return NotSent(f"no connection to {error.host}:{error.port}: {_reason(error.os_error)}")
        case aiohttp.ClientHttpProxyError():
            return NotSent(f"the proxy (service.proxy) refused to connect (status {error.status})")
        # 2. after it, or it is not known when
        case TimeoutError():
            return Ambiguous(None, f"no whole answer within {timeout_s:g} s")
        case aiohttp.ClientPayloadError():
            return Ambiguous(None, "the connection was cut in the middle of the answer")
        case aiohttp.ClientResponseError():
            return Ambiguous(None, "the answer was no HTTP that can be read")
        case _:
            return Ambiguous(None, "the connection was cut before the answer")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or "no reason given"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__
