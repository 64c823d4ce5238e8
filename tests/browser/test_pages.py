"""Pages in a browser: the report of a run, the page of all runs, and the page of the sandbox. The pages fit narrow and
wide screens in light and dark colours."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, PageView, open_tab, start_chromium
from tests.pipelines.conftest import Connector, write_csv
from tests.sandbox.client import SEND_PATH, SandboxClient

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

LONG_NAME = "a-very-long-name-without-any-place-to-break-it-that-is-wider-than-a-phone"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_chromium(tmp_path_factory.mktemp("chromium") / "profile") as address:
        yield address


def view_page(url: str, address: str, screenshots: Path) -> dict[tuple[int, str], PageView]:
    """Open the page at each width and in both colour schemes, and write a screenshot of each view into the folder."""

    async def collect_views() -> dict[tuple[int, str], PageView]:
        async with open_tab(address) as tab:
            return {
                (width, colour_scheme): await tab.show(url, width, colour_scheme)
                for width in (480, 1280)
                for colour_scheme in ("light", "dark")
            }

    views = asyncio.run(collect_views())
    screenshots.mkdir(parents=True)
    for (width, colour_scheme), view in views.items():
        (screenshots / f"{width}-{colour_scheme}.png").write_bytes(view.screenshot)
    return views


def check_views(views: dict[tuple[int, str], PageView], *texts: str) -> None:
    for (width, colour_scheme), view in views.items():
        faults = view.console_messages, view.broken_words, view.clipped_texts
        assert ((width, colour_scheme), view.width <= width, *faults) == ((width, colour_scheme), True, [], [], [])
        for text in texts:
            assert text in view.text


def check_backgrounds(views: dict[tuple[int, str], PageView]) -> None:
    """Check that the two colour schemes of the page have different backgrounds."""
    assert all(views[width, "light"].background_colour != views[width, "dark"].background_colour for width, _ in views)


def test_reports_fit_every_screen(connector: Connector, tmp_path: Path, chromium: str) -> None:
    rows = [f"person{index}@example.com,Ann" for index in range(200)]
    path = write_csv(
        tmp_path / f"{LONG_NAME}.csv", "email,first_name", *rows, f"{LONG_NAME}@{LONG_NAME},Ann", "1,2,3,4"
    )
    connector.sandbox.switch(latency_ms=200, rate=100, burst=20)
    result = connector.import_file(path, "--report", "run.html", "--max-concurrency", "20")
    connector.environ["CONNECTOR_TOKEN"] = "another"
    connector.import_file(path)
    assert connector.run("status", "--html", "health.html").exit_code == 0
    health_url = (tmp_path / "health.html").as_uri()
    for name, url in (("run", (tmp_path / "run.html").as_uri()), ("linked", f"{health_url}#{result.report['run_id']}")):
        views = view_page(url, chromium, tmp_path / "screenshots" / name)
        check_views(views, LONG_NAME, "partial", "202")
        check_backgrounds(views)


def test_the_page_of_the_sandbox_fits_every_screen(client: SandboxClient, tmp_path: Path, chromium: str) -> None:
    client.create(f"ann@{LONG_NAME}.example.com", base={"Name": LONG_NAME}, ClientUserId=LONG_NAME)
    client.sandbox.switch(verified_domains=f"example.com,{LONG_NAME}")
    email = {
        "To": [{"Email": "ann@example.com"}],
        "From": {"Email": "a@example.com"},
        "Subject": LONG_NAME,
        "Html": f"<h1>{LONG_NAME}",
    }
    assert client.request("POST", SEND_PATH, json.dumps({"SendEmail": {"Email": email}}).encode()).status == 200
    views = view_page(f"http://any:{client.sandbox.token}@127.0.0.1:{client.port}/", chromium, tmp_path / "shots")
    check_views(views, LONG_NAME, "Outbox", "differs from its default")
    check_backgrounds(views)
