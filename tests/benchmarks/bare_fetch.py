"""The bound of reading: aiohttp gets each page of a thousand, two under way, and the fastest decoder reads it.

`python -m tests.benchmarks.bare_fetch ROWS`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment; it prints
the time in s from the first request to the last page. Nothing is kept, compared or certified.
"""

import asyncio
import os
import sys
import time

import aiohttp
import uvloop

from connector.listing.columns import decode_page

_PAGE = 1000


async def fetch(rows: int) -> float:
    offsets, read = iter(range(0, rows, _PAGE)), 0
    url = os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/subscribers-list/"
    async with aiohttp.ClientSession(headers={"Authorization": os.environ["CONNECTOR_TOKEN"]}) as session:

        async def work() -> None:
            nonlocal read
            for offset in offsets:  # shared by the two
                async with session.get(url, params={"offset": offset, "limit": _PAGE}) as response:
                    page = decode_page(await response.read())
                assert page is not None
                read += len(page.subscribers)

        began = time.perf_counter()
        await asyncio.gather(work(), work())
        spent_s = time.perf_counter() - began
    assert read == rows, f"{read} of {rows} rows were read"
    return spent_s


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(fetch(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
