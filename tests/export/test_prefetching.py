"""Pages that are asked for ahead of the next one, and what becomes of those that fail."""

import asyncio
from dataclasses import dataclass, field

from connector.listing.reader import PagePrefetcher
from connector.paging import PageRequest
from connector.service import ListPage, RequestCounts

PAGES = [PageRequest(1, offset, 10) for offset in range(0, 50, 10)]


@dataclass
class Asked:
    """A service that answers who asks with patience, and fails the others; and what it was asked."""

    counts: dict[str, RequestCounts] = field(default_factory=lambda: {"list": RequestCounts()})
    is_quiet: bool = False
    patiently: list[int] = field(default_factory=list)
    once: list[int] = field(default_factory=list)

    async def fetch(self, page: PageRequest) -> ListPage:
        self.patiently.append(page.offset)
        return ListPage([], 0, page.offset, page.limit)

    async def attempt(self, page: PageRequest) -> ListPage | None:
        self.once.append(page.offset)
        return None


def test_only_the_next_page_is_asked_for_with_patience() -> None:
    """Five that try again at once would use up the retries that one needs to outlive a restart."""

    async def run() -> tuple[Asked, list[int | None]]:
        asked = Asked()
        pages = PagePrefetcher(asked, asked.fetch, asked.attempt)  # type: ignore[arg-type] # what it needs of a client
        await pages.follow(PAGES, is_calm=True)
        taken = []
        for number in range(len(PAGES)):
            taken.append((await pages.take_next()).offset)
            await pages.follow(PAGES[number + 1 :], is_calm=True)
        await pages.drop_all()
        return asked, taken

    asked, taken = asyncio.run(run())
    assert taken == asked.patiently == [page.offset for page in PAGES]
    assert asked.once == [page.offset for page in PAGES[1:]]
    assert asked.counts["list"].retried == len(PAGES) - 1
