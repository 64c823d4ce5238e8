"""The report, the runs of all jobs and the sandbox, in a browser: they fit a phone and a desk, by day and by night."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import CHROMIUM, Seen, open_tab, start_chromium
from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.emails.test_mail_command import write_job
from tests.sandbox.calls import SEND, Calls

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

LOGO = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
LONG = "a-very-long-name-without-any-place-to-break-it-that-is-wider-than-a-phone"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_chromium(tmp_path_factory.mktemp("chromium") / "profile") as address:
        yield address


def look_at(url: str, address: str, screenshots: Path) -> dict[tuple[int, str], Seen]:
    """Look at the page at each width and in both colour schemes, and write a screenshot of each into the folder."""

    async def look() -> dict[tuple[int, str], Seen]:
        async with open_tab(address) as tab:
            return {
                (width, scheme): await tab.show(url, width, scheme)
                for width in (480, 1280)
                for scheme in ("light", "dark")
            }

    seen = asyncio.run(look())
    screenshots.mkdir(parents=True)
    for (width, scheme), page in seen.items():
        (screenshots / f"{width}-{scheme}.png").write_bytes(page.screenshot)
    return seen


def check(seen: dict[tuple[int, str], Seen], *texts: str, pictures: int = 0) -> None:
    for (width, scheme), page in seen.items():
        faults = page.console, page.broken_words, page.broken_pictures, page.clipped
        assert ((width, scheme), page.width <= width, page.pictures, *faults) == (
            (width, scheme), True, pictures, [], [], [], [],
        )  # fmt: skip
        for text in texts:
            assert text in page.text


def check_schemes(seen: dict[tuple[int, str], Seen]) -> None:
    """Check that the page is dark by night."""
    assert all(seen[width, "light"].ground != seen[width, "dark"].ground for width, _ in seen)


def test_reports_fit_every_screen(connector: Connector, tmp_path: Path, chromium: str) -> None:
    rows = [f"person{number}@example.com,Ann" for number in range(200)]
    path = write_csv(tmp_path / f"{LONG}.csv", "email,first_name", *rows, f"{LONG}@{LONG},Ann", "1,2,3,4")
    connector.sandbox.switch(latency_ms=200, rate=100, burst=20)
    ended = connector.import_file(path, "--report", "run.html", "--max-concurrency", "20")
    connector.environ["CONNECTOR_TOKEN"] = "another"
    connector.import_file(path)
    assert connector.run("status", "--html", "health.html").code == 0
    health = (tmp_path / "health.html").as_uri()
    for name, page in (("run", (tmp_path / "run.html").as_uri()), ("linked", f"{health}#{ended.report['run_id']}")):
        seen = look_at(page, chromium, tmp_path / "screenshots" / name)
        check(seen, LONG, "partial", "202")
        check_schemes(seen)


def test_the_preview_of_an_email_fits_every_screen(mailer: Connector, tmp_path: Path, chromium: str) -> None:
    (tmp_path / "logo.png").write_bytes(b64decode(LOGO))
    html = (
        f"<h1>Hello {{{{ first }}}}</h1><img src='cid:logo' alt='Shop' width=120 height=40><p>{LONG}</p>"
        "<IMG alt='Shoes' SRC = 'https://shop.example.com/a \"b\".png' srcset='//shop.example.com/a.png 2x'>"
    )
    (tmp_path / "welcome.html").write_text(html, encoding="utf-8")
    write_job(tmp_path, {"inline": [{"path": "logo.png", "id": "logo"}], "reply_to": f"Help <{LONG}@example.com>"})
    assert mailer.run("mail", "mail.yaml", "--preview", "1").code == 0
    preview = (tmp_path / "preview" / "0001.html").as_uri()
    check(look_at(preview, chromium, tmp_path / "screenshots"), "Subject", "Ann <ann@example.net>", LONG, pictures=2)


def test_the_sandboxs_page_fits_every_screen(calls: Calls, tmp_path: Path, chromium: str) -> None:
    calls.create(f"ann@{LONG}.example.com", base={"Name": LONG}, ClientUserId=LONG)
    calls.sandbox.switch(verified_domains=f"example.com,{LONG}")
    email = {
        "To": [{"Email": "ann@example.com"}],
        "From": {"Email": "a@example.com"},
        "Subject": LONG,
        "Html": f"<h1>{LONG}",
    }
    assert calls.request("POST", SEND, json.dumps({"SendEmail": {"Email": email}}).encode()).status == 200
    seen = look_at(f"http://any:{calls.sandbox.token}@127.0.0.1:{calls.port}/", chromium, tmp_path / "shots")
    check(seen, LONG, "Outbox", "not at its default")
    check_schemes(seen)
