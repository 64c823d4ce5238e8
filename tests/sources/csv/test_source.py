"""CSV files: each row is read correctly or rejected with its line. No value moves into another column."""

from itertools import pairwise
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, SourceError
from tests.sources.csv.cases import FILES_REFUSED_AT_OPENING, FILES_REFUSED_AT_READING, READABLE_FILES, Case
from tests.sources.csv.reading import open_csv, read_file, write_file


@pytest.mark.parametrize("case", READABLE_FILES, ids=lambda case: case.kind)
def test_each_row_of_a_file_is_read_or_rejected_with_its_line(tmp_path: Path, case: Case) -> None:
    path = write_file(tmp_path, case.content)
    for chunk_size in (None, 16):
        file = read_file(path, chunk_size=chunk_size, **case.options)
        assert (file.columns, file.rows) == (case.columns, case.rows)
        assert tuple((row.line, row.code, row.raw_record) for row in file.malformed_rows) == case.rejected_rows
        assert case.row_numbers in (None, tuple(file.row_numbers))
        assert all(case.fault_text in row.message and "@" not in row.message for row in file.malformed_rows)
        assert (len(file.messages), case.message in "".join(file.messages)) == (1 if case.message else 0, True)
        for chunk in file.chunks:
            assert (chunk.name, {str(dtype) for dtype in chunk.frame.dtypes}) == (str(path), {"str"})
            assert (str(chunk.row_numbers.dtype), chunk.frame.index.tolist()) == ("int64", [*range(len(chunk.frame))])


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [case[1:] for case in FILES_REFUSED_AT_OPENING],
    ids=[kind for kind, _, _ in FILES_REFUSED_AT_OPENING],
)
def test_the_error_for_an_unreadable_header_shows_the_path_and_no_personal_data(
    tmp_path: Path, content: str | bytes, expected_text: str
) -> None:
    path = write_file(tmp_path, content)
    with pytest.raises(SourceError, match=expected_text) as error_info:
        open_csv(path)
    assert str(path) in str(error_info.value)
    assert "x.org" not in str(error_info.value)


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [case[1:] for case in FILES_REFUSED_AT_READING],
    ids=[kind for kind, _, _ in FILES_REFUSED_AT_READING],
)
def test_a_small_file_with_a_misplaced_quote_is_refused_before_its_first_row(
    tmp_path: Path, content: str, expected_text: str
) -> None:
    for line_ending, chunk_size in (("\n", None), ("\r\n", 8), ("\r", 8)):
        path = write_file(tmp_path, content.replace("\n", line_ending))
        with open_csv(path, chunk_size=chunk_size) as source:
            chunks = source.read_chunks()
            with pytest.raises(SourceError, match=expected_text) as error_info:
                next(chunks) if chunk_size is None else list(chunks)
        assert f"{path}: the record that begins on line " in str(error_info.value)
        assert "or save the file again as CSV" in str(error_info.value)
        assert not any(name in str(error_info.value) for name in ("Ann", "Dan", "Ben"))


@pytest.mark.parametrize("chunk_size", [None, 1, 30])
def test_a_row_has_the_number_that_a_spreadsheet_program_shows_for_it(tmp_path: Path, chunk_size: int | None) -> None:
    """Titles, the header, blank lines and lines of delimiters are rows of a spreadsheet. A `sep=` line is not a
    row."""
    lines = ["Contacts", "", "name,note", "row 4,", "", "  ", 'row 7,"two\n\nlines"', ",", "row 9,a,b", "row 10,"]
    for line_above in ("", "sep=,\r\n"):
        file = read_file(write_file(tmp_path, line_above + "\r\n".join(lines)), chunk_size=chunk_size)
        assert [row[0] for row in file.rows] == ["row 4", "row 7", "row 10"]
        assert file.row_numbers == [4, 7, 10]
        assert [(row.number, row.raw_record) for row in file.malformed_rows] == [(9, "row 9,a,b")]


def test_malformed_rows_are_in_the_chunk_of_the_rows_around_them(tmp_path: Path) -> None:
    content = "a,b\n" + "".join("1,\n" if n % 10_000 else "ragged\n" for n in range(1, 120_001))
    file = read_file(write_file(tmp_path, content), chunk_size=1 << 20)
    assert max(len(chunk.frame) for chunk in file.chunks) == 50_000
    assert sorted(file.row_numbers + [row.number for row in file.malformed_rows]) == list(range(2, 120_002))
    for earlier_chunk, later_chunk in pairwise(file.chunks):
        assert max(row.number for row in earlier_chunk.malformed_rows) < min(later_chunk.row_numbers)


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis"])
def test_a_character_across_the_border_of_two_chunks_is_read_correctly(tmp_path: Path, encoding: str) -> None:
    rows = [[str(index), "山田" * 20_000] for index in range(5)]
    path = write_file(tmp_path, ("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows)).encode(encoding))
    assert read_file(path, encoding=encoding, chunk_size=1000).rows == rows


@pytest.mark.parametrize(("line_ending", "chunk_size"), [(b"\n", 20), (b"\r\n", None)])
@pytest.mark.parametrize(
    "invalid_bytes",
    [b"M\xfcller", b"a\x00b", b"\xed\xa0\x80", b"\xc0\xaf", b'"\xff, ""x"""', b'"\xc3"', b'"a\n\xff\nb"'],
)
def test_a_row_with_an_invalid_byte_is_rejected_only_if_the_column_is_used(
    tmp_path: Path, invalid_bytes: bytes, line_ending: bytes, chunk_size: int | None
) -> None:
    lines = [
        b"email,junk,name", b"a@x.org," + invalid_bytes + b",Ann", b"b@x.org,ok,Bob",
        b"c@x.org," + invalid_bytes + b",C\xfc", b"d@x.org,,D",
    ]  # fmt: skip
    path = write_file(tmp_path, line_ending.join(lines) + line_ending)
    with open_csv(path, chunk_size=chunk_size, encoding="utf-8") as source:
        for columns, letters_of_expected_emails in (
            (["email"], "abcd"), (["name"], "abd"), (["email", "junk"], "bd"), (None, "bd"), ([], "abcd"),
        ):  # fmt: skip
            chunks = list(source.read_chunks(columns))
            emails = [row for chunk in chunks for row in chunk.frame["email"].tolist()]
            record_numbers = [record_number for chunk in chunks for record_number in chunk.row_numbers.tolist()]
            assert emails == [f"{letter}@x.org" for letter in letters_of_expected_emails]
            assert record_numbers == ["abcd".index(letter) + 2 for letter in letters_of_expected_emails]
            assert [row.number for chunk in chunks for row in chunk.malformed_rows] == [
                record_number for record_number in (2, 3, 4, 5) if record_number not in record_numbers
            ]


def test_a_row_is_rejected_if_a_fault_may_shift_its_cells_even_in_an_unused_column(tmp_path: Path) -> None:
    content = b'email,junk,name\na@x.org,"a"b\xff,Ann\nb@x.org,\xff,x,Bob\nc@x.org,"\x00"d,C\nd@x.org,,D\n'
    with open_csv(write_file(tmp_path, content)) as source:
        (chunk,) = source.read_chunks(["email"])
    assert chunk.frame["email"].tolist() == ["d@x.org"]
    assert [row.number for row in chunk.malformed_rows] == [2, 3, 4]


def test_the_reported_text_of_a_malformed_row_has_no_control_characters(tmp_path: Path) -> None:
    control_bytes = bytes(octet for octet in (*range(32), 127) if octet not in b"\r\n")
    (row,) = read_file(write_file(tmp_path, b"a,b\n" + control_bytes + b"\xff," + b"x" * 400 + b"\n")).malformed_rows
    expected_text = "".join("\t" if octet == 9 else f"\\x{octet:02x}" for octet in (*control_bytes, 0xFF))
    assert row.raw_record == f"{expected_text},{'x' * 400}"
    (ragged_row,) = read_file(write_file(tmp_path, b'a,b\n"\x1b\t\r\n",2,3\n')).malformed_rows
    assert ragged_row.raw_record == '"\\x1b\t\r\n",2,3'


def test_a_file_with_a_quote_that_is_not_closed_within_16_mebibytes_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, 'a,b\n1,2\n3,"' + "no row\n" * 2_500_000)
    with pytest.raises(SourceError, match="begins on line 3 is longer than 16 MiB"):
        read_file(path)


def test_a_record_that_is_too_large_is_reported_with_its_first_characters(tmp_path: Path) -> None:
    cell = "x" * (1 << 20)
    (row,) = read_file(write_file(tmp_path, f"a,b\n1,2\n3,{cell}\n5,6\n")).malformed_rows
    assert (row.number, row.line, row.code, row.raw_record) == (3, 3, "oversized", f"3,{cell[: (1 << 16) - 2]}…")
    assert "longer than 1024 KiB" in row.message
    largest_cell = "y" * ((1 << 20) - 2)
    assert read_file(write_file(tmp_path, f"a,b\n1,{largest_cell}\n")).rows == [["1", largest_cell]]


GOOD_ROWS = "a@x.org,Ann,Lee,\n" * 9
EXPECTED_ROWS = [["a@x.org", "Ann", "Lee"]] * 9


@pytest.mark.parametrize(
    ("delimiter", "line_ending", "chunk_size"), [(",", "\n", None), (";", "\r\n", 20), ("\t", "\n", 20)]
)
def test_a_delimiter_at_the_end_of_every_row_is_left_out(
    tmp_path: Path, delimiter: str, line_ending: str, chunk_size: int | None
) -> None:
    text = f'email,first,last\n{GOOD_ROWS}b@x.org,"Bo, Jr.",,\n,,,\n'.replace("\n", line_ending)
    text = text.replace("Bo, Jr.", "Bo~ Jr.").replace(",", delimiter).replace("~", ",")
    file = read_file(write_file(tmp_path, text), chunk_size=chunk_size)
    assert (file.rows, file.malformed_rows) == ([*EXPECTED_ROWS, ["b@x.org", "Bo, Jr.", ""]], [])
    assert ["its rows end with a delimiter" in message for message in file.messages] == [True]


@pytest.mark.parametrize(
    "row", ["b@x.org,Bob,Vos", "b@x.org,Bob,", "b@x.org,Vos, Bob,Jr.", "b@x.org,Vos, Bob,Jr.,"], ids=len
)
def test_a_row_without_the_trailing_delimiter_of_the_other_rows_is_rejected(tmp_path: Path, row: str) -> None:
    for chunk_size in (None, 20):
        path = write_file(tmp_path, f"email,first,last\n{GOOD_ROWS}{row}\n{GOOD_ROWS}")
        file = read_file(path, chunk_size=chunk_size)
        assert file.rows == EXPECTED_ROWS * 2
        assert [(row.number, row.line, row.code, row.raw_record) for row in file.malformed_rows] == [
            (11, 11, "ragged", row)
        ]


@pytest.mark.parametrize(
    "rows", ["a@x.org,Ann,Lee,x\n" * 9, "a@x.org,Ann,Lee,,\n" * 9, "a@x.org,Ann,Lee\n" * 9 + GOOD_ROWS]
)
def test_rows_with_more_cells_than_the_header_are_rejected(tmp_path: Path, rows: str) -> None:
    file = read_file(write_file(tmp_path, f"email,first,last\n{rows}"))
    assert [row.code for row in file.malformed_rows] == ["ragged"] * 9


def test_a_delimiter_at_the_end_of_the_header_makes_a_column_without_a_name(tmp_path: Path) -> None:
    with open_csv(write_file(tmp_path, f"email,first,last,\n{GOOD_ROWS}")) as source:
        assert source.columns == ("email", "first", "last", "column 4")


def test_a_delimiter_or_an_encoding_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a,b\n")
    for delimiter in ("", ",,", '"', "\n", "€"):
        with pytest.raises(ConfigurationError, match="delimiter"):
            open_csv(path, delimiter=delimiter)
    for encoding in ("utf-9", "base64", "", "a\0b"):
        with pytest.raises(ConfigurationError, match="encoding"):
            open_csv(path, encoding=encoding)
