"""A headless Chromium, spoken to by its DevTools protocol: opens a page at a width and a colour scheme."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_LISTENS = "DevTools listening on "
_SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
_MEASURE = """JSON.stringify({
  width: document.documentElement.scrollWidth, ground: getComputedStyle(document.body).backgroundColor,
  text: document.body.innerText })"""


@dataclass(frozen=True)
class Seen:
    """A page as it was shown: how wide it is, its ground's colour, its text, and what the console said."""

    width: int
    ground: str
    text: str
    console: list[str]


@contextmanager
def start_chromium(folder: Path) -> Iterator[str]:
    """A browser with a profile of its own; gives the address of its DevTools."""
    options = [
        "--headless",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "--no-first-run",
    ]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    process = subprocess.Popen([str(CHROMIUM), *options, "about:blank"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield next(line for line in process.stderr if line.startswith(_LISTENS)).split("/")[2]
    finally:
        process.terminate()
        process.communicate()


@dataclass
class Tab:
    """The browser's tab."""

    socket: aiohttp.ClientWebSocketResponse
    number: int = 0

    async def show(self, url: str, width: int, scheme: str) -> Seen:
        """Open the page, wait until it is loaded, and look at it."""
        await self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 800
        )
        await self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        events = await self._call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in events):
            events.append(json.loads((await self.socket.receive(60)).data))
        measured: dict[str, Any] = {}
        events += await self._call("Runtime.evaluate", measured, expression=_MEASURE)
        console = [json.dumps(event["params"]) for event in events if event.get("method") in _SAID]
        return Seen(**json.loads(measured["result"]["value"]), console=console)

    async def _call(
        self, method: str, result: dict[str, Any] | None = None, **parameters: object
    ) -> list[dict[str, Any]]:
        """Send a command; returns the events that came before its answer."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": parameters})
        events: list[dict[str, Any]] = []
        while (event := json.loads((await self.socket.receive(60)).data)).get("id") != self.number:
            events.append(event)
        assert "error" not in event, event
        if result is not None:
            result.update(event["result"])
        return events


@asynccontextmanager
async def open_tab(address: str) -> AsyncIterator[Tab]:
    """The first tab of the browser."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json") as answer:
            tabs = await answer.json()
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        async with session.ws_connect(url, max_msg_size=0) as socket:
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Log"):
                await tab._call(f"{domain}.enable")
            yield tab
