"""The invented people of the sandbox: their addresses are in reserved domains, and seeded lists never change."""

import hashlib

from connector.sandbox.people import SyntheticSubscribers


def test_the_seeded_subscribers_are_the_same_as_in_earlier_versions() -> None:
    """The list of a seeded sandbox must stay the same in later versions. The persons
    repeat after 2,000 subscribers, so this test compares every person."""
    block = SyntheticSubscribers(first_id=100_001, count=20_000, step=3, base_id=7, base_name='Base "7"')
    digest = hashlib.sha256(b",".join(block.build_jsons(block.ids))).hexdigest()
    assert digest == "0f53ac5561d179dcb84a1b6adb90de84c12a0f2e7f80b7a96d50055d2db8adec"
