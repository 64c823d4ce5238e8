"""Whether two neighbouring pages join: the rows they share must stand in both in the same order.

A joint is where a list that changes between two requests loses people; it refuses to guess what lies in a gap.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from connector.pages.id_set import IdArray, Mask


class Bond(Enum):
    """How a page hangs together with the one before it."""

    MATCHED = "matched"  # they share rows, in the same order, and few came or went among them
    BEHIND = "behind"  # it lies wholly in what was read before: much was inserted since
    GAP = "gap"  # they share nothing: somebody may stand between them
    MOVED = "moved"  # they share rows, in another order or far apart: the order is not stable


@dataclass(frozen=True, slots=True)
class Joint:
    """How a page joins, and the changes that it shows: net `shift` of ranks before the first shared row, of which
    `appeared_before` are new in the page; rows that `appeared` or `vanished` among the shared ones."""

    bond: Bond
    shift: int = 0
    appeared_before: int = 0
    appeared: int = 0
    vanished: int = 0


def decide_joint(before: IdArray, before_offset: int, ids: IdArray, offset: int, fresh: Mask) -> Joint:
    """Compare a page with the one before it; `fresh` marks the ids not seen earlier in the sweep."""
    places = _places(before, ids)
    shared = np.flatnonzero(places >= 0)
    if not len(shared):
        return Joint(Bond.BEHIND if 2 * np.count_nonzero(fresh) < len(ids) else Bond.GAP)
    first, last = int(shared[0]), int(shared[-1])
    there = places[shared]
    appeared = int(np.count_nonzero(fresh[first : last + 1]))
    # A page that ends within the one before it says nothing of the rows behind its own last.
    reach = int(there[-1]) + 1 if last == len(ids) - 1 else len(before)
    vanished = reach - int(there[0]) - len(shared)
    joint = Joint(
        Bond.MATCHED,
        shift=(offset + first) - (before_offset + int(there[0])),
        appeared_before=int(np.count_nonzero(fresh[:first])),
        appeared=appeared,
        vanished=vanished,
    )
    # Where as many came or went as stayed, the shared rows prove nothing: so look pages that were sorted one by one.
    is_same_order = bool((np.diff(there) > 0).all())
    changes = joint.appeared_before + appeared + vanished
    return joint if is_same_order and len(shared) > changes else Joint(Bond.MOVED)


def _places(before: IdArray, ids: IdArray) -> IdArray:
    """For each id its index in `before`, or -1."""
    sorter = np.argsort(before, kind="stable")
    slots = np.minimum(np.searchsorted(before, ids, sorter=sorter), len(before) - 1)
    places = sorter[slots]
    found: IdArray = np.where(before[places] == ids, places, -1)
    return found


def decide_direction(ids: IdArray) -> int:
    """1 if the ids strictly rise, -1 if they strictly fall, 0 if neither; fewer than two rise."""
    rises = ids[1:] > ids[:-1]
    if rises.all():
        return 1
    return -1 if (ids[1:] < ids[:-1]).all() else 0
