"""The store of subscribers and bases. A subscriber is stored as the JSON that the service shows.

Requests, faults and the truth log belong to other modules. The service records each change.
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

FIRST_ID = 100_001  # not 1, because subscribers that appear at the head of the list need lower ids
# The maximum number of subscribers whose JSON a search reads. To read this number takes a tenth of a second.
_MAX_SEARCHED_SUBSCRIBERS = 100_000
_MAX_BASE_NAME_LENGTH = 20  # maximum length of a name with the switch `base_names` = cut


def format_base_name(name: str, base_name_matching: str) -> str:
    """Return the name of a base as the service stores it (switch `base_names`)."""
    match base_name_matching:
        case "nfd":
            return unicodedata.normalize("NFD", name)
        case "collapsed":
            return " ".join(name.split())
        case "escaped":
            return name.translate(
                {code_point: f"&{entity};" for code_point, entity in html.entities.codepoint2name.items()}
            )
        case "cut":
            return name[:_MAX_BASE_NAME_LENGTH]
        case _:
            return name


def fold_base_name(name: str, base_name_matching: str) -> str:
    """Return the key of a base name. Names with the same key are one base (switch `base_names`)."""
    if base_name_matching == "folded":
        return name.strip().casefold()
    if base_name_matching == "accent_blind":
        letters = unicodedata.normalize("NFD", name.strip().casefold())
        return "".join(letter for letter in letters if not unicodedata.combining(letter))
    return html.unescape(name) if base_name_matching == "escaped" else format_base_name(name, base_name_matching)


class BaseRegistry:
    """The ids and names of the bases. A base that is created by its name gets the next id. The first id is 1."""

    def __init__(self) -> None:
        self._name_by_id: dict[int, str] = {}
        # For each value of the switch `base_names`: the ids of the bases, by the result of `fold_base_name`.
        self._id_by_key_by_matching: dict[str, dict[str, int]] = {}

    def find_or_create_base(
        self, base_id: int | None, name: str | None, base_name_matching: str = "exact"
    ) -> tuple[int, str]:
        """Return the Id and the Name of the base. An unknown Id creates the base `Base <Id>`, and an unknown Name
        creates a base with the next Id.

        `base_name_matching` is the value of the switch `base_names`, which decides how names are stored and matched.
        """
        if base_id is None:
            name = name or ""
            if base_name_matching not in self._id_by_key_by_matching:
                self._id_by_key_by_matching[base_name_matching] = {
                    fold_base_name(known_name, base_name_matching): base_id_of_name
                    for base_id_of_name, known_name in reversed(self._name_by_id.items())
                }
            base_id = self._id_by_key_by_matching[base_name_matching].get(fold_base_name(name, base_name_matching))
            if base_id is None:
                return self.add(max(self._name_by_id, default=0) + 1, format_base_name(name, base_name_matching))
        elif base_id not in self._name_by_id:
            return self.add(base_id, f"Base {base_id}")
        return base_id, self._name_by_id[base_id]

    def add(self, base_id: int, name: str) -> tuple[int, str]:
        """Add a base. If two bases have the same name, a create with this name goes to the first base."""
        self._name_by_id.setdefault(base_id, name)
        for base_name_matching, id_by_key in self._id_by_key_by_matching.items():
            id_by_key.setdefault(fold_base_name(name, base_name_matching), base_id)
        return base_id, self._name_by_id[base_id]

    def items(self) -> list[tuple[int, str]]:
        """Return the Id and the Name of all bases, ordered by Id."""
        return sorted(self._name_by_id.items())


def fold_key(text: str) -> str:
    """Return the key of an email or a ClientUserId in the indexes: trimmed, and in lower case."""
    return text.strip().lower()


def find_identity(subscriber: dict[str, Any], identity_switch: str) -> tuple[str, str] | None:
    """Return the field and the value that identify a subscriber within a base, or None if the subscriber has no value.

    If `identity_switch` is email, the field is the email, or the ClientUserId for a subscriber without an email. With
    any other value, the field is the ClientUserId.
    """
    email = fold_key(subscriber.get("Email") or "") if identity_switch == "email" else ""
    client_user_id = (subscriber.get("ClientUserId") or "").strip()
    if email:
        return "Email", email
    return ("ClientUserId", client_user_id) if client_user_id else None


class SubscriberStore:
    """All subscribers by id. `version` increases with each change that the list can show.

    A subscriber is visible if the list shows the subscriber. The key of a subscriber is its Id. Seeded subscribers are
    stored as blocks, from which single ids may be removed. All other subscribers, and seeded subscribers that were
    updated, are stored as JSON.
    """

    def __init__(self) -> None:
        self.bases = BaseRegistry()
        self.version = 0
        self.created_ids: set[int] = set()  # ids of the subscribers that a create has stored
        self._seeded_blocks: list[SyntheticSubscribers] = []
        self._json_by_id: dict[int, bytes] = {}
        self._removed_ids: set[int] = set()  # ids that were removed from blocks
        # The ids of the subscribers in `_json_by_id`: by field, then by `fold_key` of the value of this field.
        self._ids_by_key: dict[str, dict[str, list[int]]] = {"Email": {}, "ClientUserId": {}}
        self._visible_ids: dict[int | None, list[int]] = {None: []}  # sorted ids of each base (None: of all bases)
        self._hidden_ids: set[int] = set()
        # A heap of (time, id) of the hidden subscribers. At this time, the list begins to show the subscriber.
        self._show_heap: list[tuple[float, int]] = []
        # The times at which the list began to show new subscribers. When all replicas show a subscriber, its time is
        # deleted.
        self._shown_at_by_id: dict[int, float] = {}
        self._next_id = FIRST_ID

    def __len__(self) -> int:
        return len(self._json_by_id) + sum(block.count for block in self._seeded_blocks) - len(self._removed_ids)

    def __contains__(self, subscriber_id: int) -> bool:
        return subscriber_id in self._json_by_id or self._find_block(subscriber_id) is not None

    def _find_block(self, subscriber_id: int) -> SyntheticSubscribers | None:
        """Return the block of a seeded subscriber, or None if no block has the subscriber."""
        if subscriber_id in self._json_by_id or subscriber_id in self._removed_ids:
            return None
        for block in self._seeded_blocks:
            if subscriber_id in block.ids:
                return block
        return None

    # Changes of the store

    def create_id(self, id_step: int) -> int:
        """Return the next Id that no subscriber has had."""
        subscriber_id = self._next_id
        self._next_id += id_step
        return subscriber_id

    def add(
        self,
        subscriber_id: int,
        base_id: int,
        email: str,
        client_user_id: str,
        subscriber_json: bytes,
        visible_from: float | None = None,
    ) -> None:
        """Add a subscriber. With `visible_from`, the list hides the subscriber until `show_due_subscribers` is called
        with this time or a later time."""
        self._next_id = max(self._next_id, subscriber_id + 1)
        self._json_by_id[subscriber_id] = subscriber_json
        self._add_keys(subscriber_id, email, client_user_id)
        if visible_from is None:
            self._add_to_list(subscriber_id, base_id)
        else:
            self._hidden_ids.add(subscriber_id)
            heapq.heappush(self._show_heap, (visible_from, subscriber_id))

    def add_block(self, block: SyntheticSubscribers) -> None:
        """Add seeded subscribers, visible immediately."""
        self._next_id = max(self._next_id, block.ids.stop)
        self._seeded_blocks.append(block)
        for key in (None, block.base_id):
            ids = self._visible_ids.setdefault(key, [])
            ids.extend(block.ids)
            ids.sort()
        self.version += 1

    def replace(self, subscriber_id: int, subscriber_json: bytes) -> None:
        """Replace the fields of an existing subscriber. The subscriber may move to another base."""
        subscriber, old_base_id = orjson.loads(subscriber_json), self.find_base_id(subscriber_id)
        self._remove_row(subscriber_id)
        if subscriber["Base"]["Id"] != old_base_id and subscriber_id not in self._hidden_ids:
            ids = self._visible_ids[old_base_id]
            del ids[bisect_left(ids, subscriber_id)]
            insort(self._visible_ids.setdefault(subscriber["Base"]["Id"], []), subscriber_id)
        self._json_by_id[subscriber_id] = subscriber_json
        self._add_keys(subscriber_id, subscriber.get("Email") or "", subscriber.get("ClientUserId") or "")
        self.version += 1

    def remove(self, subscriber_id: int) -> None:
        """Remove a subscriber. Its Id is never used again."""
        base_id = self.find_base_id(subscriber_id)
        self._remove_row(subscriber_id)
        if subscriber_id in self._hidden_ids:
            self._hidden_ids.remove(subscriber_id)
            return
        for key in (None, base_id):
            ids = self._visible_ids[key]
            del ids[bisect_left(ids, subscriber_id)]
        self.version += 1

    def show_due_subscribers(self, now: float) -> None:
        """Show the hidden subscribers whose time to appear on the list is `now` or earlier."""
        while self._show_heap and self._show_heap[0][0] <= now:
            subscriber_id = heapq.heappop(self._show_heap)[1]
            if subscriber_id in self._hidden_ids:
                self._hidden_ids.remove(subscriber_id)
                self._add_to_list(subscriber_id, self.find_base_id(subscriber_id))

    def _add_keys(self, subscriber_id: int, email: str, client_user_id: str) -> None:
        for field, text in (("Email", email), ("ClientUserId", client_user_id)):
            key = fold_key(text)
            if key:
                self._ids_by_key[field].setdefault(key, []).append(subscriber_id)

    def _remove_row(self, subscriber_id: int) -> None:
        """Remove a subscriber from the stored data and the indexes, but not from the list."""
        if subscriber_id not in self._json_by_id:
            self._removed_ids.add(subscriber_id)
            return
        subscriber = self.read(subscriber_id)
        del self._json_by_id[subscriber_id]
        for field, ids_by_key in self._ids_by_key.items():
            key = fold_key(subscriber.get(field) or "")
            if key:
                ids_by_key[key].remove(subscriber_id)
                if not ids_by_key[key]:
                    del ids_by_key[key]

    def _add_to_list(self, subscriber_id: int, base_id: int) -> None:
        for key in (None, base_id):
            ids = self._visible_ids.setdefault(key, [])
            if not ids or subscriber_id > ids[-1]:
                ids.append(subscriber_id)
            else:
                insort(ids, subscriber_id)
        self.version += 1

    # Replicas of the list

    def record_shown_at(self, subscriber_id: int, shown_at: float) -> None:
        """Record the time at which a replica without a lag shows a new subscriber. Other replicas show the subscriber
        later."""
        self._shown_at_by_id[subscriber_id] = shown_at

    def find_unreplicated_ids(self, now: float, lag_s: float, longest_lag_s: float) -> set[int]:
        """Return the ids that a replica with this lag does not show yet. Forget subscribers that every replica
        shows."""
        self._shown_at_by_id = {
            subscriber_id: shown_at
            for subscriber_id, shown_at in self._shown_at_by_id.items()
            if shown_at + longest_lag_s > now
        }
        return {subscriber_id for subscriber_id, shown_at in self._shown_at_by_id.items() if shown_at + lag_s > now}

    # Reading of subscribers

    def read_jsons(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Return the JSON of these subscribers. Raise KeyError if a subscriber does not exist."""
        subscriber_jsons: list[bytes] = []
        for block, group in groupby(subscriber_ids, self._find_block):
            ids = list(group)
            subscriber_jsons += (
                [self._json_by_id[subscriber_id] for subscriber_id in ids] if block is None else block.build_jsons(ids)
            )
        return subscriber_jsons

    def read(self, subscriber_id: int) -> dict[str, Any]:
        """Return a subscriber as a dict. Raise KeyError if the subscriber does not exist."""
        block = self._find_block(subscriber_id)
        subscriber_json = self._json_by_id[subscriber_id] if block is None else block.build_jsons((subscriber_id,))[0]
        subscriber: dict[str, Any] = orjson.loads(subscriber_json)
        return subscriber

    def find_base_id(self, subscriber_id: int) -> int:
        """Return the Id of the subscriber's base."""
        block = self._find_block(subscriber_id)
        return int(self.read(subscriber_id)["Base"]["Id"]) if block is None else block.base_id

    def list_visible_ids(self, base_id: int | None = None) -> list[int]:
        """Return the sorted ids of all visible subscribers, or of the visible subscribers of one base. The caller must
        not change the list. Later changes of the store also change this list."""
        return self._visible_ids.get(base_id, [])

    def is_visible(self, subscriber_id: int) -> bool:
        """Return whether the list shows the subscriber."""
        return subscriber_id in self and subscriber_id not in self._hidden_ids

    def find_visible_ids(
        self, matches: Callable[[dict[str, Any]], bool], *, reads_only_person_fields: bool
    ) -> list[int]:
        """Return the sorted ids of all visible subscribers that match. `reads_only_person_fields` means that `matches`
        reads only fields that `SyntheticSubscribers.select` allows. Then the search of a million subscribers takes only
        a tenth of a second."""
        if not reads_only_person_fields:
            return [subscriber_id for subscriber_id in self._visible_ids[None] if matches(self.read(subscriber_id))]
        ids = [
            subscriber_id
            for subscriber_id in self._json_by_id
            if subscriber_id not in self._hidden_ids and matches(self.read(subscriber_id))
        ]
        for block in self._seeded_blocks:
            ids += [
                subscriber_id
                for subscriber_id in block.select(matches)
                if subscriber_id not in self._json_by_id and subscriber_id not in self._removed_ids
            ]
        return sorted(ids)

    def count_by_base(self) -> dict[int | None, int]:
        """Return the number of visible subscribers of each base."""
        return {base_id: len(ids) for base_id, ids in self._visible_ids.items()}

    # Searches that also find hidden subscribers

    def find_ids_by_phone(self, phone: str) -> list[int]:
        """Return the ids of the subscribers that are stored as JSON and have this phone number."""
        return [stored_id for stored_id in self._json_by_id if self.read(stored_id).get("Phone") == phone]

    def find_ids_by_key(self, field: str, text: str) -> list[int]:
        """Return the ids of all subscribers whose Email or ClientUserId (`field`) is the text. Case does not matter."""
        key = fold_key(text)
        seeded_ids = (
            block.find_id_by_email(key) if field == "Email" else block.find_id_by_client_user_id(key)
            for block in self._seeded_blocks
        )
        return self._ids_by_key[field].get(key, []) + [
            subscriber_id
            for subscriber_id in seeded_ids
            if subscriber_id is not None and self._find_block(subscriber_id) is not None
        ]

    def find_ids_by_email_part(self, text: str) -> list[int]:
        """Return the ids of all subscribers whose email contains the trimmed text. Case does not matter."""
        key = fold_key(text)
        matching_ids = [
            subscriber_id for email, ids in self._ids_by_key["Email"].items() if key in email for subscriber_id in ids
        ]
        matching_ids += [
            subscriber_id
            for block in self._seeded_blocks
            for subscriber_id in block.ids
            if key in block.build_email(subscriber_id)
        ]
        return sorted(subscriber_id for subscriber_id in matching_ids if subscriber_id in self)

    def find_by_identity(self, subscriber: dict[str, Any], base_id: int, identity_switch: str) -> list[int]:
        """Return the sorted ids of the base's subscribers that have this subscriber's identity."""
        identity = find_identity(subscriber, identity_switch)
        return sorted(
            subscriber_id
            for subscriber_id in (self.find_ids_by_key(*identity) if identity is not None else ())
            if self.find_base_id(subscriber_id) == base_id
            and find_identity(self.read(subscriber_id), identity_switch) == identity
        )

    def list_duplicates(self, identity_switch: str) -> list[dict[str, Any]]:
        """Return each identity that several subscribers of a base have, with the keys `base_id`, `field`, `value` and
        `ids`."""
        ids_by_identity: dict[tuple[int, str, str], set[int]] = {}
        for field, index in self._ids_by_key.items():
            for ids in (self.find_ids_by_key(field, key) for key in index):
                for subscriber_id in ids if len(ids) > 1 else ():
                    identity = find_identity(self.read(subscriber_id), identity_switch)
                    if identity is not None:
                        ids_by_identity.setdefault((self.find_base_id(subscriber_id), *identity), set()).add(
                            subscriber_id
                        )
        return [
            {"base_id": base_id, "field": field, "value": value, "ids": sorted(ids)}
            for (base_id, field, value), ids in ids_by_identity.items()
            if len(ids) > 1
        ]

    def search(self, text: str, count: int) -> list[int]:
        """Return at most `count` ids: first the ids of subscribers with this email, ClientUserId or Id. Then come the
        ids of the latest subscribers whose JSON contains the text. Case does not matter."""
        searched_ids = islice(
            chain(reversed(self._json_by_id), *(reversed(block.ids) for block in self._seeded_blocks)),
            _MAX_SEARCHED_SUBSCRIBERS,
        )
        ids_newest_first = (subscriber_id for subscriber_id in searched_ids if subscriber_id in self)
        if not text:
            return list(islice(ids_newest_first, count))
        requested_id = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        exactly_matching_ids = [
            *self.find_ids_by_key("Email", text),
            *self.find_ids_by_key("ClientUserId", text),
            *([requested_id] if requested_id in self else []),
        ]
        text_part = orjson.dumps(text.lower())[1:-1].decode()
        matching_ids = (
            subscriber_id
            for subscriber_id in ids_newest_first
            if text_part in orjson.dumps(self.read(subscriber_id)).decode().lower()
        )
        return list(islice(dict.fromkeys(chain(exactly_matching_ids, islice(matching_ids, count))), count))
