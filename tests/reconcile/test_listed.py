"""What is kept of a listing: whoever is wanted, with all that is compared, however odd."""

import resource
from typing import Any

import numpy as np
import pytest

from connector.errors import RunAborted
from connector.kept_values import KeptValues
from connector.reconcile import ListedRows
from connector.subscribers.identity import IDENTITY_BYTES, digest_identity, join_digests


def build_wire(subscriber_id: int, email: object, base: object = None, **fields: object) -> dict[str, Any]:
    return {"Id": subscriber_id, "Base": {"Id": 7, "Name": "News"} if base is None else base, "Email": email, **fields}


def find(listed: ListedRows, email: str) -> tuple[tuple[int, ...], list[tuple[str, list[Any]]]]:
    """The ids of an address in all bases, and what is read at their places."""
    matching = listed.match(listed.bases)
    (number,) = matching.find(join_digests([digest_identity("email", email)], IDENTITY_BYTES)).tolist()
    person = matching.read(number)
    return person.ids, [listed.read(index) for index in person.indices]


def test_whoever_is_wanted_is_kept_as_they_are_listed() -> None:
    listed = ListedRows("email", ("first_name", "address_city", "tags"), lambda base: base[0] == 7)
    listed.start_sweep(1)
    listed.take([build_wire(3, " Ann@X.org", FirstName="Ann", Address={"City": "Ulm"}, Tags=["a"])])
    listed.take([])
    listed.take([build_wire(1, "bob@x.org", {"Id": 8, "Name": "Shop"}), build_wire(2, "ANN@x.org", Address="none")])
    assert find(listed, "ann@x.org") == (
        (2, 3), [("ANN@x.org", [None, None, None]), (" Ann@X.org", ["Ann", "Ulm", ["a"]])],
    )  # fmt: skip
    assert listed.bases == [(7, "News")]
    assert len(listed.match(listed.bases)) == 1
    assert listed.collect_ids().tolist() == [1, 2, 3]
    listed.close()


def test_who_has_no_identity_is_kept_by_id_alone() -> None:
    listed = ListedRows("email", (), lambda _base: True)
    listed.take([build_wire(number, email) for number, email in enumerate([None, "", " ", 5, "ann@x.org"], 1)])
    listed.take([{"Id": 6, "Base": "News", "Email": "bob@x.org"}, {"Id": 7}])
    assert listed.collect_nameless([(7, "News")]).tolist() == [1, 2, 3, 4]
    assert listed.collect_nameless(listed.bases).tolist() == [1, 2, 3, 4, 7]
    assert listed.collect_nameless([(8, "Shop")]).tolist() == []
    assert listed.collect_ids().tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert len(listed.match([(7, "News")])) == 1
    listed.close()


def test_another_sweep_begins_anew() -> None:
    listed = ListedRows("email", ("first_name",), lambda _base: True)
    for sweep, name in enumerate(["Ann", "Anna"], 1):
        listed.start_sweep(sweep)
        listed.take([build_wire(5, "ann@x.org", FirstName=name), build_wire(6, None)])
    assert find(listed, "ann@x.org") == ((5,), [("ann@x.org", ["Anna"])])
    assert (listed.collect_ids().tolist(), listed.collect_nameless(listed.bases).tolist()) == ([5, 6], [6])
    listed.close()


def test_an_empty_list_has_nobody() -> None:
    listed = ListedRows("email", (), lambda _base: True)
    listed.start_sweep(1)
    assert len(listed.match([])) == 0
    assert not len(listed.collect_ids())
    listed.close()


@pytest.mark.parametrize("value", ["\ud800", {"a": [None, True, 1.5]}, "日本", "x" * 100_000])
def test_whatever_json_can_say_is_kept(value: object) -> None:
    kept = KeptValues()
    kept.add([["first"], [value], ["last"]])
    assert [kept.read(place) for place in (1, 2, 0)] == [[value], ["last"], ["first"]]
    kept.close()


def test_where_there_is_no_room_the_run_ends() -> None:
    kept, before = KeptValues(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # of every file that is written now
    try:
        with pytest.raises(RunAborted, match="TMPDIR"):
            kept.add([["x" * 100_000]])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept.close()


def test_a_million_people_take_little_memory_each() -> None:
    """Of each a digest, an id, a base and a place: bytes in columns, no objects."""
    listed = ListedRows("email", (), lambda _base: True)
    listed.take([build_wire(number, f"p{number}@x.org") for number in range(1, 1001)])
    arrays = (listed._ids[1], listed._bases[1])
    assert sum(each.nbytes for each in arrays) + len(listed._digests[0]) == 1000 * (8 + 4 + IDENTITY_BYTES)
    assert all(isinstance(each, np.ndarray) for each in arrays)
    listed.close()
