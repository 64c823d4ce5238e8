"""A headless Chromium, spoken to by its DevTools protocol: opens a page at a width and a colour scheme."""

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
_LISTENS = "DevTools listening on "
_SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
_MEASURE = r"""(async () => {
  const broken_words = [], elements = [...document.querySelectorAll("body *")];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    for (const found of node.data.matchAll(/(?<![^\s\/-])[^\s\/-]{2,20}(?![^\s\/-])/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map(part => Math.round(part.top))).size > 1) broken_words.push(found[0]);
    }
  }
  const documents = [document, ...[...document.querySelectorAll("iframe")].map(
    frame => new DOMParser().parseFromString(frame.srcdoc, "text/html"))];
  const sources = documents.flatMap(page => [...page.images]).map(picture => picture.getAttribute("src"));
  const has_loaded = await Promise.all(sources.map(source => new Promise(resolve => {
    const picture = new Image();
    picture.onload = () => resolve(true);
    picture.onerror = () => resolve(false);
    picture.src = source;
  })));
  const is_clipped = element => element.innerText && getComputedStyle(element).overflowX !== "visible"
    && element.scrollWidth > element.clientWidth + 1;
  return JSON.stringify({
    width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
    ground: getComputedStyle(document.body).backgroundColor, text: document.body.innerText,
    broken_words, pictures: sources.length,
    broken_pictures: sources.filter((_, index) => !has_loaded[index]).map(source => source.slice(0, 60)),
    clipped: elements.filter(is_clipped).map(element => element.innerText.slice(0, 60)) });
})()"""
"""Measures the page: words of up to 20 characters that a line break cuts, pictures that do not load, also of an email
in a frame, and elements that cut their contents. A path or a name may break at / and -."""


@dataclass(frozen=True)
class Seen:
    """A page as it was shown: its width, the colour of its ground, its text, its faults, and its screenshot."""

    width: int
    ground: str
    text: str
    broken_words: list[str]
    pictures: int
    broken_pictures: list[str]
    clipped: list[str]
    console: list[str]
    screenshot: bytes


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
        await self._open("about:blank")  # else another fragment of the same page would not be loaded
        events = await self._open(url)
        measured: dict[str, Any] = {}
        events += await self._call("Runtime.evaluate", measured, expression=_MEASURE, awaitPromise=True)
        console = [json.dumps(event["params"]) for event in events if event.get("method") in _SAID]
        values, picture = json.loads(measured["result"]["value"]), dict[str, Any]()
        clip = {"x": 0, "y": 0, "width": width, "height": values.pop("height"), "scale": 1}
        await self._call("Page.captureScreenshot", picture, captureBeyondViewport=True, clip=clip)
        return Seen(**values, console=console, screenshot=b64decode(picture["data"]))

    async def _open(self, url: str) -> list[dict[str, Any]]:
        """Open the page, wait until it is loaded, and return the events."""
        events = await self._call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in events):
            events.append(json.loads((await self.socket.receive(60)).data))
        return events

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
