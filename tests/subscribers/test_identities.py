"""Identities: their normal form, their spellings, the suppression list, and duplicates within a run.

A trait of a text is a difference from a plain text, such as capitals, a plus or a letter beyond ASCII."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from connector.fields import normalise_identity
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    SeenIdentities,
    Suppression,
    combine_digests,
    compute_fingerprints,
    compute_identities,
    digest_identity,
    digest_text,
    join_digests,
    split_digests,
)
from connector.subscribers.spellings import (
    build_spellings,
    find_text_traits,
    is_plain_spelling,
    spellings_differ_only_in_case,
)

TAGS_DTYPE = pd.ArrowDtype(pa.list_(pa.string()))


def build_frame(**columns: list[Any]) -> pd.DataFrame:
    dtypes: dict[str, Any] = {"tags": TAGS_DTYPE, "is_active": "boolean", "address_zip": "Int64"}
    return pd.DataFrame({name: pd.Series(values, dtype=dtypes.get(name, "str")) for name, values in columns.items()})


def test_spellings_of_one_address_are_one_identity() -> None:
    pairs_of_spellings: list[tuple[str, str]] = [
        ("ann@example.com", " Ann@EXAMPLE.com "),
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("jose\u0301@example.com", "josé@example.com"),
        ("ANN@BÜCHER.example", "ann@bu\u0308cher.example"),
    ]
    for value, other_value in pairs_of_spellings:
        assert digest_identity("email", value) == digest_identity("email", other_value)


def test_different_values_are_different_identities() -> None:
    pairs_of_values: list[tuple[str, str, str]] = [
        ("email", "ann+news@example.com", "ann@example.com"),
        ("email", "a.nn@example.com", "ann@example.com"),
        ("client_user_id", "A1", "a1"),
        ("client_user_id", "007", "7"),
    ]
    for field, value, other_value in pairs_of_values:
        assert digest_identity(field, value) != digest_identity(field, other_value)


@given(st.lists(st.binary(min_size=16, max_size=16)))
def test_digests_keep_their_trailing_zeros_when_joined_and_split_again(digests: list[bytes]) -> None:
    assert split_digests(join_digests(digests, 16)) == digests


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12) | st.emails()))
@pytest.mark.parametrize("field", ["email", "client_user_id"])
def test_the_identities_of_a_column_equal_the_digests_of_the_single_texts(field: str, values: list[str]) -> None:
    all_values = [*values, *(value.upper() for value in values), *(f"\x1c {value}\x85\t" for value in values)]
    digests = compute_identities(pd.Series(all_values, dtype="str"), field)
    assert split_digests(digests) == [digest_identity(field, value) for value in all_values]


VALUES_BY_FIELD = {
    "email": st.text(min_size=1, max_size=5),
    "first_name": st.none() | st.text(max_size=5),
    "last_name": st.none() | st.text(max_size=5),
    "tags": st.none() | st.lists(st.text(max_size=3), max_size=3),
    "is_active": st.none() | st.booleans(),
    "address_zip": st.none() | st.integers(0, 99999),
}


@given(st.lists(st.fixed_dictionaries(VALUES_BY_FIELD), min_size=2, max_size=2))
def test_fingerprints_are_equal_if_and_only_if_the_creates_are_equal(rows: list[dict[str, object]]) -> None:
    frame = build_frame(**{name: [row[name] for row in rows] for name in VALUES_BY_FIELD})
    first_digest, second_digest = split_digests(compute_fingerprints(frame, "client_user_id"))
    assert (first_digest == second_digest) is (rows[0] == rows[1])


def test_an_empty_column_changes_no_fingerprint() -> None:
    narrow_frame = build_frame(email=["a@x.org"], first_name=["Ann"])
    wide_frame = build_frame(email=["a@x.org"], first_name=["Ann"], phone=[None])
    assert compute_fingerprints(narrow_frame, "email").tolist() == compute_fingerprints(wide_frame, "email").tolist()


def test_the_spelling_of_the_identity_does_not_change_the_fingerprint() -> None:
    frame = build_frame(email=["Ann@x.org", "ann@X.org"], first_name=["Ann", "Ann"])
    assert len(set(split_digests(compute_fingerprints(frame, "email")))) == 1
    assert len(set(split_digests(compute_fingerprints(frame, "client_user_id")))) == 2


def test_the_formats_of_digests_and_fingerprints_in_ledgers_have_not_changed() -> None:
    frame = build_frame(email=["ann@example.com"], is_active=[True], tags=[["a", "b"]], address_zip=[1012])
    assert split_digests(compute_fingerprints(frame, "client_user_id"))[0].hex() == "14a5c080d546eb64"
    assert digest_identity("email", "ann@example.com").hex() == "f9832139108cc79de37fd27da9ffcfec"


def test_equal_digests_differ_after_they_are_combined_with_different_groups() -> None:
    digest, other_digest = digest_identity("email", "ann@x.org"), digest_identity("email", "bob@x.org")
    digests = join_digests([digest, other_digest, digest, digest, b"\0" * 16], 16)
    groups = join_digests([digest_text(text) for text in ("7", "7", "9", "7", "9")], 16)
    combined_digests = split_digests(combine_digests(digests, groups))
    assert combined_digests[0] == combined_digests[3]
    assert len(set(combined_digests)) == 4
    assert combined_digests[4] == digest_text("9")
    assert len(combine_digests(digests[:0], groups[:0])) == 0


def test_an_identity_is_looked_up_as_sent_and_in_its_normal_spellings() -> None:
    values_and_spellings: list[tuple[str, str, tuple[str, ...]]] = [
        ("email", "ann@x.org", ("ann@x.org",)),
        ("email", "ann+b@x.org", ("ann+b@x.org",)),
        ("email", "Ann@x.org", ("Ann@x.org", "ann@x.org")),
        ("email", "ann@X.org", ("ann@X.org", "ann@x.org")),
        ("email", "Ann@X.org", ("Ann@X.org", "Ann@x.org", "ann@x.org")),
        ("email", "ann@bücher.de", ("ann@bücher.de", "ann@xn--bcher-kva.de")),
        ("email", "Jörg@Bücher.de", ("Jörg@Bücher.de", "Jörg@xn--bcher-kva.de", "jörg@xn--bcher-kva.de")),
        ("email", " ann@x.org", (" ann@x.org", "ann@x.org")),
        ("email", "No address", ("No address", "no address")),
        ("client_user_id", "A-7", ("A-7",)),
        ("client_user_id", " A-7 ", (" A-7 ", "A-7")),
    ]
    for field, value, texts in values_and_spellings:
        assert build_spellings(field, value) == texts


@given(st.sampled_from(["email", "client_user_id"]), st.text(min_size=1))
def test_all_spellings_have_the_same_identity_and_include_the_normal_form(field: str, value: str) -> None:
    spellings, normal_form = build_spellings(field, value), normalise_identity(field, value)
    assert spellings[0] == value
    assert normal_form in spellings
    assert all(normalise_identity(field, text) == normal_form for text in spellings)


def test_each_unusual_property_of_a_text_is_a_trait_of_its_spelling() -> None:
    texts_and_traits: list[tuple[str, str, set[str]]] = [
        ("email", "ann.lee-1_2@x-y.org", set()),
        ("email", "Ann@x.org", {"local: capitals"}),
        ("email", "ann@X.org", {"domain: capitals"}),
        ("email", "a+b@x.org", {"local: +"}),
        ("email", "O'Neil+b@x.org", {"local: capitals", "local: '", "local: +"}),
        ("email", "a%b@x.org", {"local: %"}),
        ("email", "a&b=c/d@x.org", {"local: &", "local: =", "local: /"}),
        ("email", '"a b"@x.org', {'local: "', "local:  "}),
        ("email", '"a@b"@x.org', {'local: "', "local: @"}),
        ("email", "jörg@x.org", {"local: beyond ASCII"}),
        ("email", "JÖRG@x.org", {"local: beyond ASCII", "local: capitals"}),
        ("email", "jo\u0308rg@x.org", {"local: beyond ASCII", "local: not composed"}),
        ("email", "😀@x.org", {"local: beyond ASCII", "local: beyond 16 bits"}),
        ("email", "ann@bücher.de", {"domain: beyond ASCII"}),
        ("email", "ann@xn--bcher-kva.de", {"domain: A-label"}),
        ("email", "ann@x.XN--P1AI", {"domain: A-label", "domain: capitals"}),
        ("email", "ann@[1.2.3.4]", {"domain: [", "domain: ]"}),
        ("email", "nobody", {"no @"}),
        ("client_user_id", "a-7", set()),
        ("client_user_id", "7a", set()),
        ("client_user_id", "A7", {"capitals"}),
        ("client_user_id", "77", {"digits only"}),
        ("client_user_id", "007", {"digits only", "leading zero"}),
        ("client_user_id", "0a", {"leading zero"}),
        ("client_user_id", "a/7 b", {"/", " "}),
        ("client_user_id", "é7", {"beyond ASCII"}),
    ]
    for field, text, traits in texts_and_traits:
        assert find_text_traits(field, text).traits == traits


@given(
    st.sampled_from(["email", "client_user_id"]),
    st.one_of(st.text(), st.text("aZ0._-+@é", max_size=8), st.from_regex(r"[a-z0-9._-]{1,9}@(xn--)?[a-z0-9.-]{1,9}")),
)
def test_a_plain_spelling_has_no_capital_and_no_unusual_character(field: str, text: str) -> None:
    if not is_plain_spelling(field, text):
        return
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-@")
    if field == "email":
        assert text.count("@") == 1
        assert not any(label.startswith("xn--") for label in text.partition("@")[2].split("."))
    else:
        assert "@" not in text
        assert not text.isdigit()
        assert not text.startswith("0")


def test_some_spellings_of_an_internationalized_email_differ_by_more_than_capitals() -> None:
    values_of_fields: list[tuple[str, str, bool]] = [
        ("email", "Ann+b@X.org", True),
        ("email", "jörg@x.org", False),
        ("email", "ann@bücher.de", False),
        ("email", "ann@xn--bcher-kva.de", False),
        ("client_user_id", "É7", True),
    ]
    for field, value, differs_only_in_case in values_of_fields:
        assert spellings_differ_only_in_case(field, value) is differs_only_in_case


def build_suppression(field: str, *values: str) -> Suppression:
    digests = join_digests((digest_identity(field, value) for value in values), IDENTITY_BYTES)
    return Suppression("nightly", field, digests)


def test_a_suppression_list_contains_an_identity_in_any_spelling_of_its_field() -> None:
    suppression_cases: list[tuple[str, str, dict[str, object], bool]] = [
        ("email", "ann@example.com", {"email": "ann@example.com"}, True),
        ("email", " Ann@EXAMPLE.com ", {"email": "ann@example.com"}, True),
        ("email", "A1", {"client_user_id": "A1"}, False),
        ("email", "ann@example.com", {"email": None}, False),
        ("client_user_id", " A1 ", {"client_user_id": "A1", "email": "ann@example.com"}, True),
        ("client_user_id", "A1", {"email": "A1"}, False),
        ("client_user_id", "7", {"client_user_id": 7}, False),
    ]
    for field, listed_identity, values, is_suppressed in suppression_cases:
        suppression = build_suppression(field, "somebody-else@example.com", listed_identity)
        assert suppression.has_subscriber(values) is is_suppressed
        frame = pd.DataFrame({name: pd.Series([value], dtype="str") for name, value in values.items() if value != 7})
        if len(frame):
            assert suppression.build_row_mask(frame).tolist() == [is_suppressed]


LISTED_EMAILS = st.sampled_from([f"person{index}@example.com" for index in range(12)])


@given(st.lists(LISTED_EMAILS), st.lists(st.none() | LISTED_EMAILS))
def test_the_mask_of_a_frame_equals_the_results_for_single_rows(
    listed_identities: list[str], emails: list[str | None]
) -> None:
    suppression = build_suppression("email", *listed_identities)
    frame = pd.DataFrame({"email": pd.Series(emails, dtype="str", index=range(5, 5 + len(emails)))})
    assert suppression.build_row_mask(frame).tolist() == [value in listed_identities for value in emails]
    assert [suppression.has_subscriber({"email": value}) for value in emails] == [
        value in listed_identities for value in emails
    ]


@given(st.lists(st.integers(0, 255), min_size=1, unique=True))
def test_suppressed_digests_that_end_in_zeros_are_found(last_bytes: list[int]) -> None:
    digests = join_digests([bytes([last_byte]) * 3 + b"\0" * 13 for last_byte in last_bytes], 16)
    suppression = Suppression("nightly", "email", digests[::2])
    found_mask = suppression.build_digest_mask(digests).tolist()
    assert found_mask == [index % 2 == 0 for index in range(len(digests))]


FingerprintedIdentity = tuple[int, int]
LISTS_OF_CHUNKS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=12), max_size=12)


def find_duplicates(chunks: list[list[FingerprintedIdentity]]) -> list[list[tuple[bool, bool]]]:
    first_fingerprint_by_identity: dict[int, int] = {}
    flags_by_chunk = []
    for chunk in chunks:
        flags_of_chunk = []
        for identity, fingerprint in chunk:
            is_duplicate = identity in first_fingerprint_by_identity
            flags_of_chunk.append(
                (is_duplicate, is_duplicate and first_fingerprint_by_identity[identity] != fingerprint)
            )
            first_fingerprint_by_identity.setdefault(identity, fingerprint)
        flags_by_chunk.append(flags_of_chunk)
    return flags_by_chunk


@given(LISTS_OF_CHUNKS)
def test_seen_identities_finds_the_duplicates_that_a_dictionary_finds(
    chunks: list[list[FingerprintedIdentity]],
) -> None:
    seen_identities = SeenIdentities()
    flags_by_chunk = []
    for chunk in chunks:
        identities = join_digests((bytes([identity]) * 15 + b"\0" for identity, _ in chunk), 16)
        fingerprints = join_digests((bytes([fingerprint]) * 8 for _, fingerprint in chunk), 8)
        duplicate_mask, different_row_mask = seen_identities.add(
            identities, fingerprints, np.zeros(len(chunk), dtype=bool)
        )
        flags_by_chunk.append(list(zip(duplicate_mask.tolist(), different_row_mask.tolist(), strict=True)))
    assert flags_by_chunk == find_duplicates(chunks)
