"""The invented people: they have addresses of a reserved domain, and a list is the same tomorrow."""

import hashlib
from itertools import islice
from random import Random

from connector.fields import normalise_email
from connector.sandbox.people import SyntheticSubscribers, draw_people


def test_no_two_people_share_an_address_in_any_spelling_and_all_are_in_reserved_domains() -> None:
    people = list(islice(draw_people(Random(7)), 3000))
    assert len({normalise_email(person.email) for person in people}) == len(people)
    assert len({person.client_user_id for person in people}) == len(people)
    hosts = {person.email.rpartition("@")[2] for person in people}
    assert all(f".{host}".endswith((".example.com", ".example.org", ".example.net")) for host in hosts)


def test_seeded_subscribers_are_written_as_ever() -> None:
    """A list that was read once must read the same tomorrow, past the period of everything that recurs."""
    block = SyntheticSubscribers(first_id=100_001, count=20_000, step=3, base_id=7, base_name='Base "7"')
    written = hashlib.sha256(b",".join(block.write(block.ids))).hexdigest()
    assert written == "0f53ac5561d179dcb84a1b6adb90de84c12a0f2e7f80b7a96d50055d2db8adec"
