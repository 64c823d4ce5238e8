"""The subscribers that exist, as the bytes that the service shows, and the ways to find them; and their bases.

The store knows nothing of requests, faults or the truth log; the service records each change.
"""

import heapq
import html
import html.entities
import unicodedata
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import chain, groupby, islice
from typing import Any

import orjson

from connector.sandbox.people import SyntheticSubscribers

FIRST_ID = 100_001  # not 1: churn at the head of a list in id order needs ids below all others
_SEARCHED = 100_000  # subscribers whose whole text a search reads: a tenth of a second, in which nothing is served


_LONGEST_BASE_NAME = 20  # characters that the service keeps of a name, with the switch base_names=cut


def write_base_name(name: str, way: str) -> str:
    """Return the name of a base as the service stores it (switch `base_names`)."""
    match way:
        case "nfd":
            return unicodedata.normalize("NFD", name)
        case "collapsed":
            return " ".join(name.split())
        case "escaped":
            return name.translate(
                {code_point: f"&{entity};" for code_point, entity in html.entities.codepoint2name.items()}
            )
        case "cut":
            return name[:_LONGEST_BASE_NAME]
    return name


def fold_base(name: str, way: str) -> str:
    """Return the key by which a name finds its base (switch `base_names`)."""
    if way == "folded":
        return name.strip().casefold()
    if way == "accent_blind":
        letters = unicodedata.normalize("NFD", name.strip().casefold())
        return "".join(letter for letter in letters if not unicodedata.combining(letter))
    return html.unescape(name) if way == "escaped" else write_base_name(name, way)


class Bases:
    """Ids and names of the bases; ids count from 1."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._ids: dict[str, dict[str, int]] = {}  # by the way in which names are matched, and by key

    def find_or_make(self, base_id: int | None, name: str | None, way: str = "exact") -> tuple[int, str]:
        """Return (Id, Name) of the base: an unknown Id makes `Base <Id>`, an unknown Name takes the next Id.

        `way` is how a name is stored and matched, as the switch `base_names` says.
        """
        if base_id is None:
            name = name or ""
            if way not in self._ids:
                self._ids[way] = {fold_base(known, way): number for number, known in reversed(self._names.items())}
            base_id = self._ids[way].get(fold_base(name, way))
            if base_id is None:
                return self.add(max(self._names, default=0) + 1, write_base_name(name, way))
        elif base_id not in self._names:
            return self.add(base_id, f"Base {base_id}")
        return base_id, self._names[base_id]

    def add(self, base_id: int, name: str) -> tuple[int, str]:
        """Record a base under its Id. If two bases have one name, the name finds the first."""
        self._names.setdefault(base_id, name)
        for way, ids in self._ids.items():
            ids.setdefault(fold_base(name, way), base_id)
        return base_id, self._names[base_id]

    def items(self) -> list[tuple[int, str]]:
        """Return (Id, Name) of all bases by Id."""
        return sorted(self._names.items())


def fold_key(text: str) -> str:
    """Return the key of an email or a ClientUserId in the indexes: trimmed, without regard to case."""
    return text.strip().lower()


def identity_of(subscriber: dict[str, Any], by: str) -> tuple[str, str] | None:
    """Return (field, value) of what makes two subscribers of a base the same (switch `identity`): the email, or without
    an email the ClientUserId; or always the ClientUserId. Return None without a value: no other is the same."""
    email = fold_key(subscriber.get("Email") or "") if by == "email" else ""
    client = (subscriber.get("ClientUserId") or "").strip()
    if email:
        return "Email", email
    return ("ClientUserId", client) if client else None


class SubscriberStore:
    """All subscribers by id; `version` changes with each change that the list can show.

    A subscriber is visible if the list shows it. The key of a subscriber is its Id. If the list shows one Id in several
    bases, each base has a row with a key of its own. A created subscriber is held as JSON; seeded subscribers are held
    as blocks of which some ids may be removed.
    """

    def __init__(self) -> None:
        self.bases = Bases()
        self.version = 0
        self.created: set[int] = set()  # keys of the rows that a create has stored
        self._blocks: list[SyntheticSubscribers] = []
        self._wires: dict[int, bytes] = {}
        self._removed: set[int] = set()  # from blocks
        self._keys: dict[str, dict[str, list[int]]] = {"Email": {}, "ClientUserId": {}}  # created subscribers only
        self._visible: dict[int | None, list[int]] = {None: []}  # ids in order, of each base and of all
        self._hidden: set[int] = set()
        self._to_show: list[tuple[float, int]] = []  # a heap: when the list shows a hidden subscriber
        self._fresh: dict[int, float] = {}  # since when the list shows a subscriber that a replica may not show yet
        self._next_id = FIRST_ID

    def __len__(self) -> int:
        return len(self._wires) + sum(block.count for block in self._blocks) - len(self._removed)

    def __contains__(self, subscriber_id: int) -> bool:
        return subscriber_id in self._wires or self._find_block(subscriber_id) is not None

    def _find_block(self, subscriber_id: int) -> SyntheticSubscribers | None:
        """Return the block of a seeded subscriber; None if the subscriber was created, or does not exist."""
        if subscriber_id in self._wires or subscriber_id in self._removed:
            return None
        for block in self._blocks:
            if subscriber_id in block.ids:
                return block
        return None

    # changes

    def take_id(self, step: int) -> int:
        """Return the next Id that no subscriber has had."""
        taken = self._next_id
        self._next_id += step
        return taken

    def add(
        self,
        subscriber_id: int,
        base_id: int,
        email: str,
        client: str,
        wire: bytes,
        show_at: float | None = None,
    ) -> None:
        """Add a subscriber. With `show_at` the list hides the subscriber until `show` is called with that time."""
        self._next_id = max(self._next_id, subscriber_id + 1)
        self._wires[subscriber_id] = wire
        self._add_keys(subscriber_id, email, client)
        if show_at is None:
            self._add_to_list(subscriber_id, base_id)
        else:
            self._hidden.add(subscriber_id)
            heapq.heappush(self._to_show, (show_at, subscriber_id))

    def add_block(self, block: SyntheticSubscribers) -> None:
        """Add seeded subscribers, visible at once."""
        self._next_id = max(self._next_id, block.ids.stop)
        self._blocks.append(block)
        for key in (None, block.base_id):
            ids = self._visible.setdefault(key, [])
            ids.extend(block.ids)
            ids.sort()
        self.version += 1

    def replace(self, subscriber_id: int, wire: bytes) -> None:
        """Replace the fields of an existing subscriber, who may move into another base."""
        subscriber, old_base = orjson.loads(wire), self.base_of(subscriber_id)
        self._remove_row(subscriber_id)
        if subscriber["Base"]["Id"] != old_base and subscriber_id not in self._hidden:
            ids = self._visible[old_base]
            del ids[bisect_left(ids, subscriber_id)]
            insort(self._visible.setdefault(subscriber["Base"]["Id"], []), subscriber_id)
        self._wires[subscriber_id] = wire
        self._add_keys(subscriber_id, subscriber.get("Email") or "", subscriber.get("ClientUserId") or "")
        self.version += 1

    def remove(self, subscriber_id: int) -> None:
        """Remove a subscriber for good; its Id is not given again."""
        base_id = self.base_of(subscriber_id)
        self._remove_row(subscriber_id)
        if subscriber_id in self._hidden:
            self._hidden.remove(subscriber_id)
            return
        for key in (None, base_id):
            ids = self._visible[key]
            del ids[bisect_left(ids, subscriber_id)]
        self.version += 1

    def show(self, now: float) -> None:
        """Let the list show the subscribers whose time has come."""
        while self._to_show and self._to_show[0][0] <= now:
            subscriber_id = heapq.heappop(self._to_show)[1]
            if subscriber_id in self._hidden:
                self._hidden.remove(subscriber_id)
                self._add_to_list(subscriber_id, self.base_of(subscriber_id))

    def _add_keys(self, subscriber_id: int, email: str, client: str) -> None:
        for field, text in (("Email", email), ("ClientUserId", client)):
            key = fold_key(text)
            if key:
                self._keys[field].setdefault(key, []).append(subscriber_id)

    def _remove_row(self, subscriber_id: int) -> None:
        """Remove a subscriber from the rows and the keys, not from the list."""
        if subscriber_id not in self._wires:
            self._removed.add(subscriber_id)
            return
        subscriber = self.read(subscriber_id)
        del self._wires[subscriber_id]
        for field, index in self._keys.items():
            key = fold_key(subscriber.get(field) or "")
            if key:
                index[key].remove(subscriber_id)
                if not index[key]:
                    del index[key]

    def _add_to_list(self, subscriber_id: int, base_id: int) -> None:
        for key in (None, base_id):
            ids = self._visible.setdefault(key, [])
            if not ids or subscriber_id > ids[-1]:
                ids.append(subscriber_id)
            else:
                insort(ids, subscriber_id)
        self.version += 1

    # replicas

    def record_fresh(self, subscriber_id: int, shown_at: float) -> None:
        """Record since when the list shows the subscriber; a replica that lags shows the subscriber later."""
        self._fresh[subscriber_id] = shown_at

    def find_late(self, now: float, lag_s: float, longest_lag_s: float) -> set[int]:
        """Return the ids that a replica with this lag does not show yet; forget what every replica shows by now."""
        self._fresh = {
            subscriber_id: shown_at for subscriber_id, shown_at in self._fresh.items() if shown_at + longest_lag_s > now
        }
        return {subscriber_id for subscriber_id, shown_at in self._fresh.items() if shown_at + lag_s > now}

    # reading

    def read_wires(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return the JSON of these subscribers; raise KeyError if one does not exist."""
        wires: list[bytes] = []
        for block, group in groupby(subscriber_ids, self._find_block):
            ids = list(group)
            wires += [self._wires[subscriber_id] for subscriber_id in ids] if block is None else block.write(ids)
        return wires

    def read(self, subscriber_id: int) -> dict[str, Any]:
        """Return a subscriber as a dict; raise KeyError if the subscriber does not exist."""
        block = self._find_block(subscriber_id)
        wire = self._wires[subscriber_id] if block is None else block.write((subscriber_id,))[0]
        subscriber: dict[str, Any] = orjson.loads(wire)
        return subscriber

    def base_of(self, subscriber_id: int) -> int:
        """Return the Id of the subscriber's base."""
        block = self._find_block(subscriber_id)
        return int(self.read(subscriber_id)["Base"]["Id"]) if block is None else block.base_id

    def list_visible(self, base_id: int | None = None) -> list[int]:
        """Return the ids in order of all visible subscribers, or of those of one base. The caller must not change the
        list; later changes of the store change the list."""
        return self._visible.get(base_id, [])

    def is_visible(self, subscriber_id: int) -> bool:
        """Return whether the list shows the subscriber."""
        return subscriber_id in self and subscriber_id not in self._hidden

    def scan(self, matches: Callable[[dict[str, Any]], bool], *, is_by_person: bool) -> list[int]:
        """Return the ids in order of all visible subscribers that match. `is_by_person`: `matches` reads only fields
        by which `SyntheticSubscribers.select` can select; a list of a million takes a tenth of a second then."""
        if not is_by_person:
            return [subscriber_id for subscriber_id in self._visible[None] if matches(self.read(subscriber_id))]
        found = [own_id for own_id in self._wires if own_id not in self._hidden and matches(self.read(own_id))]
        for block in self._blocks:
            found += [
                subscriber_id
                for subscriber_id in block.select(matches)
                if subscriber_id not in self._wires and subscriber_id not in self._removed
            ]
        return sorted(found)

    def count_by_base(self) -> dict[int | None, int]:
        """Return how many visible subscribers each base has."""
        return {base_id: len(ids) for base_id, ids in self._visible.items()}

    # finding, hidden subscribers included

    def find_phone(self, phone: str) -> list[int]:
        """Return the ids of the created subscribers with this phone number."""
        return [own_id for own_id in self._wires if self.read(own_id).get("Phone") == phone]

    def find(self, field: str, text: str) -> list[int]:
        """Return the ids of all whose Email or ClientUserId (`field`) is the text, case-blind."""
        key = fold_key(text)
        seeded = (
            block.find_email(key) if field == "Email" else block.find_client_user_id(key) for block in self._blocks
        )
        return self._keys[field].get(key, []) + [
            subscriber_id
            for subscriber_id in seeded
            if subscriber_id is not None and self._find_block(subscriber_id) is not None
        ]

    def find_email_part(self, text: str) -> list[int]:
        """Return the ids of all whose email contains the text without the blanks around the text, case-blind."""
        key = fold_key(text)
        found = [subscriber_id for email, ids in self._keys["Email"].items() if key in email for subscriber_id in ids]
        found += [
            subscriber_id for block in self._blocks for subscriber_id in block.ids if key in block.email(subscriber_id)
        ]
        return sorted(subscriber_id for subscriber_id in found if subscriber_id in self)

    def find_same(self, subscriber: dict[str, Any], base_id: int, by: str) -> list[int]:
        """Return the ids of the base that have the subscriber's identity, the lowest first."""
        identity = identity_of(subscriber, by)
        return sorted(
            subscriber_id
            for subscriber_id in (self.find(*identity) if identity is not None else ())
            if self.base_of(subscriber_id) == base_id and identity_of(self.read(subscriber_id), by) == identity
        )

    def duplicates(self, by: str) -> list[dict[str, Any]]:
        """Return each identity that several subscribers of a base have: `base_id field value ids`."""
        shared: dict[tuple[int, str, str], set[int]] = {}
        for field, index in self._keys.items():
            for ids in (self.find(field, key) for key in index):
                for subscriber_id in ids if len(ids) > 1 else ():
                    identity = identity_of(self.read(subscriber_id), by)
                    if identity is not None:
                        shared.setdefault((self.base_of(subscriber_id), *identity), set()).add(subscriber_id)
        return [
            {"base_id": base_id, "field": field, "value": value, "ids": sorted(ids)}
            for (base_id, field, value), ids in shared.items()
            if len(ids) > 1
        ]

    def search(self, text: str, count: int) -> list[int]:
        """Return the latest `count` ids of subscribers with this email, ClientUserId or Id, then of subscribers whose
        JSON contains the text, case-blind."""
        newest = islice(chain(reversed(self._wires), *(reversed(block.ids) for block in self._blocks)), _SEARCHED)
        last = (subscriber_id for subscriber_id in newest if subscriber_id in self)
        if not text:
            return list(islice(last, count))
        wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        found = [*self.find("Email", text), *self.find("ClientUserId", text), *([wanted] if wanted in self else [])]
        part = orjson.dumps(text.lower())[1:-1].decode()
        anywhere = (
            subscriber_id for subscriber_id in last if part in orjson.dumps(self.read(subscriber_id)).decode().lower()
        )
        return list(islice(dict.fromkeys(chain(found, islice(anywhere, count))), count))
