"""The ids that a run has seen on the list and in answers, and whether an id is older than a create."""

from connector.listing.access import KnownIds


def test_an_id_that_the_list_showed_before_a_create_is_older_than_the_create() -> None:
    known_ids = KnownIds()
    known_ids.add_shown_ids([1], shown_at=1.0)
    known_ids.record_first_create()
    known_ids.add_shown_ids([2], shown_at=2.0)
    known_ids.add_shown_ids([2, 3], shown_at=3.0)  # the first time counts
    known_ids.add_answered_id(4)
    assert [subscriber_id for subscriber_id in range(6) if known_ids.has_id(subscriber_id, sent_at=2.5)] == [1, 2, 4]
    assert [subscriber_id for subscriber_id in range(6) if known_ids.was_shown_before_creates(subscriber_id)] == [1]


def test_every_id_remains_known_after_many_later_ids() -> None:
    known_ids = KnownIds()
    known_ids.record_first_create()
    ids = range(1, 50_001)
    for subscriber_id in ids[::2]:
        known_ids.add_answered_id(subscriber_id)
    known_ids.add_shown_ids(ids[1::2], shown_at=1.0)
    assert [subscriber_id for subscriber_id in ids if not known_ids.has_id(subscriber_id, sent_at=1.0)] == []
    assert not known_ids.has_id(50_001, sent_at=1.0)
