"""A bare loop with which the import is compared: aiohttp posts request bodies from a file. The loop stores nothing,
checks only the status, and never retries.

`python -m tests.benchmarks.bare_loop BODIES`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment, prints
one line of JSON: `wall_s` and `cpu_s` (user and system time) of the posting, without the start of the process.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import uvloop
from yarl import URL

MAX_IN_FLIGHT = 64

_CREATE_PATH = "/api/subscribers/create-subscriber/"


async def post_all(bodies: list[bytes], base_url: str, token: str) -> None:
    """Post each body once, over a session with the settings of connector/service/transport.py."""
    url = URL(base_url + _CREATE_PATH, encoded=True)
    headers = {"Authorization": token, "Accept": "application/json", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=2 * MAX_IN_FLIGHT, keepalive_timeout=3.0)
    timeout = aiohttp.ClientTimeout(total=30.0, connect=15.0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    ) as session:
        unsent_bodies = iter(bodies)
        await asyncio.gather(*(_post_bodies(unsent_bodies, session, url, headers) for _ in range(MAX_IN_FLIGHT)))


async def _post_bodies(
    unsent_bodies: Iterator[bytes], session: aiohttp.ClientSession, url: URL, headers: dict[str, str]
) -> None:
    for body in unsent_bodies:
        async with session.request("POST", url, data=body, headers=headers, allow_redirects=False) as response:
            await response.read()
            if response.status != 200:
                raise RuntimeError(f"the service answered a create with status {response.status}")


def main() -> None:
    bodies = Path(sys.argv[1]).read_bytes().splitlines()
    base_url, token = os.environ["CONNECTOR_BASE_URL"], os.environ["CONNECTOR_TOKEN"]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    uvloop.run(post_all(bodies, base_url, token))
    print(json.dumps({"wall_s": time.perf_counter() - wall_s, "cpu_s": time.process_time() - cpu_s}))


if __name__ == "__main__":
    main()
