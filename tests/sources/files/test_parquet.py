"""Parquet files: typed values are read as texts, in batches."""

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.errors import ContentError
from connector.sources.files import open_file
from tests.sources.files.reading import read_chunks, read_frame, write_file


def write_table(folder: Path, table: pa.Table, **options: object) -> Path:
    output = io.BytesIO()
    pq.write_table(table, output, **options)
    return write_file(folder, "people.parquet", output.getvalue())


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array(["00123"]), "00123"),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array(["é"], pa.large_string()), "é"),
        (pa.array([b"M\xc3\xbcller"]), "Müller"),
        (pa.array([31612345678]), "31612345678"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
        (pa.array([7.0]), "7"),
        (pa.array([1e22]), "10000000000000000000000"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([0.1], pa.float16()), "0.1"),
        (pa.array([Decimal("1.50")]), "1.5"),
        (pa.array([Decimal("1E+3")], pa.decimal128(10, 2)), "1000"),
        (pa.array([True]), "true"),
        (pa.array([dt.date(1980, 2, 29)]), "1980-02-29"),
        (pa.array([1577934245000], pa.timestamp("ms")), "2020-01-02T03:04:05"),
        (pa.array([1577934245123456789], pa.timestamp("ns", "UTC")), "2020-01-02T03:04:05.123456789+00:00"),
        # Python's `datetime` cannot have this year
        (pa.array([253402300800], pa.timestamp("s")), "10000-01-01 00:00:00.000"),
        (pa.array([dt.time(13, 5)]), "13:05:00"),
        (pa.array([["a", "b, c", None]]), '["a","b, c"]'),
        (pa.array([[1, 2]]), '["1","2"]'),
        (pa.array([[b"M\xc3\xbcller"]]), '["Müller"]'),
        (pa.array([float("nan")]), None),
        (pa.array([float("nan")], pa.float32()), None),
        (pa.array([None], pa.string()), None),
        (pa.array([None], pa.null()), None),
        (pa.array([None], pa.list_(pa.string())), None),
    ],
)
def test_a_value_of_a_column_is_read_as_its_text(tmp_path: Path, array: pa.Array, text: str | None) -> None:
    frame = read_frame(write_table(tmp_path, pa.table({"key": array})))
    assert frame.astype(object).where(frame.notna(), None)["key"].tolist() == [text]


def test_structs_are_flattened_at_any_depth(tmp_path: Path) -> None:
    people = [{"city": "X", "geo": {"lat": 1.5}}, None, {"city": None, "geo": None}]
    frame = read_frame(write_table(tmp_path, pa.table({"email": ["a", "b", "c"], "address": people})))
    assert list(frame.columns) == ["email", "address.city", "address.geo.lat"]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == [
        ["a", "X", "1.5"],
        ["b", None, None],
        ["c", None, None],
    ]


def test_bytes_that_are_not_utf8_reject_their_row(tmp_path: Path) -> None:
    broken_array = pa.Array.from_buffers(pa.string(), 3, [None, *pa.array([b"ok", b"M\xfc", b"x"]).buffers()[1:]])
    (chunk,) = read_chunks(write_table(tmp_path, pa.table({"email": broken_array, "n": [1, 2, 3]})))
    assert chunk.frame["email"].tolist() == ["ok", "x"]
    assert chunk.row_numbers.tolist() == [1, 3]
    (row,) = chunk.malformed_rows
    assert (row.number, row.line, row.code) == (2, None, "encoding")
    assert row.message == "column email holds bytes that are not UTF-8 (0xFC)"
    assert row.raw_record == r'{"email":"M\\xfc","n":"2"}'


def test_bytes_that_are_not_utf8_in_lists_and_objects_reject_their_row(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(pa.string(), 2, [None, *pa.array([b"ok", b"M\xfc"]).buffers()[1:]])
    for cells in (
        [b"ok", b"\xff"], [[b"ok"], [b"\xff"]], [[{"k": b"ok"}], [{"k": b"\xff"}]],
        pa.ListArray.from_arrays([0, 1, 2], texts),
    ):  # fmt: skip
        (chunk,) = read_chunks(write_table(tmp_path, pa.table({"email": ["a@x.org", "b@x.org"], "key": cells})))
        assert chunk.frame["email"].tolist() == ["a@x.org"]
        assert [(row.number, row.code) for row in chunk.malformed_rows] == [(2, "encoding")]


def test_a_file_with_damage_in_the_middle_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = write_table(tmp_path, pa.table({"n": range(60_000)}), row_group_size=20_000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = b"\xff" * 20_000
    path.write_bytes(content)
    with open_file(path) as source:
        chunks = source.read_chunks()
        assert len(next(chunks).frame) == 20_000
        with pytest.raises(ContentError, match="cannot be read after row 20000"):
            next(chunks)
