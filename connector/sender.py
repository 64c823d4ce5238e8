"""The one engine that sends creates and emails: commit the intent, send the request, record the result.

How it works. The intent of an item is durable before its request leaves, so the ledger shows every request after a
crash. The first items leave one at a time, and each result is recorded before the next intent (the canary, architecture
4.9). Once the service has accepted an item, requests leave as fast as the limiter allows, while the next intents are
committed. Each item is finished once: by the verdict on its answer, or given up as stopped, stale or cut off. An item
that is proved to have had no effect is sent again first. A `Delivery` knows creates or emails, and records the results.
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
from connector.service.wire import NotSent, Refused

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Sent = TypeVar("Sent", contravariant=True)
AnswerT = TypeVar("AnswerT", bound=Answer)
Verdict = TypeVar("Verdict")

INTENDED_AT_ONCE = 64  # intents that share a commit (architecture 4.1), so that they wait for the disk only once
_MOST_AT_ONCE = (
    256  # intents in a commit if the service is fast: 14 µs for each create, against 22 to 32 in groups of 64
)
_SOON_S = 0.1  # seconds: if a group has left within this time, the next group may be twice as large

FetchItems = Callable[[int], Awaitable[list[Item]]]
"""Returns the next items, at most as many as the argument says, or an empty list at the end."""


class Unanswered(Enum):
    """The reason why an item with a durable intent has no answer."""

    STOPPED = "the run was stopped before it was sent"
    STALE = "the existence check expired before it was sent"
    CUT_OFF = "the run was cut off while this request was under way"


class Delivery(Protocol[Sent, AnswerT, Verdict]):
    """Creates or emails: sends single items, and records their results."""

    @property
    def is_proved(self) -> bool:
        """Whether the service has accepted an item."""

    @property
    def most_at_once(self) -> int:
        """The number of intents that may share a commit now."""

    def find_deadline(self, item: Sent) -> float:
        """Return the time (monotonic) until which the item may be sent."""

    async def intend(self, items: Sequence[Sent]) -> None:
        """Commit the intents of these items. Return once they are durable."""

    def attempt(self, item: Sent) -> Awaitable[AnswerT | NotSent]:
        """Make one attempt. Raises only the cancellation of its task."""

    async def classify(self, item: Sent, answer: AnswerT | NotSent) -> Verdict | None:
        """Return the verdict on the answer, or None if the request had no effect and the item must be sent again."""

    def finish(self, item: Sent, verdict: Verdict) -> None:
        """Keep the verdict for the next commit, and report it."""

    def give_up(self, item: Sent, why: Unanswered) -> None:
        """Keep for the next commit that the item has no answer. The service may have executed a CUT_OFF item, and no
        other."""

    async def record(self) -> None:
        """Commit the verdicts that `finish` and `give_up` have kept."""


class Sender(Generic[Item, AnswerT, Verdict]):
    """Sends the items that a function returns. At most `most_unfinished` items, and one commit of intents more, are
    in flight at a time."""

    def __init__(
        self,
        control: Stop,
        limiter: RequestLimiter,
        retrier: Retrier,
        delivery: Delivery[Item, AnswerT, Verdict],
        most_unfinished: int,
    ) -> None:
        self._control, self._limiter, self._retrier, self._delivery = control, limiter, retrier, delivery
        self._most_unfinished = most_unfinished + INTENDED_AT_ONCE

    async def send(self, fetch: FetchItems[Item]) -> None:
        """Send the items that `fetch` returns, until it returns none or the run must stop.

        Every request that left has a verdict by then. If the task is cancelled, give up the requests under way, and
        raise.
        """
        while not self._delivery.is_proved and not self._control.is_stopping:
            canary = await fetch(1)
            if not canary:
                return
            await self._intend(canary)
            await self._send_alone(canary[0])
            await self._delivery.record()
        if not self._control.is_stopping:
            await self._send_together(fetch)

    async def _intend(self, items: Sequence[Item]) -> None:
        try:
            await self._delivery.intend(items)
            logger.debug("batch: %(number)d requests may leave", {"number": len(items)})
        except asyncio.CancelledError:  # the intents are committed, and none of the items was sent
            self._give_up(items, Unanswered.STOPPED)
            raise

    async def _send_alone(self, item: Item) -> None:
        is_done = False
        while not is_done:
            has_slot = False
            try:
                has_slot = await self._limiter.acquire()
            finally:
                if not has_slot:
                    self._delivery.give_up(item, Unanswered.STOPPED)
            is_done = await self._attempt(item) if has_slot else True

    async def _send_together(self, fetch: FetchItems[Item]) -> None:
        queue = SendQueue[Item](self._most_unfinished)
        unbegun: dict[int, Item] = {}  # a task group that fails cancels tasks that have not begun: they never run
        try:
            async with asyncio.TaskGroup() as group:
                intending = group.create_task(self._intend_ahead(fetch, queue))
                while await queue.wait_for_item():
                    if not self._has_fresh(queue):
                        continue
                    if not await self._limiter.acquire():
                        break
                    if not self._has_fresh(queue):
                        self._limiter.cancel()
                        continue
                    item = queue.pop()
                    unbegun[id(item)] = item
                    group.create_task(self._send_in_turn(item, queue, unbegun))
                intending.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for _ in unbegun:
                self._limiter.cancel()
            self._give_up([*unbegun.values(), *queue.pop_all()], Unanswered.STOPPED)

    async def _intend_ahead(self, fetch: FetchItems[Item], queue: "SendQueue[Item]") -> None:
        batch_size, monotonic = INTENDED_AT_ONCE, self._control.clock.monotonic
        while not self._control.is_stopping:
            most = self._delivery.most_at_once
            batch = await fetch(min(batch_size, most))
            if not batch:
                break
            intended_at = monotonic()
            await self._intend(batch)
            await queue.put(batch, max(len(batch), min(INTENDED_AT_ONCE, most)))
            is_fast = monotonic() - intended_at < _SOON_S
            batch_size = min(2 * batch_size, _MOST_AT_ONCE) if is_fast else INTENDED_AT_ONCE
        queue.close()

    async def _send_in_turn(self, item: Item, queue: "SendQueue[Item]", unbegun: dict[int, Item]) -> None:
        """Send the item, and then further items while the limiter has a free slot: one task sends many items."""
        del unbegun[id(item)]
        has_next = True
        while has_next:
            if await self._attempt(item):
                queue.mark_done()
            else:
                queue.put_back(item)
            if has_next := self._has_fresh(queue) and self._limiter.acquire_now():
                item = queue.pop()
            self._limiter.wake_waiting()

    async def _attempt(self, item: Item) -> bool:
        """Send an item that has a slot. Return False if it had no effect and must be sent again."""
        limiter, delivery = self._limiter, self._delivery
        deadline = delivery.find_deadline(item)
        if self._control.clock.monotonic() > deadline:
            limiter.cancel()
            delivery.give_up(item, Unanswered.STALE)
            return True
        try:
            rest = partial(limiter.rest_before_retry, deadline)
            try:
                answer = await self._retrier.send(partial(self._send_once, item), limiter.counts, rest)
            finally:
                limiter.release()
            if isinstance(answer, Refused):
                limiter.wake_waiting()  # the verdict on a refusal may take time, and may wait for other requests
            verdict = await delivery.classify(item, answer)
        except BaseException:  # the service may have executed a request that is cut off
            delivery.give_up(item, Unanswered.CUT_OFF)
            raise
        if verdict is not None:
            delivery.finish(item, verdict)
        elif self._control.is_stopping:
            delivery.give_up(item, Unanswered.STOPPED)
        else:
            return False
        return True

    async def _send_once(self, item: Item) -> AnswerT | NotSent:
        limiter, sent_at = self._limiter, self._control.clock.monotonic()
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

    def _has_fresh(self, queue: "SendQueue[Item]") -> bool:
        """Return whether the queue has an item that may be sent. Stale items before it are given up."""
        while (item := queue.first) is not None:
            if self._control.clock.monotonic() <= self._delivery.find_deadline(item):
                return True
            self._delivery.give_up(queue.pop(), Unanswered.STALE)
            queue.mark_done()
        return False

    def _give_up(self, items: Sequence[Item], why: Unanswered) -> None:
        for item in items:
            self._delivery.give_up(item, why)


class SendQueue(Generic[Item]):
    """Items whose intents are durable and that are not sent yet. Items that had no effect come back, and go first.

    At most `most_in_flight` items are popped and not done at a time.
    """

    def __init__(self, most_in_flight: int) -> None:
        self._most_in_flight = most_in_flight
        self._refill_below = 1
        self._items: deque[Item] = deque()
        self._in_flight = 0  # items that were popped, and are neither done nor put back
        self._is_closed = False
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, items: Sequence[Item], refill_below: int) -> None:
        """Add these items. Return once the queue has fewer than `refill_below` items, and more should be added."""
        self._items.extend(items)
        self._refill_below = refill_below
        self._has_changed.set()
        while len(self._items) >= refill_below:
            self._has_room.clear()
            await self._has_room.wait()

    def close(self) -> None:
        """Record that no more items will be added."""
        self._is_closed = True
        self._has_changed.set()

    async def wait_for_item(self) -> bool:
        """Wait until an item may be popped. Return False once the queue is closed and all items are done."""
        while self.first is None:
            if self._is_closed and not self._in_flight and not self._items:
                return False
            self._has_changed.clear()
            await self._has_changed.wait()
        return True

    @property
    def first(self) -> Item | None:
        """The first item, or None if no item may be popped now."""
        return self._items[0] if self._items and self._in_flight < self._most_in_flight else None

    def pop(self) -> Item:
        """Remove the first item from the queue, and return it."""
        item = self._items.popleft()
        self._in_flight += 1
        if len(self._items) < self._refill_below:
            self._has_room.set()
        return item

    def put_back(self, item: Item) -> None:
        """Make an item that had no effect the first item again."""
        self._items.appendleft(item)
        self.mark_done()

    def mark_done(self) -> None:
        """Record that an item which was popped is no longer in flight."""
        self._in_flight -= 1
        if self._items or not self._in_flight:
            self._has_changed.set()

    def pop_all(self) -> list[Item]:
        """Remove all items from the queue, and return them."""
        items = list(self._items)
        self._items.clear()
        return items
