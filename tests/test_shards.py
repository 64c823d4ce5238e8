"""Shards are ranges of digests without gaps and overlaps."""

import re
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.rows import Chunk, MalformedRow
from connector.shards import SINGLE_SHARD, Shard
from connector.subscribers.identity import digest_identity, join_digests
from connector.subscribers.preparation import select_shard
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules

SHARD_COUNTS = (1, 2, 3, 4, 7, 64, 1000)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20), st.sampled_from(SHARD_COUNTS))
def test_a_digest_is_in_exactly_one_shard(digests: list[bytes], shard_count: int) -> None:
    shards = [Shard(index, shard_count) for index in range(1, shard_count + 1)]
    digest_array = join_digests([*digests, b"\0" * 16, b"\xff" * 16], 16)
    contained_mask = np.array([shard.build_digest_mask(digest_array) for shard in shards])
    assert contained_mask.sum(axis=0).tolist() == [1] * (len(digests) + 2)
    assert [[shard.has_digest(digest) for digest in digests] for shard in shards] == contained_mask[
        :, : len(digests)
    ].tolist()


@given(st.binary(min_size=16, max_size=16), st.sampled_from(SHARD_COUNTS))
def test_a_digest_is_mapped_to_a_digest_inside_the_shard(digest: bytes, shard_count: int) -> None:
    assert all(
        Shard(index, shard_count).has_digest(Shard(index, shard_count).map_digest_into_shard(digest))
        for index in (1, shard_count)
    )
    assert SINGLE_SHARD.map_digest_into_shard(digest) == digest


def test_shards_follow_each_other_without_a_gap() -> None:
    for shard_count in SHARD_COUNTS:
        shards = [Shard(index, shard_count) for index in range(1, shard_count + 1)]
        assert shards[0].smallest_digest == b"\0" * 16
        assert [shard.end_digest for shard in shards[:-1]] == [shard.smallest_digest for shard in shards[1:]]
        assert shards[-1].end_digest > b"\xff" * 16


def test_shards_overlap_if_they_are_equal_or_their_counts_differ() -> None:
    assert not Shard(1, 4).overlaps(Shard(2, 4))
    for other_shard in (Shard(1, 4), Shard(4, 5), SINGLE_SHARD):
        assert Shard(1, 4).overlaps(other_shard)
        assert other_shard.overlaps(Shard(1, 4))


def test_the_parts_of_a_limit_add_up_to_the_limit() -> None:
    parts_by_limit = {limit: [Shard(index, 4).divide(limit) for index in range(1, 5)] for limit in (0, 1, 4, 11)}
    assert parts_by_limit == {0: [0, 0, 0, 0], 1: [1, 0, 0, 0], 4: [1, 1, 1, 1], 11: [3, 3, 3, 2]}


def test_the_text_of_a_shard_is_read_as_the_same_shard() -> None:
    assert Shard.parse("2/4") == Shard(2, 4)
    assert str(Shard(2, 4)) == "2/4"


def test_a_valid_row_is_in_the_shard_of_its_identity() -> None:
    emails = [f" Person{index}@Example.com" for index in range(60)] + ["", "no address", "person5@example.com"]
    frame = pd.DataFrame({"mail": emails, "name": [f"Ann {index}" for index in range(63)]}, dtype="str")
    malformed_rows = tuple(MalformedRow(100 + index, None, f"a,b,{index}", "ragged", "") for index in range(9))
    chunk = Chunk(frame, np.arange(1, 64), malformed_rows, "people.csv")
    mapping = FieldMapping({"email": ColumnRule("mail"), "first_name": ColumnRule("name")})
    rules = ValidationRules(required=frozenset({"first_name"}))
    shards = [Shard(index, 4) for index in range(1, 5)]
    shard_chunks = [select_shard(chunk, mapping, rules, shard, today=date(2026, 11, 25)) for shard in shards]
    assert sorted(
        record_number for shard_chunk in shard_chunks for record_number in shard_chunk.row_numbers.tolist()
    ) == list(range(1, 64))
    assert sorted(row.number for shard_chunk in shard_chunks for row in shard_chunk.malformed_rows) == [
        row.number for row in malformed_rows
    ]
    for shard, shard_chunk in zip(shards, shard_chunks, strict=True):
        valid_emails = [cell for cell in shard_chunk.frame["mail"] if "@" in cell]
        assert all(shard.has_digest(digest_identity("email", address)) for address in valid_emails)
        assert list(shard_chunk.frame.index) == list(range(len(shard_chunk.row_numbers)))


def test_a_text_that_does_not_name_shard_i_of_n_is_refused() -> None:
    for text in ["", "2", "0/4", "5/4", "1/1001", "a/b", "-1/4", "1/4/2", "²/4"]:
        with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a shard")):
            Shard.parse(text)
