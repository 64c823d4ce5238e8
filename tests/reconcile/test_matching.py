"""The comparison of a source with a listing, against one that is written without arrays."""

from collections import defaultdict

import numpy as np
from hypothesis import given, strategies as st

from connector.reconcile import Matching, Person
from connector.subscribers.identity import IDENTITY_BYTES, Digests, join_digests

PEOPLE = st.integers(0, 12)  # few, so that they meet
LISTED = st.lists(st.tuples(PEOPLE, st.integers(1, 10**12)), unique_by=lambda each: each[1], max_size=30)
CHUNKS = st.lists(st.tuples(st.lists(PEOPLE, max_size=10), st.booleans()), max_size=5)


def digest(person: int) -> bytes:
    """Some end in NUL, which NumPy's own texts would lose."""
    return (
        bytes([person % 4, person // 4]).rjust(IDENTITY_BYTES, b"x")
        if person % 2
        else bytes([person + 1]).ljust(IDENTITY_BYTES, b"\0")
    )


def join(people: list[int]) -> Digests:
    return join_digests(map(digest, people), IDENTITY_BYTES)


def build(listed: list[tuple[int, int]]) -> Matching:
    ids = np.array([each for _, each in listed], dtype=np.int64)
    return Matching(join([person for person, _ in listed]), ids, np.arange(100, 100 + len(listed)))


@given(LISTED, CHUNKS)
def test_it_agrees_with_a_comparison_person_by_person(
    listed: list[tuple[int, int]], chunks: list[tuple[list[int], bool]]
) -> None:
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, (person, subscriber_id) in enumerate(listed, 100):
        rows[person].append((subscriber_id, place))
    matching, met, compared = build(listed), set[int](), set[int]()

    assert len(matching) == len(rows)
    for people, is_compared in chunks:
        numbers = matching.find(join(people))
        assert [number < 0 for number in numbers] == [person not in rows for person in people]
        if is_compared:
            numbers, is_new = matching.compare(join(people))
            for person, new in zip(people, is_new.tolist(), strict=True):
                assert new is (person in rows and person not in compared)
                compared.add(person)
        else:
            assert matching.meet(join(people)).tolist() == numbers.tolist()
        met.update(people)
        for person, number in zip(people, numbers.tolist(), strict=True):
            if person in rows:
                ids, places = zip(*sorted(rows[person]), strict=True)
                assert matching.read(number) == Person(ids, places)
                ((first,), (place,), (is_several,)) = matching.find_first(np.array([number]))
                assert (first, place, is_several) == (ids[0], places[0], len(ids) > 1)

    def tell(numbers: np.ndarray) -> list[tuple[int, ...]]:
        return [matching.read(number).ids for number in numbers.tolist()]

    def expect(people: set[int]) -> list[tuple[int, ...]]:
        return sorted(tuple(sorted(subscriber_id for subscriber_id, _ in rows[person])) for person in people)

    assert tell(matching.find_extra()) == expect(rows.keys() - met)
    assert tell(matching.find_duplicated()) == expect({person for person in rows if len(rows[person]) > 1})


def test_of_nobody_nothing_is_found() -> None:
    matching = build([])
    numbers, is_new = matching.compare(join([1, 2]))
    assert (numbers.tolist(), is_new.tolist()) == ([-1, -1], [False, False])
    assert not len(matching.find_extra())
    assert not len(matching.find_duplicated())


def test_the_digests_of_people_are_given_whole() -> None:
    matching = build([(2, 7), (3, 5)])
    assert matching.take_identities(matching.find(join([3, 2]))).tobytes() == digest(3) + digest(2)
