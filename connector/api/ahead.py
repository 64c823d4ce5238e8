"""Pages that were asked for and not taken yet: which to keep, drop and begin. What they hold is not its business."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic

from connector.api.client import Client
from connector.pages import Page
from connector.protocol import Listed, Rows

MOST_AHEAD = 4
"""Pages under way beyond the next one: while one is decoded here, others are made there, and no service is stormed."""

LIST_CONNECTIONS = 8
"""Enough for the pages under way and those that were dropped a moment ago."""

_PATIENCE = 8
"""After a page that had to be asked for again, so many are read one at a time."""


class PagesAhead(Generic[Rows]):
    """The pages under way, in the order in which they are to be taken; leave none behind: `drop_all`.

    `fetch` has a page, trying again; `attempt` tries once, and None says that it failed. Only the next page is fetched
    with patience: five at once would use up the retries that one of them needs to outlive a restart.
    """

    def __init__(
        self,
        client: Client,
        fetch: Callable[[Page], Coroutine[Any, Any, Listed[Rows]]],
        attempt: Callable[[Page], Coroutine[Any, Any, Listed[Rows] | None]],
    ) -> None:
        self._client = client
        self._fetch = fetch
        self._attempt = attempt
        self._under_way: deque[tuple[Page, asyncio.Task[Listed[Rows] | None]]] = deque()
        self._retried = client.counts["list"].retried
        self._patience = 0

    async def follow(self, wanted: Sequence[Page], *, is_calm: bool) -> None:
        """Go on to `wanted`, the next page first: what was asked for and deviates from it is dropped, all of it unless
        `is_calm`; the rest is begun, but the next one alone while the service wants quiet or gave a page badly."""
        kept = 0
        while is_calm and kept < min(len(self._under_way), len(wanted)) and self._under_way[kept][0] == wanted[kept]:
            kept += 1
        await self._drop_from(kept)
        for page in wanted[kept:] if len(wanted) > 1 and self._is_well() else wanted[kept:1]:
            begin = self._attempt if self._under_way else self._fetch
            self._under_way.append((page, asyncio.create_task(begin(page))))

    async def take_next(self) -> Listed[Rows]:
        """The answer to the next page; raises what its request raised."""
        page, answer = self._under_way[0]
        listed = await answer
        if listed is None:
            self._client.counts["list"].retried += 1
            listed = await self._fetch(page)
        self._under_way.popleft()
        return listed

    async def drop_all(self) -> None:
        """End every request that nobody waits for any more; their own failures are no news."""
        await self._drop_from(0)

    async def _drop_from(self, kept: int) -> None:
        dropped = [self._under_way.pop()[1] for _ in range(len(self._under_way) - kept)]
        for answer in dropped:
            answer.cancel()
        await asyncio.gather(*dropped, return_exceptions=True)

    def _is_well(self) -> bool:
        retried = self._client.counts["list"].retried
        self._patience = _PATIENCE if retried != self._retried else max(0, self._patience - 1)
        self._retried = retried
        return not self._patience and not self._client.is_quiet
