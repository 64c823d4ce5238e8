"""Finds the subscribers of a base on the service's list, and keeps the subscribers of a sweep by base.

A sweep is a reading of the whole list. One sweep serves every base of a run, also a base that only later rows name. The
subscribers of the sweep are in a temporary file, about 60 bytes each.
"""

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from connector.errors import ConfigurationError, RunAborted
from connector.fields import FIELD_BY_NAME, fold_base_name
from connector.ledger.store import Base
from connector.listing.access import IDENTITY_FIELDS_AND_KEYS, ListAccess
from connector.spool import SpooledValues
from connector.subscribers.identity import InactiveIdentities, digest_identity

ListedBase = tuple[int, str | None]
"""The Id and the Name of a base, as the list shows them."""

_MAX_STORED_SUBSCRIBERS = 200_000
"""If the list has at most this many subscribers, all their values are stored, in a temporary file of up to 130 MB. So a
comparison does not read the list a second time."""


def has_identity(wire_object: Mapping[str, Any], identities: Collection[bytes]) -> bool:
    """Return whether a listed subscriber has one of these identities (digests) in any identity field."""
    texts = ((name, wire_object.get(key)) for name, key in IDENTITY_FIELDS_AND_KEYS)
    return any(isinstance(text, str) and digest_identity(name, text) in identities for name, text in texts)


def may_be_in_base(wire_object: Mapping[str, Any], identities: Collection[bytes], base_id: int | None) -> bool:
    """Return whether a listed subscriber has one of these identities (digests) and may be in this base. A missing Base
    matches every base, and so does a `base_id` of None."""
    base = wire_object.get("Base")
    listed_id = base.get("Id") if isinstance(base, dict) else None
    if None not in (base_id, listed_id) and listed_id != base_id:
        return False
    return has_identity(wire_object, identities)


class BaseReader:
    """Reads the subscribers of one base from pages of the list: the digests of their identities, and their ids.

    `fields` are the identity fields to read (email, client_user_id). Inactive subscribers of every base are recorded in
    `inactive_identities`.

    Raises ConfigurationError if several bases have the job's base name (trimmed and case-folded), or if a row does not
    show its base. Raises RunAborted if the base no longer has the job's base name.
    """

    def __init__(
        self,
        base: Base,
        requested_base_name: str | None,
        fields: Sequence[str],
        inactive_identities: InactiveIdentities | None = None,
        *,
        treats_missing_is_active_as_inactive: bool = False,
    ) -> None:
        """With `treats_missing_is_active_as_inactive`, a subscriber without a readable IsActive counts as inactive."""
        self._treats_missing_is_active_as_inactive = treats_missing_is_active_as_inactive
        self._inactive_identities = inactive_identities
        self._requested_base_name = requested_base_name
        self._folded_name = None if requested_base_name is None else fold_base_name(requested_base_name)
        self._fields_and_keys = [(name, FIELD_BY_NAME[name].path[0]) for name in fields]
        self.service_id = base.service_id

    def read(self, wire_objects: Sequence[dict[str, Any]]) -> list[tuple[bytes, int]]:
        """Return the identities of the base's subscribers, each with the id of its subscriber."""
        self.record_inactive_subscribers(wire_objects)
        return [
            identity_and_id
            for wire_object in wire_objects
            if self.is_of_base(wire_object.get("Base"))
            for identity_and_id in self.read_identities(wire_object)
        ]

    def record_inactive_subscribers(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Record the identities of inactive subscribers of any base."""
        if self._inactive_identities is None:
            return
        for wire_object in wire_objects:
            is_active = wire_object.get("IsActive")
            if is_active is False or (self._treats_missing_is_active_as_inactive and is_active is not True):
                for identity, _ in self.read_identities(wire_object):
                    self._inactive_identities.add(identity)

    def read_identities(self, wire_object: dict[str, Any]) -> list[tuple[bytes, int]]:
        """Return the identities of this subscriber, each with the subscriber's id. The base does not matter."""
        texts = [(name, wire_object.get(key)) for name, key in self._fields_and_keys]
        return [
            (digest_identity(name, text), int(wire_object["Id"]))
            for name, text in texts
            if isinstance(text, str) and text.strip()
        ]

    def is_of_base(self, base: object) -> bool:
        """Return whether a listed `Base` is this base. Raises the errors that the docstring of the class names. Also
        raises ConfigurationError in two cases: the `Base` has no Id, or the `Base` has no name and the Id of this base
        is not known yet."""
        if not isinstance(base, dict):
            base = {}
        base_id, base_name = base.get("Id"), base.get("Name")
        has_id = type(base_id) is int
        if self._requested_base_name is not None and isinstance(base_name, str):
            is_base_unclear = not has_id and fold_base_name(base_name) == self._folded_name
        else:
            is_base_unclear = not has_id or self.service_id is None
        if is_base_unclear:
            advice = "Set `load.look: none` to create without looking, which creates existing subscribers a second time"
            if self._requested_base_name is not None:
                advice = "Give the base by its id. The id is enough if the list shows the Ids of bases"
            requested_base = self._requested_base_name if self._requested_base_name is not None else self.service_id
            raise ConfigurationError(
                f"the list does not show the {'name' if has_id else 'Id'} of a subscriber's base, so the connector "
                f"cannot find out which subscribers are in the base {requested_base}. No more rows were sent. {advice}"
            )
        if self._requested_base_name is None or not isinstance(base_name, str):
            return bool(base_id == self.service_id)
        if fold_base_name(base_name) == self._folded_name and isinstance(base_id, int):
            if self.service_id not in (None, base_id):
                raise ConfigurationError(
                    f"several bases are called {self._requested_base_name} (ids {self.service_id}, {base_id}): give "
                    "the base by its id"
                )
            self.service_id = base_id
            return True
        if self.service_id is not None and base_id == self.service_id:
            raise RunAborted(
                f"the base {base_id} is no longer called {self._requested_base_name}: give the base by its id"
            )
        return False


class SweptRows:
    """A sink that keeps the subscribers of a reading of the list. Only the subscribers of the last sweep count.

    The sink stores the identities and the Ids of subscribers in the bases of `accesses`, or with `keeps_other_bases` in
    all bases. For subscribers with one of `identities`, the sink also stores the values, for a comparison (architecture
    4.12). If the list has up to 200,000 subscribers, the sink stores the values of all subscribers, because later
    chunks may have rows for them.
    """

    def __init__(
        self, accesses: Sequence[ListAccess], identities: Collection[bytes] = (), *, keeps_other_bases: bool = False
    ) -> None:
        self._state = accesses[0].state
        self._readers = [build_reader(other_access, [other_access.policy.identity_field]) for other_access in accesses]
        self._identities = frozenset(identities)
        self._keeps_other_bases = keeps_other_bases
        list_stats = self._state.list_stats
        self._keeps_values = (
            list_stats is not None
            and list_stats.total_count is not None
            and list_stats.total_count <= _MAX_STORED_SUBSCRIBERS
        )
        self._values = SpooledValues()
        self._batch_indexes_by_base: dict[ListedBase, list[int]] = defaultdict(list)
        self._is_of_run_by_base: dict[ListedBase, bool] = {}
        # For each base: 8 bytes of the digest of each email, and the ids of the subscribers.
        self._emails_by_base: dict[ListedBase, tuple[array[int], array[int]]] | None = None
        if accesses[0].policy.identity_field == "client_user_id":
            self._emails_by_base = defaultdict(lambda: (array("Q"), array("q")))
        # The number of emails of a base when its array was last sorted.
        self._sorted_email_counts: dict[ListedBase, int] = {}
        self.started_at = accesses[0].clock.now().timestamp()  # Unix seconds
        self.last_id = 0

    @property
    def bases(self) -> Sequence[ListedBase]:
        """The bases whose subscribers are stored."""
        return list(self._batch_indexes_by_base)

    @property
    def batch_count(self) -> int:
        """The number of stored batches of rows, which is the index of the next batch. A page adds a batch for each of
        its bases."""
        return sum(len(batch_indexes) for batch_indexes in self._batch_indexes_by_base.values())

    def start_sweep(self, sweep_number: int) -> None:
        """Delete the stored rows of the previous sweep, because the new sweep lists the same subscribers again."""
        self._values.close()
        self._batch_indexes_by_base.clear()
        if self._emails_by_base is not None:
            self._emails_by_base.clear()
            self._sorted_email_counts.clear()
        self.last_id = 0

    def receive_rows(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Store the subscribers of a page. Raises RunAborted if the disk is full, or if another base now has the name
        of a base of the run. Raises ConfigurationError if several bases have the name.
        """
        identities_and_ids_by_base: dict[ListedBase, list[tuple[bytes, int]]] = defaultdict(list)
        rows_to_store, rows_of_other_bases, reader = list[dict[str, Any]](), list[dict[str, Any]](), self._readers[0]
        reader.record_inactive_subscribers(wire_objects)
        for wire_object in wire_objects:
            listed_base = wire_object.get("Base")
            if not isinstance(listed_base, dict) or type(listed_base.get("Id")) is not int:
                for base_reader in self._readers:
                    # If it is unclear whether this base is a base of the run, `is_of_base` raises an error.
                    base_reader.is_of_base(listed_base)
                continue
            base_name = listed_base.get("Name")
            base = listed_base["Id"], base_name if isinstance(base_name, str) else None
            if not (self._is_base_of_run(base) or self._keeps_other_bases):
                rows_of_other_bases.append(wire_object)
                continue
            identities_and_ids = reader.read_identities(wire_object)
            identities_and_ids_by_base[base] += identities_and_ids
            if (
                self._emails_by_base is not None
                and isinstance(email := wire_object.get("Email"), str)
                and email.strip()
            ):
                digests, ids = self._emails_by_base[base]
                digests.append(_compute_short_digest(digest_identity("email", email)))
                ids.append(wire_object["Id"])
            if self._keeps_values or any(identity in self._identities for identity, _ in identities_and_ids):
                rows_to_store.append(wire_object)
        if rows_to_store:
            self._state.shown_subscribers.store(rows_to_store)
        if rows_of_other_bases and self._keeps_values:
            self._state.subscribers_of_other_bases.store(rows_of_other_bases)
        self.last_id = max(self.last_id, max((wire_object["Id"] for wire_object in wire_objects), default=0))
        for base, identities_and_ids in identities_and_ids_by_base.items():
            values = [
                value for identity, subscriber_id in identities_and_ids for value in (identity.hex(), subscriber_id)
            ]
            self._batch_indexes_by_base[base].append(self._values.add([values]))

    def read(self, base: ListedBase, *, first_batch_index: int = 0) -> Iterator[list[tuple[bytes, int]]]:
        """Yield the identities and ids of the base's subscribers, page by page. Begin with the batch
        `first_batch_index`. To yield only the batches that were added since an earlier call, set `first_batch_index` to
        the value that `batch_count` had then."""
        for batch_index in self._batch_indexes_by_base[base]:
            if batch_index >= first_batch_index:
                values = self._values.read(batch_index)
                yield [(bytes.fromhex(values[index]), values[index + 1]) for index in range(0, len(values), 2)]

    def find_ids_by_email(self, base: ListedBase, identities: Sequence[bytes]) -> dict[bytes, int]:
        """Return the Id of one subscriber for each of these emails (digests) that the base has. Only a listing by
        client_user_id keeps emails."""
        if self._emails_by_base is None or base not in self._emails_by_base:
            return {}
        digests, ids = (np.array(column) for column in self._emails_by_base[base])
        if self._sorted_email_counts.get(base) != len(digests):  # not sorted yet, or the listing was renewed
            sorting_indexes = np.argsort(digests, kind="stable")
            digests, ids = digests[sorting_indexes], ids[sorting_indexes]
            self._emails_by_base[base] = array("Q", digests.tobytes()), array("q", ids.tobytes())
            self._sorted_email_counts[base] = len(digests)
        requested_digests = np.array([_compute_short_digest(identity) for identity in identities], dtype=np.uint64)
        indexes = np.minimum(np.searchsorted(digests, requested_digests), len(digests) - 1)
        found_mask = digests[indexes] == requested_digests
        return {
            identity: int(ids[index])
            for identity, index, is_found in zip(identities, indexes, found_mask, strict=True)
            if is_found
        }

    def _is_base_of_run(self, base: ListedBase) -> bool:
        if base not in self._is_of_run_by_base:
            base_id, base_name = base
            # Call every reader, because a reader raises an error if its base has another name or another Id.
            match_results = [reader.is_of_base({"Id": base_id, "Name": base_name}) for reader in self._readers]
            self._is_of_run_by_base[base] = any(match_results)
        return self._is_of_run_by_base[base]


def _compute_short_digest(digest: bytes) -> int:
    """Return 8 bytes of a digest as a number. In 1 of 400,000 listings of ten million subscribers, two subscribers have
    the same number."""
    return int.from_bytes(digest[:8], "little")


def build_reader(access: ListAccess, fields: Sequence[str]) -> BaseReader:
    """Return a reader for the subscribers of the base of `access`."""
    return BaseReader(
        access.ledger_writer.base,
        access.requested_base_name,
        fields,
        access.inactive_identities,
        treats_missing_is_active_as_inactive=access.policy.is_suppressing_inactive,
    )
