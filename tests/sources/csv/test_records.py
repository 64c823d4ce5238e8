"""Where records begin and end, against Python's own csv module and pyarrow's parser, on generated text."""

import csv
import io
from typing import Literal

from hypothesis import given, strategies as st

from connector.sources.csv import CsvDialect, parse_block
from connector.sources.csv_records import find_records

wild = st.text(alphabet='ab",\n\r ', max_size=40)
cell = st.text(alphabet='aä€",;\n\r ', max_size=6)
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cell, min_size=width, max_size=width), max_size=8))


@given(wild, st.integers(1, 3))
def test_whatever_the_text_pyarrow_finds_the_same_records(text: str, width: int) -> None:
    block = text.encode()
    parsed = parse_block(block, find_records(block, ",", is_last=True), CsvDialect(",", width, "utf-8"))
    assert parsed.table.num_rows + len(parsed.failed) == int(parsed.is_record.sum())


@given(wild, st.integers(0, 40))
def test_a_cut_anywhere_moves_no_record(text: str, at: int) -> None:
    whole = find_records(text.encode(), ",", is_last=True)
    part = find_records(text.encode()[:at], ",", is_last=False)
    assert part.stops.tolist() == whole.stops[: len(part)].tolist()
    assert part.nexts.tolist() == whole.nexts[: len(part)].tolist()


@given(tables, st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_the_csv_module_writes_is_read_as_it_was(rows: list[list[str]], ending: str) -> None:
    written = io.StringIO(newline="")
    # Python 3.11 leaves a line break bare that is not its own lineterminator; where that is both, it quotes enough.
    quoting: Literal[0, 1] = csv.QUOTE_MINIMAL if ending == "\r\n" else csv.QUOTE_ALL
    csv.writer(written, lineterminator=ending, quoting=quoting).writerows(rows)
    block = written.getvalue().encode()
    width = len(rows[0]) if rows else 1
    parsed = parse_block(block, find_records(block, ",", is_last=True), CsvDialect(",", width, "utf-8"))
    given_rows = [list(row.values()) for row in parsed.table.to_pylist()]
    assert not parsed.failed
    # A line of blanks alone is no record, so rows of blanks are left out on both sides.
    assert [row for row in given_rows if "".join(row).strip()] == [row for row in rows if "".join(row).strip()]


@given(wild, st.integers(1, 3))
def test_no_cell_holds_what_the_csv_module_does_not_find_in_its_record(text: str, width: int) -> None:
    block = text.encode()
    records = find_records(block, ",", is_last=True)
    parsed = parse_block(block, records, CsvDialect(",", width, "utf-8"))
    for row, place in zip(parsed.table.to_pylist(), parsed.places.tolist(), strict=True):
        record = block[records.starts[place] : records.stops[place]].decode()
        found = next(csv.reader(io.StringIO(record, newline=""), strict=True, skipinitialspace=True))
        # csv drops the spaces before bare cells as well; here they are kept: what they mean is not a parser's to say.
        assert [cell.lstrip(" ") for cell in row.values()] == [cell.lstrip(" ") for cell in found]


def test_spaces_before_a_quote_are_no_part_of_the_cell() -> None:
    block = b'"a",  "b, ""c""", " d "\n  "e",f , "g"\n'
    parsed = parse_block(block, find_records(block, ",", is_last=True), CsvDialect(",", 3, "utf-8"))
    assert [list(row.values()) for row in parsed.table.to_pylist()] == [["a", 'b, "c"', " d "], ["e", "f ", "g"]]
    assert not parsed.failed


def test_a_quote_left_open_is_told_only_where_the_file_ends() -> None:
    assert find_records(b'a,"b\nc', ",", is_last=True).is_unclosed
    assert not find_records(b'a\n"b\nc', ",", is_last=False).is_unclosed
