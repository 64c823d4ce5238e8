"""The page of the sandbox at `/`. The page needs the token, loads nothing from other servers, and runs no script."""

import json
from base64 import b64encode

import pytest

from tests.sandbox.client import SEND_PATH, Reply, SandboxClient


def open_page(
    client: SandboxClient, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str
) -> Reply:
    basic_credentials = b64encode(f"anybody:{client.sandbox.token}".encode()).decode()
    return client.request(
        method,
        path,
        body,
        **{"Authorization": f"Basic {basic_credentials}", "Host": f"127.0.0.1:{client.port}"} | headers,
    )


def send_email(client: SandboxClient, html: str) -> None:
    email = {"To": [{"Email": "ann@example.com"}], "From": {"Email": "a@example.com"}, "Subject": "Hi", "Html": html}
    assert client.request("POST", SEND_PATH, json.dumps({"SendEmail": {"Email": email}}).encode()).status == 200


def test_the_page_shows_the_subscribers_and_the_requests(client: SandboxClient) -> None:
    client.create("ann@example.com", base={"Name": "News"}, FirstName="Ann <b>")
    client.create("bob@example.com", base={"Name": "Shop"})
    client.create("no address", base={"Name": "Shop"})
    stats_before = client.sandbox.stats()
    page = open_page(client).body.decode()
    for expected_text in ("News", "Shop", "ann@example.com", "bob@example.com", "Ann &lt;b&gt;", "no address", ">400<"):
        assert expected_text in page
    search_page = open_page(client, "/?q=ANN%20%3C").body.decode()
    assert ("ann@example.com</summary>" in search_page, "bob@example.com</summary>" in search_page) == (True, False)
    assert "Headers that an email must not add or replace" in page
    assert "(comma-separated" in page
    assert "No subscriber matches" in open_page(client, "/?q=carl").body.decode()
    assert 'http-equiv="refresh"' in open_page(client, "/?follow").body.decode()
    assert client.sandbox.stats() == stats_before  # opening the page is not counted as a request of the API


@pytest.mark.parametrize("authorization", ["", "Basic", "Basic !", "Basic YW5uOndyb25n", "Bearer x"])
def test_the_page_asks_for_the_token(client: SandboxClient, authorization: str) -> None:
    client.create("ann@example.com")
    reply = open_page(client, Authorization=authorization)
    assert (reply.status, reply.headers["www-authenticate"][:5]) == (401, "Basic")
    assert b"ann@" not in reply.body
    assert open_page(client, Authorization=client.sandbox.token).status == 401


def test_a_switch_can_be_set_only_by_the_page_itself(client: SandboxClient) -> None:
    headers = {"Origin": f"http://127.0.0.1:{client.port}", "Content_Type": "application/x-www-form-urlencoded"}
    for origin in ("http://evil.example", "null", "", f"https://127.0.0.1:{client.port}", "http://127.0.0.1:1"):
        assert open_page(client, "/", "POST", b"rate=5", **headers | {"Origin": origin}).status == 403
    assert client.sandbox.switch()["rate"] == 0
    reply = open_page(
        client, "/", "POST", b"rate=5&order=email&burst=0&verified_domains=a.example%2Cb.example", **headers
    )
    assert (reply.status, reply.headers["location"]) == (303, "/?set=rate%2C+order%2C+verified_domains#switches")
    switches = client.sandbox.switch()
    assert (switches["rate"], switches["order"], switches["verified_domains"]) == (
        5,
        "email",
        ["a.example", "b.example"],
    )
    error_reply = open_page(client, "/", "POST", b"rate=often&order=id", **headers)
    assert error_reply.status == 400
    assert "switch &#39;rate&#39; cannot be &#39;often&#39;" in error_reply.body.decode()
    assert client.sandbox.switch()["order"] == "email"


def test_the_frame_of_an_email_runs_no_script_and_loads_nothing(client: SandboxClient) -> None:
    send_email(client, "<p>one</p>")
    send_email(client, '<script>alert("two")</script>')
    reply = open_page(client)
    page = reply.body.decode()
    assert '<iframe sandbox="" srcdoc="&lt;script&gt;alert(&#34;two&#34;)' in page
    assert "<script" not in page
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "&lt;p&gt;one" in open_page(client, "/?email=1").body.decode()
    assert open_page(client, "/?email=99").status == 200
