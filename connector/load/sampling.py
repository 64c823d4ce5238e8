"""A few of many, spread evenly over all that there were, the first among them."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Sample(Generic[T]):
    """Keeps the first and, as more come, every second, every fourth and so on: between half of `most` and `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._met = 0
        self._step = 1
        self.kept: list[T] = []

    def add(self, item: T) -> None:
        """One more has come."""
        if self._met % self._step == 0:
            if len(self.kept) == self._most:
                self.kept = self.kept[::2]
                self._step *= 2
            if self._met % self._step == 0:
                self.kept.append(item)
        self._met += 1
