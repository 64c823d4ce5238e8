"""Candidates whose intent is durable and who are not sent yet: some at hand while the next are committed."""

import asyncio
from collections import deque
from collections.abc import Sequence

from connector.load.candidates import Candidate


class Ahead:
    """A queue that one fills and one empties. Those who could not be sent come back, and go first.

    More are wanted while fewer are left than came last, or than `fewest`: to commit them takes time. At most `most` are
    taken and not done with at one time.
    """

    def __init__(self, fewest: int, most: int) -> None:
        self._fewest = self._enough = fewest
        self._most = most
        self._candidates: deque[Candidate] = deque()
        self._out = 0  # taken, and neither done nor back
        self._is_ended = False
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, candidates: Sequence[Candidate]) -> None:
        """Add these; returns when so few are left that more are wanted."""
        self._candidates.extend(candidates)
        self._enough = max(self._fewest, len(candidates))
        self._has_changed.set()
        while len(self._candidates) >= self._enough:
            self._has_room.clear()
            await self._has_room.wait()

    def end(self) -> None:
        """There are no more to come."""
        self._is_ended = True
        self._has_changed.set()

    async def wait(self) -> bool:
        """Wait until one may be taken; False when all are done."""
        while self.first is None:
            if self._is_ended and not self._out and not self._candidates:
                return False
            self._has_changed.clear()
            await self._has_changed.wait()
        return True

    @property
    def first(self) -> Candidate | None:
        """The next one; None when none may be taken now."""
        return self._candidates[0] if self._candidates and self._out < self._most else None

    def take(self) -> Candidate:
        """The first."""
        candidate = self._candidates.popleft()
        self._out += 1
        if len(self._candidates) < self._enough:
            self._has_room.set()
        return candidate

    def take_back(self, candidate: Candidate) -> None:
        """It did not leave, or had no effect: it is the next."""
        self._candidates.appendleft(candidate)
        self.note_done()

    def note_done(self) -> None:
        """One that was taken is done with."""
        self._out -= 1
        if self._candidates or not self._out:
            self._has_changed.set()

    def take_rest(self) -> list[Candidate]:
        """Those who are waiting, for the caller to put back."""
        rest = list(self._candidates)
        self._candidates.clear()
        return rest
