"""The suppression list: who is on it, under which normal form, and what it costs."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.subscribers import Suppression, digest_identity, join_digests


def build(field: str, *values: str) -> Suppression:
    return Suppression("nightly", field, (digest_identity(field, value) for value in values))


@pytest.mark.parametrize(
    ("field", "listed", "values", "is_held"),
    [
        ("email", "ann@example.com", {"email": "ann@example.com"}, True),
        ("email", " Ann@EXAMPLE.com ", {"email": "ann@example.com"}, True),
        ("email", "ann@example.com", {"email": "ANN@Example.Com"}, True),
        ("email", "ann@bücher.example", {"email": "ann@xn--bcher-kva.example"}, True),
        ("email", "ann@example.com", {"email": "ann+news@example.com"}, False),
        ("email", "A1", {"client_user_id": "A1"}, False),
        ("email", "ann@example.com", {"email": None}, False),
        ("email", "ann@example.com", {}, False),
        ("client_user_id", " A1 ", {"client_user_id": "A1", "email": "ann@example.com"}, True),
        ("client_user_id", "A1", {"client_user_id": "a1"}, False),
        ("client_user_id", "A1", {"email": "A1"}, False),
        ("client_user_id", "7", {"client_user_id": 7}, False),
    ],
)
def test_somebody_is_held_by_the_normal_form_of_the_lists_own_field(
    field: str, listed: str, values: dict[str, object], is_held: bool
) -> None:
    suppression = build(field, "somebody-else@example.com", listed)
    assert suppression.holds(values) is is_held
    frame = pd.DataFrame({name: pd.Series([value], dtype="str") for name, value in values.items() if value != 7})
    if len(frame):
        assert suppression.build_mask(frame).tolist() == [is_held]


VALUES = st.sampled_from([f"person{each}@example.com" for each in range(12)])


@given(st.lists(VALUES), st.lists(st.none() | VALUES))
def test_a_frame_is_marked_as_each_of_its_rows_would_be(listed: list[str], column: list[str | None]) -> None:
    suppression = build("email", *listed)
    frame = pd.DataFrame({"email": pd.Series(column, dtype="str", index=range(5, 5 + len(column)))})
    assert suppression.build_mask(frame).tolist() == [value in listed for value in column]
    assert [suppression.holds({"email": value}) for value in column] == [value in listed for value in column]


def test_an_empty_list_holds_nobody() -> None:
    nobody = build("email")
    assert nobody.size == 0
    assert not nobody.holds({"email": "ann@example.com"})
    assert nobody.build_mask(pd.DataFrame({"email": pd.Series(["ann@example.com"], dtype="str")})).tolist() == [False]


def test_somebody_who_is_on_it_twice_counts_once() -> None:
    assert build("email", "ann@example.com", "ANN@example.com", "bob@example.com").size == 2


@given(st.lists(st.integers(0, 255), min_size=1, unique=True))
def test_digests_that_end_in_zeros_are_found_like_any(lasts: list[int]) -> None:
    digests = [bytes([last]) * 3 + b"\0" * 13 for last in lasts]
    suppression = Suppression("nightly", "email", digests[::2])
    found = suppression.find(join_digests(digests, 16)).tolist()
    assert found == [place % 2 == 0 for place in range(len(digests))]


def test_a_list_costs_sixteen_bytes_an_entry() -> None:
    digests = np.random.default_rng(1).integers(0, 256, size=(100_000, 16), dtype=np.uint8).view("S16").ravel()
    tracemalloc.start()
    suppression = Suppression("nightly", "email", digests)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert suppression.size == 100_000
    assert kept < 17 * 100_000
