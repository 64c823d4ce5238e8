"""The invented people of the sandbox: their addresses are in reserved domains, and seeded lists never change."""

import hashlib
from itertools import islice
from random import Random

from connector.fields import normalise_email
from connector.sandbox.people import SyntheticSubscribers, draw_people


def test_the_addresses_of_people_are_different_in_every_spelling_and_in_reserved_domains() -> None:
    people = list(islice(draw_people(Random(7)), 3000))
    assert len({normalise_email(person.email) for person in people}) == len(people)
    assert len({person.client_user_id for person in people}) == len(people)
    hosts = {person.email.rpartition("@")[2] for person in people}
    assert all(f".{host}".endswith((".example.com", ".example.org", ".example.net")) for host in hosts)


def test_the_seeded_subscribers_are_the_same_as_in_earlier_versions() -> None:
    """The list of a seeded sandbox must stay the same in later versions. The tested count is larger than the
    period with which any value repeats."""
    block = SyntheticSubscribers(first_id=100_001, count=20_000, step=3, base_id=7, base_name='Base "7"')
    digest = hashlib.sha256(b",".join(block.build_jsons(block.ids))).hexdigest()
    assert digest == "0f53ac5561d179dcb84a1b6adb90de84c12a0f2e7f80b7a96d50055d2db8adec"
