"""The report, the runs of all jobs and the sandbox, in a browser: they fit a phone and a desk, by day and by night."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, Seen, open_tab, start_chromium
from tests.pipelines.conftest import Connector, write_csv
from tests.sandbox.calls import SEND, Calls

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

LONG = "a-very-long-name-without-any-place-to-break-it-that-is-wider-than-a-phone"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_chromium(tmp_path_factory.mktemp("chromium") / "profile") as address:
        yield address


def look_at(url: str, address: str) -> dict[tuple[int, str], Seen]:
    """The page at both widths and in both colour schemes."""

    async def look() -> dict[tuple[int, str], Seen]:
        async with open_tab(address) as tab:
            return {
                (width, scheme): await tab.show(url, width, scheme)
                for width in (390, 1280)
                for scheme in ("light", "dark")
            }

    return asyncio.run(look())


def check(seen: dict[tuple[int, str], Seen], *texts: str) -> None:
    assert {key: page.console for key, page in seen.items() if page.console} == {}
    assert {key: page.width for key, page in seen.items() if page.width > key[0]} == {}
    for width in (390, 1280):
        assert seen[width, "light"].ground != seen[width, "dark"].ground
        for text in texts:
            assert text in seen[width, "light"].text


def test_reports_fit_every_screen(connector: Connector, tmp_path: Path, chromium: str) -> None:
    rows = [f"person{number}@example.com,Ann" for number in range(200)]
    path = write_csv(tmp_path / f"{LONG}.csv", "email,first_name", *rows, f"{LONG}@{LONG},Ann", "1,2,3,4")
    connector.sandbox.switch(latency_ms=200, rate=100, burst=20)
    connector.import_file(path, "--report", "run.html", "--max-concurrency", "20")
    assert connector.run("status", "--html", "health.html").code == 0
    for page in ("run.html", "health.html"):
        check(look_at((tmp_path / page).as_uri(), chromium), LONG, "partial", "202")


def test_the_sandboxs_page_fits_every_screen(calls: Calls, chromium: str) -> None:
    calls.create(f"ann@{LONG}.example.com", base={"Name": LONG}, ClientUserId=LONG)
    calls.sandbox.switch(verified_domains=f"example.com,{LONG}")
    email = {
        "To": [{"Email": "ann@example.com"}],
        "From": {"Email": "a@example.com"},
        "Subject": LONG,
        "Html": f"<h1>{LONG}",
    }
    assert calls.ask("POST", SEND, json.dumps({"SendEmail": {"Email": email}}).encode()).status == 200
    seen = look_at(f"http://any:{calls.sandbox.token}@127.0.0.1:{calls.port}/", chromium)
    check(seen, LONG, "Outbox", "not at its default")
