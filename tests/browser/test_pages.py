"""The report, the runs of all jobs and the sandbox, in a browser: they fit a phone and a desk, by day and by night."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, Seen, open_tab, start_chromium
from tests.pipelines.conftest import Connector, write_csv
from tests.sandbox.calls import SEND, Calls

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

LONG = "a-very-long-name-without-any-place-to-break-it-that-is-wider-than-a-phone"


def look_at(url: str, folder: Path) -> dict[tuple[int, str], Seen]:
    """The page at both widths and in both colour schemes."""

    async def look(address: str) -> dict[tuple[int, str], Seen]:
        async with open_tab(address) as tab:
            return {
                (width, scheme): await tab.show(url, width, scheme)
                for width in (390, 1280)
                for scheme in ("light", "dark")
            }

    with start_chromium(folder / "profile") as address:
        return asyncio.run(look(address))


def check(seen: dict[tuple[int, str], Seen], *texts: str) -> None:
    assert {key: page.console for key, page in seen.items() if page.console} == {}
    assert {key: page.width for key, page in seen.items() if page.width > key[0]} == {}
    for width in (390, 1280):
        assert seen[width, "light"].ground != seen[width, "dark"].ground
        for text in texts:
            assert text in seen[width, "light"].text


@pytest.mark.parametrize("page", ["run.html", "health.html"])
def test_a_report_fits_every_screen(connector: Connector, tmp_path: Path, page: str) -> None:
    rows = [f"person{number}@example.com,Ann" for number in range(200)]
    path = write_csv(tmp_path / f"{LONG}.csv", "email,first_name", *rows, f"{LONG}@{LONG},Ann", "1,2,3,4")
    connector.sandbox.switch(latency_ms=200, rate=100, burst=20)
    connector.import_file(path, "--report", "run.html", "--max-concurrency", "20")
    assert connector.run("report", "--out", "health.html").code == 0
    check(look_at((tmp_path / page).as_uri(), tmp_path), LONG, "partial", "202")


def test_the_sandboxs_page_fits_every_screen(calls: Calls, tmp_path: Path) -> None:
    calls.create(f"ann@{LONG}.example.com", base={"Name": LONG}, ClientUserId=LONG)
    calls.sandbox.switch(verified_domains=f"example.com,{LONG}")
    email = {
        "To": [{"Email": "ann@example.com"}],
        "From": {"Email": "a@example.com"},
        "Subject": LONG,
        "Html": f"<h1>{LONG}",
    }
    assert calls.ask("POST", SEND, json.dumps({"SendEmail": {"Email": email}}).encode()).status == 200
    seen = look_at(f"http://any:{calls.sandbox.token}@127.0.0.1:{calls.port}/", tmp_path)
    check(seen, LONG, "Outbox", "not at its default")
