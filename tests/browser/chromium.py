"""A headless Chromium that opens a page at a width and in a colour scheme. The tests control Chromium through
DevTools."""

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_ADDRESS_PREFIX = "DevTools listening on "
_CONSOLE_EVENTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
_MEASUREMENT_SCRIPT = r"""(async () => {
  const broken_words = [], elements = [...document.querySelectorAll("body *")];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    for (const found of node.data.matchAll(/(?<!\S)--[a-z-]{2,20}(?!\S)|(?<![^\s\/-])[^\s\/-]{2,20}(?![^\s\/-])/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map(part => Math.round(part.top))).size > 1) broken_words.push(found[0]);
    }
  }
  const is_clipped = element => element.innerText && getComputedStyle(element).overflowX !== "visible"
    && element.scrollWidth > element.clientWidth + 1;
  return JSON.stringify({
    width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
    background_colour: getComputedStyle(document.body).backgroundColor, text: document.body.innerText,
    broken_words, clipped_texts: elements.filter(is_clipped).map(element => element.innerText.slice(0, 60)) });
})()"""
"""A script that measures the page. The script finds words of up to 20 characters that a line break divides, and
elements that hide a part of their text. A word may break at / and -, but an option such as `--map` must not break."""


@dataclass(frozen=True)
class PageView:
    """A shown page: its width in pixels, the colour of its background, its text, its faults, and its screenshot."""

    width: int
    background_colour: str
    text: str
    broken_words: list[str]
    clipped_texts: list[str]
    console_messages: list[str]
    screenshot: bytes


@contextmanager
def start_chromium(folder: Path) -> Iterator[str]:
    """Start a browser with its own profile in the folder. Yield the address of its DevTools."""
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
        yield next(line for line in process.stderr if line.startswith(_ADDRESS_PREFIX)).split("/")[2]
    finally:
        process.terminate()
        process.communicate()


@dataclass
class Tab:
    """A tab of the browser."""

    websocket: aiohttp.ClientWebSocketResponse
    message_number: int = 0

    async def show(self, url: str, width: int, colour_scheme: str) -> PageView:
        """Open the page, wait until the page is loaded, and return its measurements."""
        await self._call_method(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 800
        )
        await self._call_method(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colour_scheme}]
        )
        await self._open_page("about:blank")  # otherwise the browser would not load the same page with another fragment
        events = await self._open_page(url)
        evaluation_events, measurement_result = await self._call_method(
            "Runtime.evaluate", expression=_MEASUREMENT_SCRIPT, awaitPromise=True
        )
        events += evaluation_events
        console_messages = [json.dumps(event["params"]) for event in events if event.get("method") in _CONSOLE_EVENTS]
        page_values = json.loads(measurement_result["result"]["value"])
        clip = {"x": 0, "y": 0, "width": width, "height": page_values.pop("height"), "scale": 1}
        _, screenshot_result = await self._call_method("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return PageView(
            **page_values, console_messages=console_messages, screenshot=b64decode(screenshot_result["data"])
        )

    async def _open_page(self, url: str) -> list[dict[str, Any]]:
        """Open the page, wait until the page is loaded, and return the events."""
        events, _ = await self._call_method("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in events):
            events.append(json.loads((await self.websocket.receive(60)).data))
        return events

    async def _call_method(self, method: str, **parameters: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Send a command. Return the events that came before its answer, and the result in the answer."""
        self.message_number += 1
        await self.websocket.send_json({"id": self.message_number, "method": method, "params": parameters})
        events: list[dict[str, Any]] = []
        while (event := json.loads((await self.websocket.receive(60)).data)).get("id") != self.message_number:
            events.append(event)
        assert "error" not in event, event
        return events, event["result"]


@asynccontextmanager
async def open_tab(address: str) -> AsyncIterator[Tab]:
    """Connect to the first tab of the browser, and yield the tab."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json") as answer:
            tabs = await answer.json()
        url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        async with session.ws_connect(url, max_msg_size=0) as websocket:
            tab = Tab(websocket)
            for domain in ("Page", "Runtime", "Log"):
                await tab._call_method(f"{domain}.enable")
            yield tab
