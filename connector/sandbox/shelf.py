"""The visible subscribers in one order, kept sorted while they come and go."""

from bisect import bisect_left, insort

Key = int | tuple[str, int]
"""An id, or (email in lower case, id): by which an order sorts."""


class Shelf:
    """A sorted sequence of keys; adding at its end, as new ids do, is cheap."""

    def __init__(self, keys: list[Key]) -> None:
        keys.sort()
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Puts a key in its place."""
        if not self._keys or key > self._keys[-1]:  # type: ignore[operator]  # one shelf holds keys of one kind
            self._keys.append(key)
        else:
            insort(self._keys, key)

    def remove(self, key: Key) -> None:
        """Takes a key away; raises ValueError when it is not there."""
        place = bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            raise ValueError(f"{key!r} is not on the shelf")
        del self._keys[place]

    def read_ids(self, start: int, stop: int) -> list[int]:
        """The ids from place `start` to before `stop`."""
        return [key if isinstance(key, int) else key[1] for key in self._keys[start:stop]]

    def read_id(self, place: int) -> int:
        """The id at one place."""
        key = self._keys[place]
        return key if isinstance(key, int) else key[1]
