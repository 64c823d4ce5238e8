"""Looks at a few whose source has changed, for what was sent of them: only what the list still has can be told.

Nothing is decided by it. A value is what was sent when it has the two bytes that the ledger keeps of that; a filter
that shows too much or too little tells less, and no more than that.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from connector.ledger import Entry
from connector.load.drift import Change
from connector.load.looks.listed import bears_identity
from connector.load.looks.lookups import ask, look_up_together
from connector.load.session import Session
from connector.plan.field_digests import compute_salts, digest_value
from connector.protocol import ListQuery
from connector.protocol.wire import read_field

SentValues = Mapping[str, object]
"""What was sent, by field name."""

SentOf = dict[tuple[int, bytes], SentValues]
"""By the key of the base, and the digest of the identity."""


async def look_for_sent(session: Session, changes: Sequence[Change]) -> SentOf:
    """What was sent of the drifted fields of those of these who are in the session's base, where the list still has it.

    Each is asked for by Id (api.md 4.3), the first one alone: where the service ignores that filter, the one page that
    it gives is all that is looked at. Raises ListFailed, LedgerError, and RunAborted when the run is to stop.
    """
    base = session.journal.base
    changes = [each for each in changes if each.base_key == base.key]
    entries = await session.journal.ask(lambda ledger: ledger.find_entries(base, [each.digest for each in changes]))
    by_id = dict(_pair_with_ids(changes, entries))
    session.activity = f"looking at {len(by_id):,} who have changed in the source"
    rows = await session.until_stopped(_show(session, list(by_id)))
    salts = compute_salts([each.identity for each in changes], session.policy.identity)
    salt_of = {each.digest: salt for each, salt in zip(changes, salts, strict=True)}
    return {
        (base.key, change.digest): _read_sent(row, change, salt_of[change.digest])
        for row in rows
        if (change := by_id.get(row["Id"])) is not None
        and _is_of_base(row, base.service_id)
        and bears_identity(row, change.digest)
    }


def _pair_with_ids(changes: Sequence[Change], entries: Mapping[bytes, Entry]) -> Iterator[tuple[int, Change]]:
    for each in changes:
        entry = entries.get(each.digest)
        if entry is not None and entry.subscriber_id is not None:
            yield entry.subscriber_id, each


async def _show(session: Session, ids: Sequence[int]) -> list[dict[str, Any]]:
    """The rows that the list shows for these ids, and perhaps others."""
    if not ids:
        return []
    first = (await ask(session, ListQuery(id=ids[0]))).rows
    if any(row["Id"] != ids[0] for row in first):
        return list(first)
    looks = [partial(ask, session, ListQuery(id=each)) for each in ids[1:]]
    shown = await look_up_together(session, looks)
    return [*first, *(row for answer in shown for row in answer.rows)]


def _is_of_base(row: Mapping[str, Any], service_id: int | None) -> bool:
    base = row.get("Base")
    return isinstance(base, dict) and base.get("Id") == service_id


def _read_sent(row: Mapping[str, Any], change: Change, salt: np.uint64) -> dict[str, object]:
    """The listed values that are what was sent, by their two bytes."""
    listed = {name: read_field(row, name) for name in change.sent}
    return {
        name: value
        for name, value in listed.items()
        if value is not None and digest_value(name, value, salt) == change.sent[name]
    }
