"""Digests: what is one identity, and what is the same to be sent."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from connector.subscribers import (
    compute_fingerprints,
    compute_identities,
    digest_identity,
    digest_text,
    join_digests,
    separate_digests,
    split_digests,
)

TAGS = pd.ArrowDtype(pa.list_(pa.string()))


def build_frame(**columns: list[Any]) -> pd.DataFrame:
    types: dict[str, Any] = {"tags": TAGS, "is_active": "boolean", "address_zip": "Int64"}
    return pd.DataFrame({name: pd.Series(values, dtype=types.get(name, "str")) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ann@example.com", " Ann@EXAMPLE.com "),
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("jose\u0301@example.com", "josé@example.com"),
        ("ANN@BÜCHER.example", "ann@bu\u0308cher.example"),
    ],
)
def test_addresses_that_are_one_identity(one: str, other: str) -> None:
    assert digest_identity("email", one) == digest_identity("email", other)


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("email", "ann+news@example.com", "ann@example.com"),
        ("email", "a.nn@example.com", "ann@example.com"),
        ("client_user_id", "A1", "a1"),
        ("client_user_id", "007", "7"),
    ],
)
def test_values_that_are_two_identities(field: str, one: str, other: str) -> None:
    assert digest_identity(field, one) != digest_identity(field, other)


def test_an_identity_digest_depends_on_the_field() -> None:
    assert digest_identity("email", "a") != digest_identity("client_user_id", "a")


@given(st.lists(st.binary(min_size=16, max_size=16)))
def test_digests_survive_the_array_with_their_trailing_zeros(digests: list[bytes]) -> None:
    assert split_digests(join_digests(digests, 16)) == digests


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12) | st.emails()))
@pytest.mark.parametrize("field", ["email", "client_user_id"])
def test_a_column_of_any_texts_is_digested_as_each_of_them_alone(field: str, values: list[str]) -> None:
    given_values = [*values, *(value.upper() for value in values), *(f"\x1c {value}\x85\t" for value in values)]

    digests = compute_identities(pd.Series(given_values, dtype="str"), field)

    assert split_digests(digests) == [digest_identity(field, value) for value in given_values]


ROW = {
    "email": st.text(min_size=1, max_size=5),
    "first_name": st.none() | st.text(max_size=5),
    "last_name": st.none() | st.text(max_size=5),
    "tags": st.none() | st.lists(st.text(max_size=3), max_size=3),
    "is_active": st.none() | st.booleans(),
    "address_zip": st.none() | st.integers(0, 99999),
}


@given(st.lists(st.fixed_dictionaries(ROW), min_size=2, max_size=2))
def test_two_rows_have_one_fingerprint_exactly_when_they_would_send_the_same(rows: list[dict[str, object]]) -> None:
    frame = build_frame(**{name: [row[name] for row in rows] for name in ROW})
    first, second = split_digests(compute_fingerprints(frame, "client_user_id"))
    assert (first == second) is (rows[0] == rows[1])


def test_a_column_of_nothing_changes_no_fingerprint() -> None:
    plain = build_frame(email=["a@x.org"], first_name=["Ann"])
    wider = build_frame(email=["a@x.org"], first_name=["Ann"], phone=[None])
    assert compute_fingerprints(plain, "email").tolist() == compute_fingerprints(wider, "email").tolist()


def test_how_the_identity_is_spelt_is_no_difference() -> None:
    frame = build_frame(email=["Ann@x.org", "ann@X.org"], first_name=["Ann", "Ann"])
    assert len(set(split_digests(compute_fingerprints(frame, "email")))) == 1
    assert len(set(split_digests(compute_fingerprints(frame, "client_user_id")))) == 2


def test_an_empty_frame_has_no_fingerprints() -> None:
    assert len(compute_fingerprints(build_frame(email=[]), "email")) == 0


def test_the_format_stays_what_ledgers_hold() -> None:
    frame = build_frame(email=["ann@example.com"], is_active=[True], tags=[["a", "b"]], address_zip=[1012])
    assert split_digests(compute_fingerprints(frame, "client_user_id"))[0].hex() == "14a5c080d546eb64"
    assert digest_identity("email", "ann@example.com").hex() == "f9832139108cc79de37fd27da9ffcfec"


def test_digests_are_separated_by_their_group() -> None:
    same, other = digest_identity("email", "ann@x.org"), digest_identity("email", "bob@x.org")
    digests = join_digests([same, other, same, same, b"\0" * 16], 16)
    groups = join_digests([digest_text(text) for text in ("7", "7", "9", "7", "9")], 16)
    mixed = split_digests(separate_digests(digests, groups))
    assert mixed[0] == mixed[3]
    assert len(set(mixed)) == 4
    assert mixed[4] == digest_text("9")
    assert len(separate_digests(digests[:0], groups[:0])) == 0
