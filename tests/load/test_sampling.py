"""A few of many: the first among them, and the others spread evenly."""

from itertools import pairwise

import pytest

from connector.listing.access import LookupKey
from connector.load.refusals import RefusalSample


@pytest.mark.parametrize("number", [0, 1, 49, 50, 51, 100, 101, 1000, 12345])
def test_a_sample_is_of_all_that_came(number: int) -> None:
    sample = RefusalSample(50)
    for each in range(number):
        sample.add(LookupKey(each.to_bytes(16, "big"), "email", ""))
    kept = [int.from_bytes(key.identity, "big") for key in sample.kept]
    assert kept[:1] == list(range(number))[:1]
    assert min(number, 25) <= len(kept) <= 50
    assert len({later - earlier for earlier, later in pairwise(kept)}) <= 1
    assert number - (kept[-1] if kept else 0) <= max(1, number // 25 + 1)
