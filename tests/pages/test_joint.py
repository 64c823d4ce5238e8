"""When two pages join, and what their joint shows of the changes between them."""

import numpy as np
import pytest

from connector.pages.joint import Bond, Joint, decide_direction, decide_joint

BEFORE = [10, 20, 30, 40, 50]  # at offset 100, so its last row has rank 104


def join(ids: list[int], offset: int, seen: list[int] | None = None) -> Joint:
    known = set(BEFORE) | set(seen or ())
    fresh = np.array([each not in known for each in ids])
    return decide_joint(np.array(BEFORE), 100, np.array(ids), offset, fresh)


@pytest.mark.parametrize(
    ("ids", "offset", "joint"),
    [
        ([40, 50, 60], 103, Joint(Bond.MATCHED)),
        ([40, 50, 60], 102, Joint(Bond.MATCHED, shift=-1)),  # one vanished before
        ([30, 40, 50], 103, Joint(Bond.MATCHED, shift=1)),  # one appeared before
        ([30, 40, 45, 50, 60], 102, Joint(Bond.MATCHED, appeared=1)),
        ([30, 50, 60], 102, Joint(Bond.MATCHED, vanished=1)),
        ([25, 30, 40, 50], 102, Joint(Bond.MATCHED, shift=1, appeared_before=1)),
        ([20, 30], 101, Joint(Bond.MATCHED)),  # ends within the page before: says nothing of 40 and 50
        ([60, 70], 105, Joint(Bond.GAP)),
        ([1, 2, 3], 104, Joint(Bond.BEHIND)),
        ([50, 40, 60], 103, Joint(Bond.MOVED)),
        ([10, 60, 70, 80], 103, Joint(Bond.MOVED)),  # four of five are missing: no witness
        ([40, 41, 42, 50], 103, Joint(Bond.MOVED)),  # as many came between as stayed
    ],
)
def test_joint(ids: list[int], offset: int, joint: Joint) -> None:
    assert join(ids, offset, seen=[1, 2, 3]) == joint


@pytest.mark.parametrize(("ids", "direction"), [([1, 2, 3], 1), ([3, 2, 1], -1), ([1, 1], 0), ([1, 3, 2], 0), ([7], 1)])
def test_direction(ids: list[int], direction: int) -> None:
    assert decide_direction(np.array(ids)) == direction
