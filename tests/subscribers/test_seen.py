"""Repeats within a run, against a plain dictionary."""

from hypothesis import given, strategies as st

from connector.subscribers import SeenIdentities, join_digests

Row = tuple[int, int]
CHUNKS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=12), max_size=12)


def expect(chunks: list[list[Row]]) -> list[list[tuple[bool, bool]]]:
    first: dict[int, int] = {}
    expected = []
    for chunk in chunks:
        told = []
        for identity, fingerprint in chunk:
            is_repeat = identity in first
            told.append((is_repeat, is_repeat and first[identity] != fingerprint))
            first.setdefault(identity, fingerprint)
        expected.append(told)
    return expected


@given(CHUNKS)
def test_repeats_are_those_that_a_dictionary_would_find(chunks: list[list[Row]]) -> None:
    seen = SeenIdentities()
    told = []
    for chunk in chunks:
        identities = join_digests((bytes([identity]) * 15 + b"\0" for identity, _ in chunk), 16)
        fingerprints = join_digests((bytes([fingerprint]) * 8 for _, fingerprint in chunk), 8)
        repeats = seen.add(identities, fingerprints)
        told.append(list(zip(repeats.is_duplicate.tolist(), repeats.is_different.tolist(), strict=True)))
    assert told == expect(chunks)
