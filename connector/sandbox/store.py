"""The subscribers that exist, as the bytes the service shows, and the ways to find them; and their bases.

It knows nothing of requests, faults or the truth log; the service records each change.
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby, islice
from random import Random
from typing import Any

import orjson

from connector.sandbox.people import Person, draw_people

# bases


def fold_name(name: str) -> str:
    """Return what names have in common that differ in capitals and surrounding blanks alone."""
    return name.strip().casefold()


class Bases:
    """Ids and names of the bases; ids count from 1."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._folded: dict[str, int] = {}

    def find_or_make(self, base_id: int | None, name: str | None, *, is_folded: bool = False) -> tuple[int, str]:
        """Return (Id, Name) of the base: an unknown Id makes `Base <Id>`, an unknown Name takes the next Id.

        With `is_folded` a name is found in any capitals and with any blanks around it.
        """
        if base_id is None:
            wanted = name or ""
            known = self._ids.get(wanted)
            if known is None and is_folded:
                known = self._folded.get(fold_name(wanted))
            return self.keep(max(self._names, default=0) + 1, wanted) if known is None else (known, self._names[known])
        known_name = self._names.get(base_id)
        return (base_id, known_name) if known_name is not None else self.keep(base_id, f"Base {base_id}")

    def keep(self, base_id: int, name: str) -> tuple[int, str]:
        """Record a base under its Id; of two with one name, the first is found by it."""
        self._names.setdefault(base_id, name)
        self._ids.setdefault(name, base_id)
        self._folded.setdefault(fold_name(name), base_id)
        return base_id, self._names[base_id]

    def items(self) -> list[tuple[int, str]]:
        """Return all of them, (Id, Name), by Id."""
        return sorted(self._names.items())


# keys


_Index = dict[str, list[int]]
"""The ids of each key, in the order in which they were added."""


def _add_key(index: _Index, key: str, subscriber_id: int) -> None:
    """Add a key of a subscriber; the empty key is not kept."""
    if key:
        index.setdefault(key, []).append(subscriber_id)


def _remove_key(index: _Index, key: str, subscriber_id: int) -> None:
    """Remove a key of a subscriber; without that key nothing happens."""
    ids = index.get(key, [])
    if subscriber_id in ids:
        ids.remove(subscriber_id)
    if not ids:
        index.pop(key, None)


Key = int | tuple[str, int]
"""An id, or (email in lower case, id): by which an order sorts."""


class SortedKeys:
    """Subscribers in one order, kept sorted while they come and go; adding at the end, as new ids do, is cheap."""

    def __init__(self, keys: list[Key]) -> None:
        keys.sort()
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Add a key where it belongs."""
        if not self._keys or key > self._keys[-1]:  # type: ignore[operator]  # the keys are of one kind
            self._keys.append(key)
        else:
            insort(self._keys, key)

    def remove(self, key: Key) -> None:
        """Remove a key; raises ValueError when it is not there."""
        index = bisect_left(self._keys, key)
        if index == len(self._keys) or self._keys[index] != key:
            raise ValueError(f"{key!r} is not among the keys")
        del self._keys[index]

    def read_ids(self, start: int, stop: int) -> list[int]:
        """Return the ids from index `start` to before `stop`."""
        return [key if isinstance(key, int) else key[1] for key in self._keys[start:stop]]

    def leave_out(self, ids: set[int]) -> "SortedKeys":
        """Return the keys without these ids."""
        return SortedKeys([key for key in self._keys if (key if isinstance(key, int) else key[1]) not in ids])

    def read_id(self, index: int) -> int:
        """Return the id at one index."""
        key = self._keys[index]
        return key if isinstance(key, int) else key[1]


# synthetic subscribers

_SHAPES = 2_000  # so many differ in more than their id and phone; a multiple of 10, by which IsActive recurs
_MARK = "\ue000"  # of private use: no text of people.csv has it


@cache
def _draw_people() -> list[Person]:
    return list(islice(draw_people(Random(1)), _SHAPES))  # noqa: S311 - the same ones each time


@cache
def _write_shapes() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return what stands between base, id, number of the phone, id again, and the end: written once, since a list of a
    million is read page by page."""
    return [_write_shape(number, person) for number, person in enumerate(_draw_people())]


def _write_shape(number: int, person: Person) -> tuple[bytes, bytes, bytes, bytes]:
    subscriber = {
        "IsActive": _is_active(number),
        "Email": f"{person.latin_name}.{_MARK}@example.net",
        "FirstName": person.first_name,
        "LastName": person.last_name,
        "Gender": person.gender,
        "Phone": f"+31{_MARK}",
        "Tags": person.tags,
        "ClientUserId": f"seed-{_MARK}",
        "CustomField1": f"level {number % 9}",
        "Address": {
            "Country": person.country,
            "City": person.city,
            "State": person.state,
            "Zip": str(10_000 + 20 * number),
            "Line1": f"Main Street {number % 997}",
            "Line3": "",
        },
        "Birthday": f"{1940 + number % 67}-{1 + number % 12:02}-{1 + number % 28:02}",
    }
    first, second, third, last = orjson.dumps(subscriber).split(_MARK.encode())
    return b"," + first[1:], second, third, last


def _is_active(number: int) -> bool:
    return number % 10 > 0


@lru_cache(maxsize=64)  # one base, and a million subscribers in it
def _write_base(base_id: int, name: str) -> bytes:
    return orjson.dumps({"Id": base_id, "Name": name})


@dataclass(frozen=True, slots=True)
class SyntheticSubscribers:
    """`count` plausible subscribers of one base with the ids `first_id`, `first_id + step`, and so on.

    They take no room: each is written from its id when it is read. So a list of a million is there at once.
    """

    first_id: int
    count: int
    step: int
    base_id: int
    base_name: str

    @property
    def ids(self) -> range:
        """The ids of all of them; some may have been removed since."""
        return range(self.first_id, self.first_id + self.count * self.step, self.step)

    def email(self, subscriber_id: int) -> str:
        """Return the email of one of them, all in lower case, different for each id."""
        person = _draw_people()[self._index(subscriber_id) % _SHAPES]
        return f"{person.latin_name}.{subscriber_id}@example.net"

    def is_active(self, subscriber_id: int) -> bool:
        """Whether one of them is active: nine of ten are."""
        return _is_active(self._index(subscriber_id))

    def gender(self, subscriber_id: int) -> str:
        """Return the gender of one subscriber."""
        return _draw_people()[self._index(subscriber_id) % _SHAPES].gender

    def find_email(self, email: str) -> int | None:
        """Return the id whose email is `email` (trimmed, lower case), if one of them has it."""
        digits = email.partition("@")[0].rpartition(".")[2]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        subscriber_id = int(digits)
        return subscriber_id if subscriber_id in self.ids and self.email(subscriber_id) == email else None

    def find_client_user_id(self, key: str) -> int | None:
        """Return the id whose ClientUserId, in lower case, is `key`."""
        digits = key.removeprefix("seed-")
        if not key.startswith("seed-") or not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        return int(digits) if f"seed-{int(digits)}" == key and int(digits) in self.ids else None

    def _index(self, subscriber_id: int) -> int:
        """Return 0 for the first, 1 for the next: what varies goes by it, so that no step makes all alike."""
        return (subscriber_id - self.first_id) // self.step

    def write(self, subscriber_id: int) -> bytes:
        """Return the subscriber as the service writes it, JSON."""
        (wire,) = self.write_all((subscriber_id,))
        return wire

    def write_all(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return several of them."""
        begin, base, shapes = b'{"Id":', b',"Base":' + _write_base(self.base_id, self.base_name), _write_shapes()
        wires = []
        for each in subscriber_ids:
            index = (each - self.first_id) // self.step
            active, names, tags, rest = shapes[index % _SHAPES]
            digits, phone = b"%d" % each, b"%d" % (200_000_000 + index % 99_999_989)
            wires.append(b"".join((begin, digits, base, active, digits, names, phone, tags, digits, rest)))
        return wires


# the store

FIRST_ID = 100_001  # not 1: churn at the head of a list in id order needs ids below all others

_LOOKED_THROUGH = 100_000  # subscribers, for a text anywhere in them: a tenth of a second, in which nothing is served

_BASE_MARK, _ACTIVE_MARK, _GENDER_MARK = b'"Base":{"Id":', b'"IsActive":', b'"Gender":"'


def fold_key(text: str) -> str:
    """Return the key of an email or a ClientUserId in the indexes: trimmed, without regard to case."""
    return text.strip().lower()


def identity_of(subscriber: dict[str, Any], by: str) -> tuple[str, str] | None:
    """Return (field, value) of what makes it the same as another of its base (switch `identity`): the email, or without
    one the ClientUserId; or always the ClientUserId. None when it has none, and so is never the same."""
    email = fold_key(subscriber.get("Email") or "") if by == "email" else ""
    client = (subscriber.get("ClientUserId") or "").strip()
    if email:
        return "Email", email
    return ("ClientUserId", client) if client else None


def _read_base(wire: bytes) -> int:
    start = wire.index(_BASE_MARK) + len(_BASE_MARK)  # Id and Base come first, so no value can hold the mark before it
    return int(wire[start : wire.index(b",", start)])


def _read_active(wire: bytes) -> bool:
    start = wire.index(_ACTIVE_MARK) + len(_ACTIVE_MARK)  # no text can hold the mark: its quotes have a \ before them
    return wire.startswith(b"true", start)


def _read_gender(wire: bytes) -> str:
    start = wire.index(_GENDER_MARK) + len(_GENDER_MARK)
    return wire[start : wire.index(b'"', start)].decode()


class SubscriberStore:
    """All subscribers by id; `version` changes with each change that the list can show."""

    def __init__(self) -> None:
        self.bases = Bases()
        self.version = 0
        self._rows: dict[int, bytes | SyntheticSubscribers] = {}
        self._by_email: _Index = {}
        self._by_client: _Index = {}
        self._synthetic: list[SyntheticSubscribers] = []
        self._sorted: dict[tuple[bool, int | None], SortedKeys] = {}
        self._hidden: set[int] = set()
        self._to_show: list[tuple[float, int]] = []
        self._fresh: dict[int, float] = {}
        self._next_id = FIRST_ID
        self._counted: tuple[int, int, Counter[int]] | None = None  # version, length, and the count for these

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, subscriber_id: int) -> bool:
        return subscriber_id in self._rows

    # ids and rows

    def take_id(self, step: int) -> int:
        """Return the next Id that no subscriber has had."""
        taken = self._next_id
        self._next_id += step
        return taken

    def read_wire(self, subscriber_id: int) -> bytes:
        """Return the subscriber as the service writes it; raises KeyError when it does not exist."""
        row = self._rows[subscriber_id]
        return row if type(row) is bytes else row.write(subscriber_id)  # type: ignore[union-attr]  # bytes or synthetic

    def read_wires(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return several of them; raises KeyError as well."""
        wires: list[bytes] = []
        for row, group in groupby(subscriber_ids, self._rows.__getitem__):
            ids = list(group)
            wires += row.write_all(ids) if isinstance(row, SyntheticSubscribers) else [row] * len(ids)
        return wires

    def read_subscriber(self, subscriber_id: int) -> dict[str, Any]:
        """Return the subscriber as a dict."""
        subscriber: dict[str, Any] = orjson.loads(self.read_wire(subscriber_id))
        return subscriber

    def base_of(self, subscriber_id: int) -> int:
        """Return the Id of the subscriber's base."""
        row = self._rows[subscriber_id]
        return row.base_id if isinstance(row, SyntheticSubscribers) else _read_base(row)

    def is_active(self, subscriber_id: int) -> bool:
        """Whether the subscriber is active, without reading all of it: a filter may ask it of each."""
        row = self._rows[subscriber_id]
        return row.is_active(subscriber_id) if isinstance(row, SyntheticSubscribers) else _read_active(row)

    def gender(self, subscriber_id: int) -> str:
        """Return the subscriber's gender, without reading all of it."""
        row = self._rows[subscriber_id]
        return row.gender(subscriber_id) if isinstance(row, SyntheticSubscribers) else _read_gender(row)

    def add(
        self,
        subscriber_id: int,
        base_id: int,
        email: str,
        client_user_id: str,
        wire: bytes,
        show_at: float | None = None,
    ) -> None:
        """Keep a new subscriber; one with `show_at` is in no list before `show` is called with that time or later."""
        self._rows[subscriber_id] = wire
        self._next_id = max(self._next_id, subscriber_id + 1)
        key = fold_key(email)
        _add_key(self._by_email, key, subscriber_id)
        _add_key(self._by_client, fold_key(client_user_id), subscriber_id)
        if show_at is None:
            self._add_to_sorted(subscriber_id, base_id, key)
        else:
            self._hidden.add(subscriber_id)
            heapq.heappush(self._to_show, (show_at, subscriber_id))

    def add_synthetic(self, synthetic: SyntheticSubscribers) -> None:
        """Keep synthetic subscribers, visible at once."""
        self._rows.update(dict.fromkeys(synthetic.ids, synthetic))
        self._next_id = max(self._next_id, synthetic.ids.stop)
        self._synthetic.append(synthetic)
        self._sorted.clear()
        self.version += 1

    def replace(self, subscriber_id: int, wire: bytes) -> None:
        """Replace the fields of an existing subscriber; its base stays."""
        is_hidden = subscriber_id in self._hidden
        base_id, key = self._forget(subscriber_id)
        subscriber = orjson.loads(wire)
        self._rows[subscriber_id] = wire
        key = fold_key(subscriber.get("Email") or "")
        _add_key(self._by_email, key, subscriber_id)
        _add_key(self._by_client, fold_key(subscriber.get("ClientUserId") or ""), subscriber_id)
        if is_hidden:
            self._hidden.add(subscriber_id)
        else:
            self._add_to_sorted(subscriber_id, base_id, key)

    def remove(self, subscriber_id: int) -> None:
        """Remove a subscriber for good; its Id is not given again."""
        self._forget(subscriber_id)

    def show(self, now: float) -> None:
        """Let the list show those whose time has come."""
        while self._to_show and self._to_show[0][0] <= now:
            subscriber_id = heapq.heappop(self._to_show)[1]
            if subscriber_id in self._hidden:
                self._hidden.discard(subscriber_id)
                email = self.read_subscriber(subscriber_id).get("Email") or ""
                self._add_to_sorted(subscriber_id, self.base_of(subscriber_id), fold_key(email))

    def note_fresh(self, subscriber_id: int, shown_at: float) -> None:
        """Take note that the list shows the subscriber from then on; a replica that lags shows it later."""
        self._fresh[subscriber_id] = shown_at

    def find_late(self, now: float, lag_s: float, longest_lag_s: float) -> set[int]:
        """Return those that a replica with this lag does not show yet; what every replica shows by now is forgotten."""
        for each in [each for each, shown_at in self._fresh.items() if shown_at + longest_lag_s <= now]:
            del self._fresh[each]
        return {each for each, shown_at in self._fresh.items() if shown_at + lag_s > now}

    # finding

    def find_email(self, email: str) -> list[int]:
        """Return the ids of all with this email, case-blind, hidden ones too."""
        key = fold_key(email)
        found = self._by_email.get(key, [])
        return found + self._keep_synthetic(each.find_email(key) for each in self._synthetic)

    def find_email_part(self, text: str) -> list[int] | None:
        """Return the ids of all in whose email the text is, case-blind, hidden ones too; None if it takes a look at
        each subscriber."""
        key = fold_key(text)
        if self._synthetic or key != text.lower():
            return None
        return sorted(each for email, ids in self._by_email.items() if key in email for each in ids)

    def find_client_user_id(self, client_user_id: str) -> list[int]:
        """Return the ids of all with this ClientUserId, case-blind, hidden ones too."""
        key = fold_key(client_user_id)
        found = self._by_client.get(key, [])
        return found + self._keep_synthetic(each.find_client_user_id(key) for each in self._synthetic)

    def search(self, text: str, most: int) -> list[int]:
        """Return the latest `most` ids, hidden ones too, of subscribers with this email, ClientUserId or Id, then of
        those with the text anywhere in them, case-blind, among the last ones that were added."""
        if not text:
            return list(islice(reversed(self._rows), most))
        wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        found = [*self.find_email(text), *self.find_client_user_id(text), *([wanted] if wanted in self._rows else [])]
        part = orjson.dumps(text.lower())[1:-1]
        last = islice(reversed(self._rows), _LOOKED_THROUGH)
        anywhere = (each for each in last if part in self.read_wire(each).decode().lower().encode())
        return list(islice(dict.fromkeys((*found, *islice(anywhere, most))), most))

    def count_by_base(self) -> dict[int, int]:
        """Return how many subscribers each base has, hidden ones included. A count is kept until something changes."""
        if self._counted is None or self._counted[:2] != (self.version, len(self._rows)):
            self._counted = self.version, len(self._rows), Counter(map(self.base_of, self._rows))
        return self._counted[2]

    def is_visible(self, subscriber_id: int) -> bool:
        """Whether the list shows the subscriber."""
        return subscriber_id in self._rows and subscriber_id not in self._hidden

    def sort(self, *, by_email: bool, base_id: int | None) -> SortedKeys:
        """Return the visible subscribers, of one base or of all, in id or email order."""
        found = self._sorted.get((by_email, base_id))
        if found is None:
            ids = [each for each in self._rows if each not in self._hidden]
            if base_id is not None:
                ids = [each for each in ids if self.base_of(each) == base_id]
            found = SortedKeys([self.sort_key(each) for each in ids] if by_email else list(ids))
            self._sorted[by_email, base_id] = found
        return found

    def sort_key(self, subscriber_id: int) -> tuple[str, int]:
        """Return by what the email order sorts."""
        row = self._rows[subscriber_id]
        if isinstance(row, SyntheticSubscribers):
            return row.email(subscriber_id), subscriber_id
        return fold_key(self.read_subscriber(subscriber_id).get("Email") or ""), subscriber_id

    def find_same(self, subscriber: dict[str, Any], base_id: int, by: str) -> list[int]:
        """Return the ids in the base that have the subscriber's identity, the lowest first, hidden ones too."""
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
        """Return each identity that more than one subscriber of a base has: `base_id field value ids`."""
        shared: dict[tuple[int, str, str], list[int]] = {}
        for index, find in ((self._by_email, self.find_email), (self._by_client, self.find_client_user_id)):
            for ids in map(find, index):
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

    def _keep_synthetic(self, found: Iterator[int | None]) -> list[int]:
        return [each for each in found if each is not None and isinstance(self._rows.get(each), SyntheticSubscribers)]

    def _add_to_sorted(self, subscriber_id: int, base_id: int, key: str) -> None:
        self.version += 1
        for (by_email, wanted), found in self._sorted.items():
            if wanted is None or wanted == base_id:
                found.add((key, subscriber_id) if by_email else subscriber_id)

    def _forget(self, subscriber_id: int) -> tuple[int, str]:
        base_id, key = self.base_of(subscriber_id), self.sort_key(subscriber_id)[0]
        client = self.read_subscriber(subscriber_id).get("ClientUserId") or ""
        del self._rows[subscriber_id]
        _remove_key(self._by_email, key, subscriber_id)
        _remove_key(self._by_client, fold_key(client), subscriber_id)
        if subscriber_id in self._hidden:
            self._hidden.discard(subscriber_id)
        else:
            self._remove_from_sorted(subscriber_id, base_id, key)
        return base_id, key

    def _remove_from_sorted(self, subscriber_id: int, base_id: int, key: str) -> None:
        self.version += 1
        for (by_email, wanted), found in self._sorted.items():
            if wanted is None or wanted == base_id:
                taken: Key = (key, subscriber_id) if by_email else subscriber_id
                found.remove(taken)
