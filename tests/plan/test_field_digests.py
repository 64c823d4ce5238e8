"""Two bytes for each field: the same for the same value, others for another, and nothing to be read in them."""

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from connector.plan.field_digests import (
    Difference,
    MappedFields,
    compare_fields,
    compute_field_digests,
    compute_salts,
    digest_value,
    read_mapped,
)

MAPPED = MappedFields((("is_active", "a"), ("first_name", "b"), ("tags", "c"), ("address_zip", "d")))
VALUES: dict[str, list[object]] = {
    "is_active": [True, None, False],
    "first_name": ["Ann", None, "Ωmega"],
    "tags": [["a", "b"], None, []],
    "address_zip": [2134, None, 0],
}


def build_frame(values: dict[str, list[object]]) -> pd.DataFrame:
    types = {"is_active": "boolean", "address_zip": "Int64", "first_name": "str"}
    columns = {name: pd.Series(column, dtype=types[name]) for name, column in values.items() if name in types}
    columns["tags"] = pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values["tags"], pa.list_(pa.string()))))
    return pd.DataFrame(columns)


def digest(values: dict[str, list[object]], *identities: str) -> list[bytes]:
    return compute_field_digests(build_frame(values), MAPPED, compute_salts(identities, "email"))


def test_a_single_value_has_the_two_bytes_that_it_has_in_a_column() -> None:
    salts = compute_salts(["ann@x.org", "bob@x.org", "eve@x.org"], "email")
    rows = compute_field_digests(build_frame(VALUES), MAPPED, salts)
    singly = [
        b"".join(digest_value(name, VALUES[name][row], salt) for name in MAPPED.names) for row, salt in enumerate(salts)
    ]
    assert rows == singly
    assert rows[1] == bytes(8)  # nobody has a digest of no value
    assert all(rows[row][at : at + 2] != bytes(2) for row in (0, 2) for at in (0, 2, 4, 6))


def test_a_zip_is_the_same_as_the_number_that_was_sent_and_as_the_text_that_comes_back() -> None:
    (salt,) = compute_salts(["ann@x.org"], "email")
    assert digest_value("address_zip", 2134, salt) == digest_value("address_zip", "2134", salt)


def test_the_digests_are_those_that_ledgers_hold() -> None:
    assert digest(VALUES, "ann@x.org", "bob@x.org", "eve@x.org")[0].hex() == "a6df6e31f88fd783"


def test_equal_values_of_two_people_do_not_show() -> None:
    number = 2000
    alike: dict[str, list[object]] = {name: [column[0]] * number for name, column in VALUES.items()}
    rows = digest(alike, *(f"person{each}@x.org" for each in range(number)))
    for at in range(4):
        most = Counter(row[2 * at : 2 * at + 2] for row in rows).most_common(1)[0][1]
        assert most <= 4  # five of 2,000 share one by chance once in 70,000 times


def test_one_identity_has_one_salt_however_it_is_spelt() -> None:
    assert compute_salts(["Ann@X.org"], "email") == compute_salts([" ann@x.org"], "email")
    assert compute_salts(["Ann"], "client_user_id") != compute_salts(["ann"], "client_user_id")
    assert compute_salts(["ann"], "client_user_id") != compute_salts(["ann"], "email")


def test_nobody_and_no_field_are_no_trouble() -> None:
    assert digest({name: [] for name in VALUES}) == []
    assert compute_field_digests(build_frame(VALUES), MappedFields(()), np.zeros(3, dtype=np.uint64)) == [b"", b"", b""]


@pytest.mark.parametrize("mapped", [MAPPED, MappedFields(())])
def test_a_mapping_is_read_as_it_was_written(mapped: MappedFields) -> None:
    assert read_mapped(mapped.write()) == mapped


def test_a_mapping_in_another_format_is_none() -> None:
    assert read_mapped(MAPPED.write().replace("1", "2", 1)) is None


BEFORE = MappedFields((("first_name", "r"), ("last_name", "r"), ("phone", "r")))


@pytest.mark.parametrize(
    ("now", "told", "expected"),
    [
        (BEFORE, b"aabbcc", Difference((), ())),
        (BEFORE, b"aabBcC", Difference(("last_name", "phone"), ())),
        (BEFORE, b"aabb\0\0", Difference(("phone",), ())),
        (MappedFields((("first_name", "r"), ("last_name", "other"), ("phone", "r"))), b"aabBcc", ((), ("last_name",))),
        (MappedFields((("first_name", "r"), ("last_name", "other"), ("phone", "r"))), b"aabbcc", ((), ())),
        (MappedFields((("first_name", "r"), ("last_name", "r"))), b"aabb", ((), ("phone",))),
        (MappedFields((("first_name", "r"), ("last_name", "r"))), b"aAbb", (("first_name",), ("phone",))),
        (MappedFields((*BEFORE.rules, ("birthday", "r"))), b"aabbccdd", ((), ("birthday",))),
        (MappedFields((*BEFORE.rules, ("birthday", "r"))), b"aabbcc\0\0", ((), ())),
        (MappedFields(()), b"", ((), ("first_name", "last_name", "phone"))),
    ],
)
def test_a_changed_value_is_told_from_a_changed_mapping(
    now: MappedFields, told: bytes, expected: Difference | tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    difference = expected if isinstance(expected, Difference) else Difference(*expected)
    assert compare_fields(BEFORE, b"aabbcc", now, told) == difference
