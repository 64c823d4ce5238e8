"""A proxy is used only if the settings select a proxy. If the proxy fails, the request counts as not sent."""

import os

import pytest

from connector.errors import ConfigurationError
from connector.service.settings import Service, Token
from connector.service.transport import open_transport
from connector.service.wire import NotSent, RawAnswer
from tests.service import faults
from tests.service.attempts import CREATE_REQUEST, OK, build_service
from tests.service.faults import build_response, find_unused_port, serve

PROXY_REFUSAL = build_response(b"", "407 Proxy Authentication Required")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


async def send_through_proxy(base_url: str, proxy: str | None) -> object:
    async with open_transport(build_service(base_url, proxy=proxy)) as transport:
        return await transport.send(CREATE_REQUEST)


async def test_the_proxy_of_the_environment_is_used_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(faults.answer_with(PROXY_REFUSAL)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        await send_through_proxy("https://localhost:1", None)
        assert proxy.requests == []
        await send_through_proxy("https://localhost:1", "env")
        assert proxy.requests[0].startswith(b"CONNECT localhost:1 HTTP/1.1")
        monkeypatch.setenv("no_proxy", "localhost")
        await send_through_proxy("https://localhost:1", "env")
        assert len(proxy.requests) == 1


async def test_a_loopback_service_over_plain_http_is_never_reached_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{find_unused_port()}")
    async with serve(faults.answer_with(OK)) as server:
        assert isinstance(await send_through_proxy(server.base_url, "env"), RawAnswer)


async def test_a_request_through_a_missing_proxy_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{find_unused_port()}")
    answer = await send_through_proxy("https://localhost:1", "env")
    assert answer == NotSent("no connection to the proxy (service.proxy)")


@pytest.mark.parametrize("credentials", ["", "user:pass@"])
async def test_the_token_is_not_sent_to_a_proxy_that_refuses_the_connection(
    monkeypatch: pytest.MonkeyPatch, credentials: str
) -> None:
    """This version of aiohttp would send the token of the service to a proxy without credentials."""
    async with serve(faults.answer_with(PROXY_REFUSAL)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{credentials}127.0.0.1:{proxy.port}")
        answer = await send_through_proxy("https://localhost:1", "env")
        assert answer == NotSent("the proxy (service.proxy) refused to connect (status 407)")
        assert proxy.requests
        assert not [request for request in proxy.requests if b"s3cret" in request]


async def test_the_proxy_of_the_settings_is_used_in_any_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "localhost")
    async with serve(faults.answer_with(PROXY_REFUSAL)) as proxy:
        await send_through_proxy("https://localhost:1", f"http://127.0.0.1:{proxy.port}")
        assert proxy.requests[0].startswith(b"CONNECT localhost:1 HTTP/1.1")


def test_a_proxy_setting_without_a_url_is_refused() -> None:
    for proxy in ["", "proxy:3128", "ftp://proxy", "http://", "http://a b"]:
        with pytest.raises(ConfigurationError, match=r"service\.proxy must be `env`, or a URL"):
            Service("https://localhost", Token("s3cret"), proxy=proxy)
