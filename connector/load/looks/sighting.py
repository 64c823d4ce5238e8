"""Whom a look at the service looked for, and what it saw of them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody to be looked for: the digest of the identity, its field (email, client_user_id), its text as sent.

    A create of ours that took effect shows by the spellings that were sent or would be normal. `in_any_spelling`: they
    are missed only if they are not there in other capitals either, as people may be who came by another way.
    """

    identity: bytes
    field: str
    value: str = dataclasses.field(repr=False)
    in_any_spelling: bool = False


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one look says. Whoever is neither `found` nor `missed` could not be told by it.

    `found` maps identities to the subscriber ids that bear it in the base, smallest first; `missed` are those who were
    not there, by an answer that is known to be whole. Of the subscribers confirmed by this run, the latest that the
    look showed was confirmed at `latest_seen_at` (-inf: none was seen), and the look proves that the service shows
    people `lag_s` late at least (0: no sign of that). `started_at` and `latest_seen_at` are monotonic.
    """

    found: Mapping[bytes, tuple[int, ...]]
    missed: frozenset[bytes]
    latest_seen_at: float
    lag_s: float
    started_at: float
