"""From a key to the ids that have it; a key with one id, the usual case, costs no list."""

from collections.abc import Iterator


class Index:
    """Keys to ids, in the order in which they were added; the empty key is not kept."""

    def __init__(self) -> None:
        self._ids: dict[str, int | list[int]] = {}

    def add(self, key: str, subscriber_id: int) -> None:
        """The subscriber has this key."""
        if not key:
            return
        held = self._ids.setdefault(key, subscriber_id)
        if isinstance(held, list):
            held.append(subscriber_id)
        elif held != subscriber_id:
            self._ids[key] = [held, subscriber_id]

    def remove(self, key: str, subscriber_id: int) -> None:
        """The subscriber no longer has this key; if it never had it, nothing happens."""
        held = self._ids.get(key)
        if isinstance(held, list):
            if subscriber_id in held:
                held.remove(subscriber_id)
            if len(held) == 1:
                self._ids[key] = held[0]
        elif held == subscriber_id:
            del self._ids[key]

    def find(self, key: str) -> list[int]:
        """All that have the key."""
        held = self._ids.get(key)
        if held is None:
            return []
        return list(held) if isinstance(held, list) else [held]

    def keys(self) -> Iterator[str]:
        """Every key that somebody has."""
        return iter(self._ids)
