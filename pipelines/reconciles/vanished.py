"""Those whom the ledger has confirmed and the service no longer lists: told, and forgotten if that was asked for."""

from collections.abc import Iterator, Sequence

import numpy as np

from connector.errors import RunAborted
from connector.ledger import Ledger
from connector.listing import Ask
from connector.reconcile import ListedPeople
from connector.service import ListQuery
from connector.states import State
from connector.subscribers import split_digests
from pipelines.loads.bases import describe_base
from pipelines.reconciles.base_side import BaseSide
from pipelines.reconciles.source_side import match_again

_LOOKED_UP = 50  # of those who have vanished (architecture 4.10)


def describe_known(sides: Sequence[BaseSide]) -> Iterator[str]:
    """What a person should know of those whom the ledger has confirmed."""
    for side in sides:
        if _is_emptied(side):
            yield (
                f"{describe_base(side.base)}: none of the {side.known:,} subscribers that the ledger knows is listed: "
                "this token sees another account, or the base was emptied"
            )
    if renamed := sum(side.renamed for side in sides):
        yield (
            f"{renamed:,} that the ledger knows are listed with their ids under another identity, or in another base: "
            "they have not vanished, and are not forgotten"
        )


def refuse_emptied(sides: Sequence[BaseSide], *, is_sure: bool) -> None:
    """Raise RunAborted if all who are known of a base are gone (architecture 4.10), unless a person `is_sure`."""
    emptied = [side for side in sides if _is_emptied(side) and len(side.vanished)]
    if emptied and not is_sure:
        raise RunAborted(
            f"no subscriber was forgotten: none that the ledger knows is listed in "
            f"{', '.join(describe_base(side.base) for side in emptied)}. This token sees another account, or the base "
            "was emptied. Look at the token and at the base; if the subscribers were erased on purpose, say --yes"
        )


async def find_there(ask: Ask, sides: Sequence[BaseSide]) -> tuple[int, int]:
    """How many of some who have vanished are in the service, asked for by Id (service-api.md 4.3), and how many were
    asked for.

    A service that ignores the filter tells nothing, and is asked once.
    """
    ids = np.concatenate([side.vanished_ids for side in sides])
    sample = ids[:: max(1, len(ids) // _LOOKED_UP)][:_LOOKED_UP].tolist()
    there = asked = 0
    for subscriber_id in sample:
        page = await ask(ListQuery(limit=1, id=subscriber_id))
        shown = [] if page is None else [row.get("Id") for row in page.subscribers]
        if any(each != subscriber_id for each in shown):
            break
        asked += page is not None
        there += bool(shown)
    return there, asked


def forget(sides: Sequence[BaseSide], listed: ListedPeople, ledger: Ledger, identity: str) -> int:
    """Forget those of the vanished whom this other, complete listing does not show either; how many.

    All of them or nobody. Raises LedgerError, and RunAborted as `find_base` does.
    """
    gone = [(side.base, side.vanished[match_again(side, listed, ledger, identity)]) for side in sides]
    with ledger.transaction():
        for base, identities in gone:
            ledger.mark_forgotten(base, State.CONFIRMED, split_digests(identities))
    return sum(len(identities) for _, identities in gone)


def _is_emptied(side: BaseSide) -> bool:
    return bool(side.known) and not side.there
