"""The engine that sends creates and emails: commit the intent, send the request, record the result.

- The intent of an item is durable before its request leaves, so the ledger shows every request after a crash.
- The first items leave one at a time, and each result is recorded before the next intent (the canary, architecture
  4.9). Once the service has accepted an item, requests leave as fast as the limiter allows. Meanwhile the next intents
  are committed.
- Each item ends once: with a result that follows from its answer, or without an answer because the item was given up
  (GiveUpReason).
- If a request certainly had no effect, its item is sent again before all other items.

A `Delivery` is for creates or for emails, and records the results.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from connector.control import Stop
from connector.limiter import Answer, RequestLimiter
from connector.service.retry import Retrier
from connector.service.wire import NotSent

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
SentItem = TypeVar("SentItem", contravariant=True)
AnswerT = TypeVar("AnswerT", bound=Answer)
Result = TypeVar("Result")

COMMIT_SIZE = 64  # number of intents in a commit (architecture 4.1), so that 64 intents wait for the disk together
# The largest number of intents in a commit. With a fast service, a create then costs 14 µs. In commits of 64 intents, a
# create costs 22 to 32 µs.
_LARGEST_COMMIT_SIZE = 256
_FAST_COMMIT_S = 0.1  # if the items of a commit leave within this time, the next commit may have twice as many items

FetchItems = Callable[[int], Awaitable[list[Item]]]
"""A function that returns the next items, at most as many as its argument. At the end, it returns an empty list."""


class GiveUpReason(Enum):
    """The reason why an item with a durable intent has no answer."""

    STOPPED = "the run was stopped before the request was sent"
    STALE = "the look-up of the subscriber or the lease of the ledger expired before the request was sent"
    INTERRUPTED = "the run was interrupted while this request was in flight"


class Delivery(Protocol[SentItem, AnswerT, Result]):
    """Sends single items, which are creates or emails, and records their results."""

    @property
    def has_accepted_item(self) -> bool:
        """Whether the service has accepted an item."""

    @property
    def max_intents_per_commit(self) -> int:
        """The largest number of intents that may share the next commit."""

    def find_deadline(self, item: SentItem) -> float:
        """Return the time (monotonic) until which the item may be sent."""

    async def commit_intents(self, items: Sequence[SentItem]) -> None:
        """Commit the intents of these items. Return when the intents are durable."""

    def attempt(self, item: SentItem) -> Awaitable[AnswerT | NotSent]:
        """Make one attempt. Raises only CancelledError."""

    async def classify(self, item: SentItem, answer: AnswerT | NotSent) -> Result | None:
        """Return the result that follows from the answer, or None if the request had no effect and the item must be
        sent again."""

    def finish(self, item: SentItem, result: Result) -> None:
        """Report the result, and keep the result in memory until the next commit."""

    def give_up(self, item: SentItem, reason: GiveUpReason) -> None:
        """Report that the item has no answer, and keep this result in memory until the next commit. Only if the reason
        is INTERRUPTED, the service may have executed the request."""

    async def commit_results(self) -> None:
        """Commit the results that `finish` and `give_up` have kept in memory."""


class Sender(Generic[Item, AnswerT, Result]):
    """Sends the items that a function returns. At most `max_in_flight_count + COMMIT_SIZE` items are in flight at a
    time."""

    def __init__(
        self,
        stop: Stop,
        limiter: RequestLimiter,
        retrier: Retrier,
        delivery: Delivery[Item, AnswerT, Result],
        max_in_flight_count: int,
    ) -> None:
        self._stop, self._limiter, self._retrier, self._delivery = stop, limiter, retrier, delivery
        self._max_in_flight_count = max_in_flight_count + COMMIT_SIZE

    async def send(self, fetch_items: FetchItems[Item]) -> None:
        """Send the items that `fetch_items` returns. End when `fetch_items` returns an empty list, or when the run
        must stop.

        At the end, every request that left has a result. If the task is cancelled, give up the requests in flight, and
        raise CancelledError.
        """
        while not self._delivery.has_accepted_item and not self._stop.is_stopping:
            canaries = await fetch_items(1)
            if not canaries:
                return
            await self._commit_intents(canaries)
            await self._send_alone(canaries[0])
            await self._delivery.commit_results()
        if not self._stop.is_stopping:
            await self._send_together(fetch_items)

    async def _commit_intents(self, items: Sequence[Item]) -> None:
        try:
            await self._delivery.commit_intents(items)
            logger.debug("batch: %(number)d requests may leave", {"number": len(items)})
        except asyncio.CancelledError:  # the intents are committed, and none of the items was sent
            self._give_up_unsent_items(items)
            raise

    async def _send_alone(self, item: Item) -> None:
        while True:
            has_slot = False
            try:
                has_slot = await self._limiter.acquire_slot()
            finally:
                if not has_slot:
                    self._delivery.give_up(item, GiveUpReason.STOPPED)
            if not has_slot or await self._attempt_item(item):
                return

    async def _send_together(self, fetch_items: FetchItems[Item]) -> None:
        queue = SendQueue[Item](self._max_in_flight_count)
        # The items of tasks that have not begun. If a task fails, the group cancels these tasks, and they never run.
        unstarted_items: dict[int, Item] = {}
        try:
            async with asyncio.TaskGroup() as group:
                intent_task = group.create_task(self._commit_intents_ahead(fetch_items, queue))
                while await queue.wait_for_item():
                    if not self._has_sendable_item(queue):
                        continue
                    if not await self._limiter.acquire_slot():
                        break
                    if not self._has_sendable_item(queue):
                        self._limiter.cancel_slot()
                        continue
                    item = queue.pop()
                    unstarted_items[id(item)] = item
                    group.create_task(self._send_in_turn(item, queue, unstarted_items))
                intent_task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for _ in unstarted_items:
                self._limiter.cancel_slot()
            self._give_up_unsent_items([*unstarted_items.values(), *queue.pop_all()])

    async def _commit_intents_ahead(self, fetch_items: FetchItems[Item], queue: "SendQueue[Item]") -> None:
        batch_size, monotonic = COMMIT_SIZE, self._stop.clock.monotonic
        while not self._stop.is_stopping:
            max_intents_per_commit = self._delivery.max_intents_per_commit
            batch = await fetch_items(min(batch_size, max_intents_per_commit))
            if not batch:
                break
            intended_at = monotonic()
            await self._commit_intents(batch)
            await queue.put(batch, max(len(batch), min(COMMIT_SIZE, max_intents_per_commit)))
            is_fast = monotonic() - intended_at < _FAST_COMMIT_S
            batch_size = min(2 * batch_size, _LARGEST_COMMIT_SIZE) if is_fast else COMMIT_SIZE
        queue.close()

    async def _send_in_turn(self, item: Item, queue: "SendQueue[Item]", unstarted_items: dict[int, Item]) -> None:
        """Send the item. While the limiter has a free slot, also send the next items of the queue. One task for several
        items costs less than one task for each item."""
        del unstarted_items[id(item)]
        has_item = True
        while has_item:
            if await self._attempt_item(item):
                queue.mark_done()
            else:
                queue.put_back(item)
            if has_item := self._has_sendable_item(queue) and self._limiter.try_to_acquire_slot():
                item = queue.pop()
            self._limiter.wake_waiting_caller()

    async def _attempt_item(self, item: Item) -> bool:
        """Send an item that has a slot. Return False if the request had no effect and the item must be sent again."""
        limiter, delivery = self._limiter, self._delivery
        deadline = delivery.find_deadline(item)
        if self._stop.clock.monotonic() > deadline:
            limiter.cancel_slot()
            delivery.give_up(item, GiveUpReason.STALE)
            return True
        try:
            sleep_before_retry = partial(limiter.sleep_before_retry, deadline)
            try:
                answer = await self._retrier.send(partial(self._send_once, item), limiter.counts, sleep_before_retry)
            finally:
                limiter.release_slot()
            result = await delivery.classify(item, answer)
        except BaseException:  # the service may have executed the request, although no answer was received
            delivery.give_up(item, GiveUpReason.INTERRUPTED)
            raise
        if result is not None:
            delivery.finish(item, result)
        elif self._stop.is_stopping:
            delivery.give_up(item, GiveUpReason.STOPPED)
        else:
            return False
        return True

    async def _send_once(self, item: Item) -> AnswerT | NotSent:
        limiter, sent_at = self._limiter, self._stop.clock.monotonic()
        if limiter.is_pausing(sent_at):
            limiter.record_no_answer(sent_at)
            return NotSent("the service has asked for a pause")
        try:
            answer = await self._delivery.attempt(item)
        except BaseException:
            limiter.record_no_answer(sent_at)
            raise
        limiter.record_answer(answer, sent_at)
        return answer

    def _has_sendable_item(self, queue: "SendQueue[Item]") -> bool:
        """Return whether the queue has an item that may be sent. Give up the stale items at the head of the queue."""
        while (item := queue.first_item) is not None:
            if self._stop.clock.monotonic() <= self._delivery.find_deadline(item):
                return True
            self._delivery.give_up(queue.pop(), GiveUpReason.STALE)
            queue.mark_done()
        return False

    def _give_up_unsent_items(self, items: Sequence[Item]) -> None:
        for item in items:
            self._delivery.give_up(item, GiveUpReason.STOPPED)


class SendQueue(Generic[Item]):
    """Items that have durable intents and are not sent yet. An item whose request had no effect returns to the head.

    At most `max_in_flight_count` popped items are in flight at a time.
    """

    def __init__(self, max_in_flight_count: int) -> None:
        self._max_in_flight_count = max_in_flight_count
        self._min_item_count = 1
        self._items: deque[Item] = deque()
        self._in_flight_count = 0  # items that were popped, and are neither done nor put back
        self._is_closed = False
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, items: Sequence[Item], min_item_count: int) -> None:
        """Add these items. Return when the queue has fewer than `min_item_count` items and needs more items."""
        self._items.extend(items)
        self._min_item_count = min_item_count
        self._has_changed.set()
        while len(self._items) >= min_item_count:
            self._has_room.clear()
            await self._has_room.wait()

    def close(self) -> None:
        """Record that no more items will be added."""
        self._is_closed = True
        self._has_changed.set()

    async def wait_for_item(self) -> bool:
        """Wait until an item may be popped. Return False when the queue is closed and all items are done."""
        while self.first_item is None:
            if self._is_closed and not self._in_flight_count and not self._items:
                return False
            self._has_changed.clear()
            await self._has_changed.wait()
        return True

    @property
    def first_item(self) -> Item | None:
        """The first item, or None if no item may be popped now."""
        return self._items[0] if self._items and self._in_flight_count < self._max_in_flight_count else None

    def pop(self) -> Item:
        """Remove the first item from the queue, and return it."""
        item = self._items.popleft()
        self._in_flight_count += 1
        if len(self._items) < self._min_item_count:
            self._has_room.set()
        return item

    def put_back(self, item: Item) -> None:
        """Put a popped item back at the head of the queue, because its request had no effect."""
        self._items.appendleft(item)
        self.mark_done()

    def mark_done(self) -> None:
        """Record that a popped item is no longer in flight."""
        self._in_flight_count -= 1
        if self._items or not self._in_flight_count:
            self._has_changed.set()

    def pop_all(self) -> list[Item]:
        """Remove all items from the queue, and return them."""
        items = list(self._items)
        self._items.clear()
        return items
