"""The subscribers that exist, as the bytes the service shows, and the ways to find them.

It knows nothing of requests, faults or the journal; whoever changes it records the change.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import orjson

from connector.sandbox.bases import Bases
from connector.sandbox.crowd import Crowd
from connector.sandbox.index import Index
from connector.sandbox.shelf import Key, Shelf

FIRST_ID = 100_001  # not 1: churn at the head of a list in id order needs ids below all others

_BASE_MARK, _ACTIVE_MARK = b'"Base":{"Id":', b'"IsActive":'


def email_key(email: str) -> str:
    """What counts as the same email: trimmed, case-blind."""
    return email.strip().lower()


def client_key(client_user_id: str) -> str:
    """By what a ClientUserId is found: trimmed, case-blind; whether it is the same is decided with its case."""
    return client_user_id.strip().lower()


def identity_of(subscriber: dict[str, Any], by: str) -> tuple[str, str] | None:
    """(field, value) of what makes it the same as another of its base (switch `identity`): the email, or without one
    the ClientUserId; or always the ClientUserId. None when it has none, and so is never the same."""
    email = email_key(subscriber.get("Email") or "") if by == "email" else ""
    client = (subscriber.get("ClientUserId") or "").strip()
    if email:
        return "Email", email
    return ("ClientUserId", client) if client else None


def _base_of(wire: bytes) -> int:
    start = wire.index(_BASE_MARK) + len(_BASE_MARK)  # Id and Base come first, so no value can hold the mark before it
    return int(wire[start : wire.index(b",", start)])


def _is_active(wire: bytes) -> bool:
    start = wire.index(_ACTIVE_MARK) + len(_ACTIVE_MARK)  # no text can hold the mark: its quotes have a \ before them
    return wire.startswith(b"true", start)


class Store:
    """All subscribers by id; `version` changes with each change that the list can show."""

    def __init__(self) -> None:
        self.bases = Bases()
        self.version = 0
        self._rows: dict[int, bytes | Crowd] = {}
        self._by_email = Index()
        self._by_client = Index()
        self._crowds: list[Crowd] = []
        self._shelves: dict[tuple[bool, int | None], Shelf] = {}
        self._hidden: set[int] = set()
        self._to_show: list[tuple[float, int]] = []
        self._fresh: dict[int, float] = {}
        self._next_id = FIRST_ID

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, subscriber_id: int) -> bool:
        return subscriber_id in self._rows

    # ids and rows

    def take_id(self, step: int) -> int:
        """The next Id that nobody has had."""
        taken = self._next_id
        self._next_id += step
        return taken

    def read_wire(self, subscriber_id: int) -> bytes:
        """The subscriber as the service writes it; raises KeyError when it does not exist."""
        row = self._rows[subscriber_id]
        return row if type(row) is bytes else row.write(subscriber_id)  # type: ignore[union-attr]  # bytes or Crowd

    def read_wires(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Several of them; raises KeyError as well."""
        wires: list[bytes] = []
        for row, group in groupby(subscriber_ids, self._rows.__getitem__):
            ids = list(group)
            wires += row.write_all(ids) if isinstance(row, Crowd) else [row] * len(ids)
        return wires

    def read_subscriber(self, subscriber_id: int) -> dict[str, Any]:
        """The subscriber as a dict."""
        subscriber: dict[str, Any] = orjson.loads(self.read_wire(subscriber_id))
        return subscriber

    def base_of(self, subscriber_id: int) -> int:
        """The Id of the subscriber's base."""
        row = self._rows[subscriber_id]
        return row.base_id if isinstance(row, Crowd) else _base_of(row)

    def is_active(self, subscriber_id: int) -> bool:
        """Whether the subscriber is: told without reading all of it, for whoever asks it of everybody."""
        row = self._rows[subscriber_id]
        return row.is_active(subscriber_id) if isinstance(row, Crowd) else _is_active(row)

    def add(
        self,
        subscriber_id: int,
        base_id: int,
        email: str,
        client_user_id: str,
        wire: bytes,
        show_at: float | None = None,
    ) -> None:
        """Keeps a new subscriber; one with `show_at` is in no list before `show` is called with that time or later."""
        self._rows[subscriber_id] = wire
        self._next_id = max(self._next_id, subscriber_id + 1)
        key = email_key(email)
        self._by_email.add(key, subscriber_id)
        self._by_client.add(client_key(client_user_id), subscriber_id)
        if show_at is None:
            self._put_on_shelves(subscriber_id, base_id, key)
        else:
            self._hidden.add(subscriber_id)
            heapq.heappush(self._to_show, (show_at, subscriber_id))

    def add_crowd(self, crowd: Crowd) -> None:
        """Keeps a whole crowd, visible at once."""
        self._rows.update(dict.fromkeys(crowd.ids, crowd))
        self._next_id = max(self._next_id, crowd.ids.stop)
        self._crowds.append(crowd)
        self._shelves.clear()
        self.version += 1

    def replace(self, subscriber_id: int, wire: bytes) -> None:
        """Puts other fields in the place of an existing subscriber's; its base stays."""
        is_hidden = subscriber_id in self._hidden
        base_id, key = self._forget(subscriber_id)
        subscriber = orjson.loads(wire)
        self._rows[subscriber_id] = wire
        key = email_key(subscriber.get("Email") or "")
        self._by_email.add(key, subscriber_id)
        self._by_client.add(client_key(subscriber.get("ClientUserId") or ""), subscriber_id)
        if is_hidden:
            self._hidden.add(subscriber_id)
        else:
            self._put_on_shelves(subscriber_id, base_id, key)

    def remove(self, subscriber_id: int) -> None:
        """The subscriber is gone for good; its Id is not given again."""
        self._forget(subscriber_id)

    def show(self, now: float) -> None:
        """Lets the list show those whose time has come."""
        while self._to_show and self._to_show[0][0] <= now:
            subscriber_id = heapq.heappop(self._to_show)[1]
            if subscriber_id in self._hidden:
                self._hidden.discard(subscriber_id)
                email = self.read_subscriber(subscriber_id).get("Email") or ""
                self._put_on_shelves(subscriber_id, self.base_of(subscriber_id), email_key(email))

    def note_fresh(self, subscriber_id: int, shown_at: float) -> None:
        """The list shows the subscriber from then on; a replica that lags shows it later."""
        self._fresh[subscriber_id] = shown_at

    def find_late(self, now: float, lag_s: float, longest_lag_s: float) -> set[int]:
        """Those that a replica with this lag does not show yet; what every replica shows by now is forgotten."""
        for each in [each for each, shown_at in self._fresh.items() if shown_at + longest_lag_s <= now]:
            del self._fresh[each]
        return {each for each, shown_at in self._fresh.items() if shown_at + lag_s > now}

    # finding

    def find_email(self, email: str) -> list[int]:
        """The ids of all with this email, case-blind, hidden ones too."""
        key = email_key(email)
        found = self._by_email.find(key)
        return found + self._in_crowds(crowd.find_email(key) for crowd in self._crowds)

    def find_client_user_id(self, client_user_id: str) -> list[int]:
        """The ids of all with this ClientUserId, case-blind, hidden ones too."""
        key = client_key(client_user_id)
        found = self._by_client.find(key)
        return found + self._in_crowds(crowd.find_client_user_id(key) for crowd in self._crowds)

    def is_visible(self, subscriber_id: int) -> bool:
        """Whether the list shows the subscriber."""
        return subscriber_id in self._rows and subscriber_id not in self._hidden

    def shelf(self, *, by_email: bool, base_id: int | None) -> Shelf:
        """The visible subscribers, of one base or of all, in id or email order."""
        shelf = self._shelves.get((by_email, base_id))
        if shelf is None:
            ids = [each for each in self._rows if each not in self._hidden]
            if base_id is not None:
                ids = [each for each in ids if self.base_of(each) == base_id]
            shelf = Shelf([self.sort_key(each) for each in ids] if by_email else list(ids))
            self._shelves[by_email, base_id] = shelf
        return shelf

    def sort_key(self, subscriber_id: int) -> tuple[str, int]:
        """By what the email order sorts."""
        row = self._rows[subscriber_id]
        if isinstance(row, Crowd):
            return row.email(subscriber_id), subscriber_id
        return email_key(self.read_subscriber(subscriber_id).get("Email") or ""), subscriber_id

    def find_same(self, subscriber: dict[str, Any], base_id: int, by: str) -> list[int]:
        """The ids in the base that have the subscriber's identity, the lowest first, hidden ones too."""
        identity = identity_of(subscriber, by)
        if identity is None:
            return []
        field, value = identity
        found = self.find_email(value) if field == "Email" else self.find_client_user_id(value)
        return sorted(
            each
            for each in found
            if self.base_of(each) == base_id and identity_of(self.read_subscriber(each), by) == identity
        )

    def duplicates(self, by: str) -> list[dict[str, Any]]:
        """Each identity that more than one subscriber of a base has: `base_id field value ids`."""
        shared: dict[tuple[int, str, str], list[int]] = {}
        for index, find in ((self._by_email, self.find_email), (self._by_client, self.find_client_user_id)):
            for ids in map(find, index.keys()):
                for each in ids if len(ids) > 1 else ():
                    identity = identity_of(self.read_subscriber(each), by)
                    if identity is not None:
                        shared.setdefault((self.base_of(each), *identity), []).append(each)
        groups = ((key, sorted(set(ids))) for key, ids in shared.items())
        return [
            {"base_id": base_id, "field": field, "value": value, "ids": ids}
            for (base_id, field, value), ids in groups
            if len(ids) > 1
        ]

    def _in_crowds(self, found: Iterator[int | None]) -> list[int]:
        return [each for each in found if each is not None and isinstance(self._rows.get(each), Crowd)]

    def _put_on_shelves(self, subscriber_id: int, base_id: int, key: str) -> None:
        self.version += 1
        for (by_email, wanted), shelf in self._shelves.items():
            if wanted is None or wanted == base_id:
                shelf.add((key, subscriber_id) if by_email else subscriber_id)

    def _forget(self, subscriber_id: int) -> tuple[int, str]:
        base_id, key = self.base_of(subscriber_id), self.sort_key(subscriber_id)[0]
        client = self.read_subscriber(subscriber_id).get("ClientUserId") or ""
        del self._rows[subscriber_id]
        self._by_email.remove(key, subscriber_id)
        self._by_client.remove(client_key(client), subscriber_id)
        if subscriber_id in self._hidden:
            self._hidden.discard(subscriber_id)
        else:
            self._take_from_shelves(subscriber_id, base_id, key)
        return base_id, key

    def _take_from_shelves(self, subscriber_id: int, base_id: int, key: str) -> None:
        self.version += 1
        for (by_email, wanted), shelf in self._shelves.items():
            if wanted is None or wanted == base_id:
                taken: Key = (key, subscriber_id) if by_email else subscriber_id
                shelf.remove(taken)
