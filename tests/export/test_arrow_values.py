"""Arrow's values without `pa.scalar`: the same values. And lists written by Arrow: what Python writes of them."""

from datetime import UTC, datetime, timedelta, timezone

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from connector.warehouse.columns import (
    build_null,
    build_numbers,
    build_text,
    build_time,
    quote_lists,
    write_lists_as_json,
)

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4) | st.none()
PLAIN = st.lists(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=8), max_size=4)


@pytest.mark.parametrize("text", ["", "a", "Ελένη", "\0"])
def test_a_text(text: str) -> None:
    assert build_text(text).equals(pa.scalar(text))


@pytest.mark.parametrize(
    "time",
    [
        datetime(2026, 11, 22, 1, 2, 3, 456789, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(2026, 11, 22, 1, 2, 3, tzinfo=timezone(timedelta(hours=-3))),
    ],
)
def test_a_time(time: datetime) -> None:
    assert build_time(time).equals(pa.scalar(time, pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.list_(pa.string())])
def test_nothing(kind: pa.DataType) -> None:
    assert build_null(kind).equals(pa.scalar(None, kind))


def test_numbers() -> None:
    assert build_numbers(0, -1, 2**31 - 1).equals(pa.array([0, -1, 2**31 - 1], pa.int32()))
    assert len(build_numbers()) == 0


@given(st.lists(TEXTS, max_size=6), st.integers(0, 3))
def test_lists_as_json_are_what_python_writes(lists: list[list[str] | None], start: int) -> None:
    column = pa.chunked_array([pa.array(each, pa.list_(pa.string())) for each in (lists, lists)]).slice(start)

    written = write_lists_as_json(column)
    assert written.type == pa.string()
    assert written.to_pylist() == [None if each is None else orjson.dumps(each).decode() for each in column.to_pylist()]


@given(st.lists(PLAIN, max_size=6))
def test_lists_in_braces_differ_in_their_braces_alone(lists: list[list[str]]) -> None:
    written = quote_lists(pa.array(lists, pa.list_(pa.string())), "{", "}").to_pylist()

    assert [f"[{each[1:-1]}]" for each in written] == [orjson.dumps(each).decode() for each in lists]
