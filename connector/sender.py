"""The one engine that sends creates and emails: intend, send, record.

Theory of operation. An item's intent is durable before its request leaves, so that a crash hides none. Until the
service has accepted one, items leave one at a time, each recorded before the next is intended (the canary, architecture
4.9); from then on each leaves as the limiter lets it, while the next intents are being committed. Each item that was
intended ends once: by the verdict on its answer or, if it has none, given up as stopped, stale or cut off. What is
proved to have had no effect is the next to be sent. What a create or an email is, and how its end is recorded, is a
`Delivery`'s business.
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

INTENDED_AT_ONCE = 64  # intents that share a commit (architecture 4.1): the disk is waited for once for all of them
_MOST_AT_ONCE = 256  # of a fast service: 14 µs a create in commits, where groups of 64 took 22 to 32
_SOON_S = 0.1  # a group that has left within it may be followed by one of twice as many

Take = Callable[[int], Awaitable[list[Item]]]
"""Gives the next items, at most so many; none at the end."""


class Unanswered(Enum):
    """Why an item that was intended has no answer."""

    STOPPED = "the run was stopped before it was sent"
    STALE = "the existence check expired before it was sent"
    CUT_OFF = "the run was cut off while this was under way"


class Delivery(Protocol[Sent, AnswerT, Verdict]):
    """What is sent, and how it is recorded."""

    @property
    def is_proved(self) -> bool:
        """Whether the service has accepted one."""

    @property
    def most_at_once(self) -> int:
        """How many intents may share a commit now."""

    def find_deadline(self, item: Sent) -> float:
        """Return until when it may be sent (monotonic)."""

    async def intend(self, items: Sequence[Sent]) -> None:
        """Return when the intents of these items are durable."""

    def attempt(self, item: Sent) -> Awaitable[AnswerT | NotSent]:
        """Make one attempt; raises nothing but the cancellation that it is given."""

    async def judge(self, item: Sent, answer: AnswerT | NotSent) -> Verdict | None:
        """Return what the answer means; None: it had no effect, and the item is to be sent again."""

    def end(self, item: Sent, verdict: Verdict) -> None:
        """Note it for the next commit, and report it."""

    def give_up(self, item: Sent, why: Unanswered) -> None:
        """Note an item without an answer; CUT_OFF may have been executed, the others have not."""

    async def record(self) -> None:
        """Make durable what was noted."""


class Sender(Generic[Item, AnswerT, Verdict]):
    """Sends what it is given to take; `at_hand` (items) bounds those that are taken and not done with."""

    def __init__(
        self,
        control: Stop,
        limiter: RequestLimiter,
        retrier: Retrier,
        delivery: Delivery[Item, AnswerT, Verdict],
        at_hand: int,
    ) -> None:
        self._control, self._limiter, self._retrier, self._delivery = control, limiter, retrier, delivery
        self._at_hand = at_hand + INTENDED_AT_ONCE

    async def send(self, take: Take[Item]) -> None:
        """Send all that `take` gives, until it gives nothing or the run is to stop; what left is answered by then.

        Cancelled, it gives up what is under way, and raises.
        """
        while not self._delivery.is_proved and not self._control.is_stopping:
            canary = await take(1)
            if not canary:
                return
            await self._intend(canary)
            await self._send_alone(canary[0])
            await self._delivery.record()
        if not self._control.is_stopping:
            await self._send_together(take)

    async def _intend(self, items: Sequence[Item]) -> None:
        try:
            await self._delivery.intend(items)
            logger.debug("batch: %(number)d requests may leave", {"number": len(items)})
        except asyncio.CancelledError:  # the commit is made, and nothing of it was sent
            self._give_up(items, Unanswered.STOPPED)
            raise

    async def _send_alone(self, item: Item) -> None:
        is_done = False
        while not is_done:
            is_let_in = False
            try:
                is_let_in = await self._limiter.acquire()
            finally:
                if not is_let_in:
                    self._delivery.give_up(item, Unanswered.STOPPED)
            is_done = await self._attempt(item) if is_let_in else True

    async def _send_together(self, take: Take[Item]) -> None:
        queue = SendQueue[Item](self._at_hand)
        unbegun: dict[int, Item] = {}  # a group that fails cancels tasks that have not begun: they never do
        try:
            async with asyncio.TaskGroup() as group:
                intending = group.create_task(self._intend_ahead(take, queue))
                while await queue.wait():
                    if not self._has_fresh(queue):
                        continue
                    if not await self._limiter.acquire():
                        break
                    if not self._has_fresh(queue):
                        self._limiter.cancel()
                        continue
                    item = queue.take()
                    unbegun[id(item)] = item
                    group.create_task(self._send_in_turn(item, queue, unbegun))
                intending.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            for _ in unbegun:
                self._limiter.cancel()
            self._give_up([*unbegun.values(), *queue.take_rest()], Unanswered.STOPPED)

    async def _intend_ahead(self, take: Take[Item], queue: "SendQueue[Item]") -> None:
        number, monotonic = INTENDED_AT_ONCE, self._control.clock.monotonic
        while not self._control.is_stopping:
            most = self._delivery.most_at_once
            batch = await take(min(number, most))
            if not batch:
                break
            intended_at = monotonic()
            await self._intend(batch)
            await queue.put(batch, max(len(batch), min(INTENDED_AT_ONCE, most)))
            is_fast = monotonic() - intended_at < _SOON_S
            number = min(2 * number, _MOST_AT_ONCE) if is_fast else INTENDED_AT_ONCE
        queue.end()

    async def _send_in_turn(self, item: Item, queue: "SendQueue[Item]", unbegun: dict[int, Item]) -> None:
        """Send it and then, while one more may leave at once, the next: that spares each a task of its own."""
        del unbegun[id(item)]
        is_next = True
        while is_next:
            if await self._attempt(item):
                queue.note_done()
            else:
                queue.take_back(item)
            if is_next := self._has_fresh(queue) and self._limiter.acquire_now():
                item = queue.take()
            self._limiter.note_room()

    async def _attempt(self, item: Item) -> bool:
        """Send an item that has a place; False if it had no effect and is to be sent again."""
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
                limiter.note_room()  # to judge it may take time, and may wait for others to be sent
            verdict = await delivery.judge(item, answer)
        except BaseException:  # what is cut off while it is under way may have been executed
            delivery.give_up(item, Unanswered.CUT_OFF)
            raise
        if verdict is not None:
            delivery.end(item, verdict)
        elif self._control.is_stopping:
            delivery.give_up(item, Unanswered.STOPPED)
        else:
            return False
        return True

    async def _send_once(self, item: Item) -> AnswerT | NotSent:
        limiter, sent_at = self._limiter, self._control.clock.monotonic()
        if limiter.is_pausing(sent_at):
            limiter.note_no_answer(sent_at)
            return NotSent("the service has asked for a pause")
        try:
            answer = await self._delivery.attempt(item)
        except BaseException:
            limiter.note_no_answer(sent_at)
            raise
        limiter.note(answer, sent_at)
        return answer

    def _has_fresh(self, queue: "SendQueue[Item]") -> bool:
        """Return whether the first of those at hand may be sent; stale ones before it are given up."""
        while (item := queue.first) is not None:
            if self._control.clock.monotonic() <= self._delivery.find_deadline(item):
                return True
            self._delivery.give_up(queue.take(), Unanswered.STALE)
            queue.note_done()
        return False

    def _give_up(self, items: Sequence[Item], why: Unanswered) -> None:
        for item in items:
            self._delivery.give_up(item, why)


class SendQueue(Generic[Item]):
    """Items whose intents are durable and that are not sent yet; those that had no effect come back, and go first.

    At most `most` are taken and not done with at one time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._enough = 1
        self._items: deque[Item] = deque()
        self._out = 0  # taken, and neither done nor back
        self._is_ended = False
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, items: Sequence[Item], enough: int) -> None:
        """Add these; return when fewer than `enough` are left, so that more are wanted."""
        self._items.extend(items)
        self._enough = enough
        self._has_changed.set()
        while len(self._items) >= enough:
            self._has_room.clear()
            await self._has_room.wait()

    def end(self) -> None:
        """There are no more to come."""
        self._is_ended = True
        self._has_changed.set()

    async def wait(self) -> bool:
        """Wait until one may be taken; False when all are done."""
        while self.first is None:
            if self._is_ended and not self._out and not self._items:
                return False
            self._has_changed.clear()
            await self._has_changed.wait()
        return True

    @property
    def first(self) -> Item | None:
        """The next one; None when none may be taken now."""
        return self._items[0] if self._items and self._out < self._most else None

    def take(self) -> Item:
        """Take the first."""
        item = self._items.popleft()
        self._out += 1
        if len(self._items) < self._enough:
            self._has_room.set()
        return item

    def take_back(self, item: Item) -> None:
        """It had no effect: it is the next."""
        self._items.appendleft(item)
        self.note_done()

    def note_done(self) -> None:
        """Note that an item which was taken is done with."""
        self._out -= 1
        if self._items or not self._out:
            self._has_changed.set()

    def take_rest(self) -> list[Item]:
        """Take all that wait."""
        rest = list(self._items)
        self._items.clear()
        return rest
