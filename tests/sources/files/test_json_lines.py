"""JSON Lines and JSON arrays: a line or an element that is not an object is rejected, and the other rows are read."""

import json
import string
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from connector.errors import SourceError
from connector.sources.files import open_file
from connector.sources.json_lines import load_object, read_row
from tests.sources.files.reading import read_chunks, read_frame, read_malformed, write_file


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"00123"', "00123"),
        ("31612345678", "31612345678"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("0.1", "0.1"),
        ("1e-7", "0.0000001"),
        ("18446744073709551617", "18446744073709551617"),  # a number of more than 64 bits keeps all digits
        ("12345678901234567890.25", "12345678901234567890.25"),
        ("true", "true"),
        ("null", None),
        ("NaN", None),
        ('""', ""),
        ('["a","b, c"]', '["a","b, c"]'),
        ("[1, true, null]", '["1","true"]'),
        ('[{"a": 1}]', '[{"a":1}]'),
    ],
)
def test_a_value_of_json_is_read_as_its_text(tmp_path: Path, value: str, text: str | None) -> None:
    frame = read_frame(write_file(tmp_path, "a.jsonl", f'{{"key": {value}, "email": "a"}}\n'))
    assert frame.astype(object).where(frame.notna(), None)["key"].tolist() == [text]


def test_an_array_has_the_same_rows_as_json_lines_with_the_same_objects(tmp_path: Path) -> None:
    object_texts = [
        '{"email": "a", "id": 18446744073709551617, "address": {"city": "X]"}}',
        '{"email": "b", "tags": ["x", "y"], "first_name": NaN}',
        '{"email": "c",\n "phone": "+31"}',
        *(f'{{"email": "person{index}"}}' for index in range(25_000)),
    ]
    lines_path = write_file(tmp_path, "a.jsonl", "\n".join(text.replace("\n", "") for text in object_texts))
    array_path = write_file(tmp_path, "a.json", " [\n" + ",\n".join(object_texts) + "\n]\n")
    assert read_frame(array_path).equals(read_frame(lines_path))
    assert [chunk.row_numbers[0] for chunk in read_chunks(array_path)] == [1, 20_001]


def test_an_element_that_is_not_a_row_is_rejected_with_its_number(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a.json", '[{"email": "a"}, 5, {"email": "b", "email": "c"}, {"email": "d"}]')
    assert read_frame(path)["email"].tolist() == ["a", "d"]
    assert [(row.number, row.line) for row in read_malformed(path)] == [(2, None), (3, None)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"a": 1}', "no end"),
        ('[{"a": 1},', "no end"),
        ('[{"a": 1}, {"a"', "Expecting"),
        ('[{"a": 1} {"a": 2}]', "a comma is missing at character 10"),
        ('[{"a": 1},, {"a": 2}]', "Expecting value"),
        ('[{"a": 1}]\n[{"a": 2}]', "more text follows"),
        ("[]", "holds no JSON object with a key"),
        ("[{}]", "holds no JSON object with a key"),
    ],
)
def test_a_damaged_or_empty_array_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        open_file(write_file(tmp_path, "a.json", text))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
@pytest.mark.parametrize(
    "text", ['[\r\n  {"email": "Zoë"},\r\n  {"email": "Ann"}\r\n]', '{"email": "Zoë"}\n{"email": "Ann"}\n']
)
def test_json_with_a_byte_order_mark_is_read_in_its_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    path = write_file(tmp_path, "a.json", text.encode(encoding))
    assert read_frame(path)["email"].tolist() == ["Zoë", "Ann"]


def test_nested_objects_are_flattened_and_later_lines_can_have_new_keys(tmp_path: Path) -> None:
    lines = (
        '{"email": "a", "address": {"city": "X", "geo": {"lat": 1.5}}}',
        '{"email": "b", "address": null}',
        '{"address": {"city": "Y"}, "email": "c", "phone": "+31"}',
    )
    frame = read_frame(write_file(tmp_path, "a.jsonl", "\n".join(lines)))
    assert list(frame.columns) == ["email", "address.city", "address.geo.lat", "phone"]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == [
        ["a", "X", "1.5", None],
        ["b", None, None, None],
        ["c", "Y", None, "+31"],
    ]


def test_a_key_with_an_object_in_one_line_and_a_text_in_another_line_makes_two_columns(tmp_path: Path) -> None:
    frame = read_frame(write_file(tmp_path, "a.jsonl", '{"address": "Main St 1"}\n{"address": {"city": "Y"}}\n'))
    assert list(frame.columns) == ["address", "address.city"]


def test_a_row_with_an_object_in_a_used_column_of_texts_is_rejected(tmp_path: Path) -> None:
    lines = (
        '{"email": "a", "tags": "vip"}',
        '{"email": "b", "tags": {"vip": true}}',
        '{"email": "c", "tags": null, "tags.x": 1}',
    )
    with open_file(str(write_file(tmp_path, "a.jsonl", "\n".join(lines) + "\n"))) as source:
        (chunk,) = source.read_chunks(["email", "tags"])
        (row,) = chunk.malformed_rows
        assert (row.number, "column tags holds an object" in row.message) == (2, True)
        assert chunk.frame["email"].tolist() == ["a", "c"]
        for columns in (["email"], ["email", "tags", "tags.vip"]):
            (chunk,) = source.read_chunks(columns)
            assert (chunk.malformed_rows, len(chunk.frame)) == ((), 3)


@pytest.mark.parametrize(
    ("line", "expected_text"),
    [
        (b"nope", "is not JSON: "),
        (b'{"a": 1', "is not JSON: "),
        (b"[1]", "is JSON, but not an object"),
        (b'{"a.b": 1, "a": {"b": 2}}', "has a.b twice"),
        (b'{"a":' * 30 + b"1" + b"}" * 30, "more than 20 levels deep"),
        (b'{"a": "M\xfcller"}', "is not JSON: "),
    ],
)
def test_a_line_that_is_not_an_object_is_rejected_with_its_number(
    tmp_path: Path, line: bytes, expected_text: str
) -> None:
    path = write_file(tmp_path, "a.jsonl", b'{"a": 1}\r\n\n' + line + b'\n{"a": 2}\n')
    chunks = read_chunks(path)
    assert [
        (n, text) for chunk in chunks for n, text in zip(chunk.row_numbers.tolist(), chunk.frame["a"], strict=True)
    ] == [(1, "1"), (4, "2")]
    (row,) = read_malformed(path)
    assert (row.number, row.line, row.code) == (3, 3, "json")
    assert row.message.startswith(expected_text) or expected_text in row.message
    assert len(row.raw_record) < 1500


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"email":"a@x","email":"b@x"}', "email"),
        ('{"email" : "a@x", "x": ":", "\\u0065mail" :"b@x"}', "email"),
        ('{"email":"a@x","address":{"city":"Bonn","city":"Ulm"}}', "city"),
        ('{"email":"a@x","address":{"city":"Bonn"},"address":{"zip":1}}', "address"),
        ('{"email":"a@x","tags":[{"id":1,"id":2}],"tags":["a"],"score":NaN}', "tags"),
        ('{"email":"a@x","other":1,"other":2}', None),
        ('{"email":"a\\":b","address":{"city":"\\":"},"x":[{"city":1},{"city":2}]}', None),
        ('{"email":"a@x","address":{"email":"b@x"}}', None),
    ],
)
def test_a_repeated_key_rejects_its_row_if_the_key_is_used(tmp_path: Path, line: str, key: str | None) -> None:
    complete_line = '{"email": "a", "address": {"city": "c", "zip": 1}, "tags": "t"}'
    with open_file(str(write_file(tmp_path, "a.jsonl", f"{complete_line}\n{line}\n"))) as source:
        (chunk,) = source.read_chunks(["email", "address.city", "tags"])
        messages = [row.message.partition(":")[0] for row in chunk.malformed_rows]
        assert messages == ([] if key is None else [f"has the key {key} more than once"])
        assert len(chunk.frame) == (2 if key is None else 1)


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        (b"[1]\n", r"holds no JSON object with a key \(line 1 is JSON, but not an object"),
        (
            b'{\n "people": [\n  {\n   "a": 1\n  }\n ]\n}',
            r"with a key \(line 1 is not JSON: .*\)\. Write one object on each line",
        ),
        ('[{"a": "Zoë"}]'.encode("latin-1"), r"with a key \(element 1 is not JSON: .*in UTF-8"),
        (b'{"a": 1}\r\n\n{"a": "' + b"x" * 9_000_000 + b'"}\n{"a": 2}\n', "line 3 is longer than 1 MiB"),
        (b"".join(b'{"p%d": 1}\n' % n for n in range(10_001)), "more than 10,000 keys"),
    ],
    ids=[
        "no object",
        "an object on several lines",
        "not UTF-8",
        "a line of more than a mebibyte",
        "more than 10000 keys",
    ],
)
def test_a_file_without_an_object_or_beyond_a_limit_is_refused(
    tmp_path: Path, content: bytes, expected_text: str
) -> None:
    with pytest.raises(SourceError, match=expected_text):
        open_file(write_file(tmp_path, "a.jsonl", content))


JSON_VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
)
JSON_OBJECTS = st.dictionaries(st.text(string.ascii_letters, min_size=1), JSON_VALUES, max_size=8)


@given(JSON_OBJECTS)
def test_any_object_of_plain_values_is_read_exactly(expected_object: dict[str, object]) -> None:
    expected_cells = {
        key: Decimal(repr(value)) if isinstance(value, float) and abs(value) >= 2**53 else value
        for key, value in expected_object.items()
    }
    line = json.dumps(expected_object).encode()
    assert read_row(load_object(line), line) == expected_cells
