"""Which fields of a changed row differ, as far as the ledger knows what was sent."""

import pytest

from connector.ledger import KeptMapping, SentFields
from connector.load import Row
from connector.load.drift import Change, Told, build_change
from connector.plan.field_digests import MappedFields

ROW = Row(3, "people.csv", ("email", "name"), ("ann@x.org", "Anna"))
FIELDS = MappedFields((("first_name", "a"), ("phone", "a")))
MAPPING = KeptMapping(1, FIELDS)
TOLD = Told(b"i" * 16, "ann@x.org", b"f" * 8, b"aabb", {"email": "ann@x.org", "first_name": "Anna", "phone": "1"})
UNKNOWN = Change(ROW, "ann@x.org", b"i" * 16, None)


def test_a_field_that_drifted_comes_with_its_value_and_the_two_bytes_of_what_was_sent() -> None:
    assert build_change(ROW, TOLD, SentFields(FIELDS, b"xxbb"), MAPPING) == Change(
        ROW, "ann@x.org", b"i" * 16, ("first_name",), (), {"first_name": "Anna"}, {"first_name": b"xx"}
    )


def test_a_row_that_differs_by_the_mapping_alone_says_so() -> None:
    earlier = MappedFields((("first_name", "other"), ("phone", "a")))
    change = build_change(ROW, TOLD, SentFields(earlier, b"xxbb"), MAPPING)
    assert (change.drifted, change.by_mapping, change.is_by_mapping_alone) == ((), ("first_name",), True)


@pytest.mark.parametrize(
    ("sent", "mapping"),
    [
        (None, MAPPING),  # an older version sent it
        (SentFields(None, b"xxbb"), MAPPING),  # a newer one wrote it in its own way
        (SentFields(FIELDS, b"xxbb"), None),
        (SentFields(FIELDS, b"aabb"), MAPPING),  # two values have the same two bytes by chance
    ],
)
def test_where_it_cannot_be_told_no_field_is_named(sent: SentFields | None, mapping: KeptMapping | None) -> None:
    change = build_change(ROW, TOLD, sent, mapping)
    assert change == UNKNOWN
    assert not change.is_by_mapping_alone
