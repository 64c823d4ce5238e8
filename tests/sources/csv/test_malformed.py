"""Malformed records: the source reports their numbers and lines, and reads the other rows."""

from itertools import pairwise
from pathlib import Path

import pytest

from connector.errors import SourceError
from tests.sources.csv.reading import open_csv, read_chunks, write_file


def test_a_row_with_a_wrong_number_of_cells_is_reported_with_its_number_and_line(tmp_path: Path) -> None:
    path = write_file(tmp_path, 'a,b\n1,"x\ny"\n\nshort\n3,4\n5,6,7\n8,9\n')
    (chunk,) = read_chunks(path)
    assert chunk.frame.to_numpy().tolist() == [["1", "x\ny"], ["3", "4"], ["8", "9"]]
    assert chunk.row_numbers.tolist() == [2, 5, 7]
    short_row, long_row = chunk.malformed_rows
    assert (short_row.number, short_row.line, short_row.raw_record, short_row.code) == (4, 5, "short", "ragged")
    assert (long_row.number, long_row.line, long_row.raw_record, long_row.code) == (6, 7, "5,6,7", "ragged")
    assert "1 cells where the header has 2" in short_row.message


def test_a_byte_that_cannot_be_decoded_rejects_only_its_row(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a,b\nMüller,1\n".encode() + b"M\xfcller,2\nragged\xff,1,2\n" + "Ω,3\n".encode())
    (chunk,) = read_chunks(path)
    assert chunk.frame["a"].tolist() == ["Müller", "Ω"]
    assert chunk.row_numbers.tolist() == [2, 5]
    assert [(row.number, row.line, row.code) for row in chunk.malformed_rows] == [
        (3, 3, "encoding"),
        (4, 4, "encoding"),
    ]
    assert chunk.malformed_rows[0].raw_record == r"M\xfcller,2"
    assert "0xFC" in chunk.malformed_rows[0].message
    assert "--encoding cp1252, or source.file.encoding in a job" in chunk.malformed_rows[0].message


@pytest.mark.parametrize(("line_ending", "chunk_bytes"), [(b"\n", 20), (b"\r\n", None)])
@pytest.mark.parametrize(
    "invalid_bytes",
    [b"M\xfcller", b"a\x00b", b"\xed\xa0\x80", b"\xc0\xaf", b'"\xff, ""x"""', b'"\xc3"', b'"a\n\xff\nb"'],
)
def test_a_byte_that_is_not_text_rejects_its_row_only_in_a_used_column(
    tmp_path: Path, invalid_bytes: bytes, line_ending: bytes, chunk_bytes: int | None
) -> None:
    lines = [
        b"email,junk,name",
        b"a@x.org," + invalid_bytes + b",Ann",
        b"b@x.org,ok,Bob",
        b"c@x.org," + invalid_bytes + b",C\xfc",
        b"d@x.org,,D",
    ]
    path = write_file(tmp_path, line_ending.join(lines) + line_ending)
    with open_csv(path, chunk_bytes=chunk_bytes, encoding="utf-8") as source:
        for columns, expected_letters in (
            (["email"], "abcd"),
            (["name"], "abd"),
            (["email", "junk"], "bd"),
            (None, "bd"),
            ([], "abcd"),
        ):
            chunks = list(source.read_chunks(columns))
            emails = [row for chunk in chunks for row in chunk.frame["email"].tolist()]
            record_numbers = [record_number for chunk in chunks for record_number in chunk.row_numbers.tolist()]
            assert emails == [f"{letter}@x.org" for letter in expected_letters]
            assert record_numbers == ["abcd".index(letter) + 2 for letter in expected_letters]
            assert [row.number for chunk in chunks for row in chunk.malformed_rows] == [
                record_number for record_number in (2, 3, 4, 5) if record_number not in record_numbers
            ]


def test_a_fault_that_may_shift_cells_rejects_its_row_even_in_an_unused_column(tmp_path: Path) -> None:
    path = write_file(
        tmp_path, b'email,junk,name\na@x.org,"a"b\xff,Ann\nb@x.org,\xff,x,Bob\nc@x.org,"\x00"d,C\nd@x.org,,D\n'
    )
    with open_csv(path) as source:
        (chunk,) = source.read_chunks(["email"])
    assert chunk.frame["email"].tolist() == ["d@x.org"]
    assert [row.number for row in chunk.malformed_rows] == [2, 3, 4]


def test_the_reported_text_of_a_malformed_row_has_no_control_characters(tmp_path: Path) -> None:
    control_bytes = bytes(octet for octet in (*range(32), 127) if octet not in b"\r\n")
    (chunk,) = read_chunks(write_file(tmp_path, b"a,b\n" + control_bytes + b"\xff," + b"x" * 400 + b"\n"))
    (row,) = chunk.malformed_rows
    expected_text = "".join("\t" if octet == 9 else f"\\x{octet:02x}" for octet in (*control_bytes, 0xFF))
    assert row.raw_record == f"{expected_text},{'x' * 400}"
    (ragged_row,) = read_chunks(write_file(tmp_path, b'a,b\n"\x1b\t\r\n",2,3\n'))[0].malformed_rows
    assert ragged_row.raw_record == '"\\x1b\t\r\n",2,3'


@pytest.mark.parametrize(("line_ending", "chunk_bytes"), [("\n", None), ("\r\n", 8), ("\r", 8)])
@pytest.mark.parametrize(
    "content",
    ['a,b\n1,2\n\n3,"Ann\n5,6\n', 'a,b\n1,2\n\n3,"Ann\n5,6\n9,"Dan"\n7,8', 'a,b\n1,2\n\n"3","Ann\n"5","Ben"\n"7","8"\n',
     'a,b\n1,2\n\n3,"Ann\n' + "5,6\n" * 30 + '4,"Ben\n7,8'],
)  # fmt: skip
def test_a_file_with_a_quote_that_encloses_other_rows_is_refused_with_the_line(
    tmp_path: Path, content: str, line_ending: str, chunk_bytes: int | None
) -> None:
    path = write_file(tmp_path, content.replace("\n", line_ending))
    with open_csv(path, chunk_bytes=chunk_bytes) as source, pytest.raises(SourceError) as error_info:
        list(source.read_chunks())
    assert f"{path}: the record that begins on line 4 has a quote that is " in str(error_info.value)
    assert "or save the file again as CSV" in str(error_info.value)
    assert "Ann" not in str(error_info.value)


@pytest.mark.parametrize(
    ("row", "chunk_bytes"), [('3, "Ann"', None), ('  "3",Ann', 8), ('3,   "Ann, Jr."', 8), ('3, "Ann', 8)]
)
def test_a_file_with_spaces_before_a_quote_is_refused_with_the_line(
    tmp_path: Path, row: str, chunk_bytes: int | None
) -> None:
    path = write_file(tmp_path, f'a,b\n1,2\n"x, ""y"" ",2\n{row}\n5, 6\n')
    with open_csv(path, chunk_bytes=chunk_bytes) as source, pytest.raises(SourceError) as error_info:
        list(source.read_chunks())
    assert "line 4 has spaces between the beginning of a cell and its quote" in str(error_info.value)
    with pytest.raises(SourceError, match="line 2 of its header has spaces"):
        open_csv(write_file(tmp_path, '\n"a", "b"\n1,2\n'))


def test_a_quote_that_is_open_at_the_end_of_the_last_line_rejects_this_row(tmp_path: Path) -> None:
    (chunk,) = read_chunks(write_file(tmp_path, 'a,b\n1,2\n3,"Ann'))
    assert chunk.frame.to_numpy().tolist() == [["1", "2"]]
    assert [(row.number, row.line, row.code, row.raw_record) for row in chunk.malformed_rows] == [
        (3, 3, "unclosed_quote", '3,"Ann')
    ]


def test_a_file_with_a_quote_that_is_not_closed_within_16_mebibytes_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, 'a,b\n1,2\n3,"' + "no row\n" * 2_500_000)
    with open_csv(path) as source, pytest.raises(SourceError, match="begins on line 3 is longer than 16 MiB"):
        list(source.read_chunks())


@pytest.mark.parametrize("row", ['3,"as I said\nyesterday"s mail', '3,"one\ntwo" x', '"3\n"x,y'])
def test_the_lines_of_a_faulty_cell_are_not_read_as_rows(tmp_path: Path, row: str) -> None:
    (chunk,) = read_chunks(write_file(tmp_path, f"a,b\n1,2\n{row}\n5,6\n"))
    assert chunk.frame["a"].tolist() == ["1", "5"]
    (malformed_row,) = chunk.malformed_rows
    assert (malformed_row.line, malformed_row.code, malformed_row.raw_record) == (3, "stray_quote", row)
    assert "includes 1 more line, which was not read as a row" in malformed_row.message


@pytest.mark.parametrize(
    "stray_text",
    ['"q1@ex.com"garbage,A', 'q2@ex.com,"Jo "the man" Doe"', r'q3@ex.com,"A\"b\""', '"q4@ex.com" ,A', '"a""b"c,A',
     'q5@ex.com,"a"""b', '"a\nb"c,"d"', '"a"b,ragged,too'],
)  # fmt: skip
@pytest.mark.parametrize("chunk_bytes", [None, 20])
def test_a_cell_with_text_after_its_closing_quote_rejects_only_its_row(
    tmp_path: Path, stray_text: str, chunk_bytes: int | None
) -> None:
    path = write_file(
        tmp_path, f'email,name\n"1@x.com","one\nline"\n{stray_text}\n2@x.com,"a ""b"""\n{stray_text}\n3@x.com,c'
    )
    chunks = read_chunks(path, chunk_bytes=chunk_bytes)
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == [
        ["1@x.com", "one\nline"], ["2@x.com", 'a "b"'], ["3@x.com", "c"],
    ]  # fmt: skip
    malformed_rows = [row for chunk in chunks for row in chunk.malformed_rows]
    later_line = 6 + stray_text.count("\n")
    assert [(row.number, row.line, row.code) for row in malformed_rows] == [
        (3, 4, "stray_quote"),
        (5, later_line, "stray_quote"),
    ]
    assert {row.raw_record for row in malformed_rows} == {stray_text}
    assert "twice" in malformed_rows[0].message
    assert "@" not in malformed_rows[0].message


def test_a_record_that_is_too_large_is_reported_with_its_first_characters(tmp_path: Path) -> None:
    cell = "x" * (1 << 20)
    (chunk,) = read_chunks(write_file(tmp_path, f"a,b\n1,2\n3,{cell}\n5,6\n"))
    (row,) = chunk.malformed_rows
    assert (row.number, row.line, row.code, row.raw_record) == (3, 3, "oversized", f"3,{cell[: (1 << 16) - 2]}…")
    assert "longer than 1024 KiB" in row.message
    largest_cell = "y" * ((1 << 20) - 2)
    assert read_chunks(write_file(tmp_path, f"a,b\n1,{largest_cell}\n"))[0].frame["b"].tolist() == [largest_cell]


def test_malformed_rows_are_in_the_chunk_of_the_rows_around_them(tmp_path: Path) -> None:
    content = "a,b\n" + "".join("1,\n" if n % 10_000 else "ragged\n" for n in range(1, 120_001))
    chunks = read_chunks(write_file(tmp_path, content), chunk_bytes=1 << 20)
    assert max(len(chunk.frame) for chunk in chunks) == 50_000
    record_numbers = [record_number for chunk in chunks for record_number in chunk.row_numbers.tolist()]
    assert sorted(record_numbers + [row.number for chunk in chunks for row in chunk.malformed_rows]) == list(
        range(2, 120_002)
    )
    for earlier_chunk, later_chunk in pairwise(chunks):
        assert max(row.number for row in earlier_chunk.malformed_rows) < min(later_chunk.row_numbers)


def test_a_file_with_only_malformed_rows_is_read_as_empty_frames(tmp_path: Path) -> None:
    (chunk,) = read_chunks(write_file(tmp_path, "a,b\n1\n2\n"))
    assert chunk.frame.shape == (0, 2)
    assert [str(dtype) for dtype in chunk.frame.dtypes] == ["str", "str"]
    assert [row.number for row in chunk.malformed_rows] == [2, 3]
