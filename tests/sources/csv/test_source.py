"""CSV files: delimiters, quotes, blanks, encodings, names of columns, and refused files."""

import gzip
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, SourceError
from tests.sources.csv.reading import open_csv, read_chunks, read_rows, write_file


def test_a_cell_is_read_as_unchanged_text(tmp_path: Path) -> None:
    path = write_file(tmp_path, "id,phone,note,empty\n007,+31612345678, 1.50 ,\nNULL,NA,nan,\n")
    (chunk,) = read_chunks(path)
    assert chunk.frame.to_numpy().tolist() == [["007", "+31612345678", " 1.50 ", ""], ["NULL", "NA", "nan", ""]]
    assert [str(dtype) for dtype in chunk.frame.dtypes] == ["str"] * 4
    assert chunk.row_numbers.tolist() == [2, 3]
    assert chunk.row_numbers.dtype == "int64"
    assert chunk.frame.index.tolist() == [0, 1]
    assert chunk.name == str(path)


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis"])
def test_a_character_across_the_border_of_two_chunks_is_read_correctly(tmp_path: Path, encoding: str) -> None:
    rows = [[str(index), "山田" * 20_000] for index in range(5)]
    path = write_file(tmp_path, ("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows)).encode(encoding))
    chunks = read_chunks(path, encoding=encoding, chunk_bytes=1000)
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == rows


def test_the_delimiter_is_guessed_from_the_cells_unless_an_option_names_the_delimiter(tmp_path: Path) -> None:
    path = write_file(tmp_path, "email;name\n" + "a@x.com;Doe, Ann, Dr\n" * 50)
    assert read_rows(path)[0] == ["a@x.com", "Doe, Ann, Dr"]
    assert read_rows(write_file(tmp_path, "a|b|c;d\n1|2|3;4\n")) == [["1", "2", "3;4"]]
    assert read_rows(write_file(tmp_path, "a:b\n1:2\n"), delimiter=":") == [["1", "2"]]
    assert read_rows(write_file(tmp_path, "a\tb\n1\t2\n"), delimiter="tab") == [["1", "2"]]


@pytest.mark.parametrize("chunk_bytes", [None, 1, 30])
def test_a_row_has_the_number_that_a_spreadsheet_program_shows_for_it(tmp_path: Path, chunk_bytes: int | None) -> None:
    """Titles, the header, blank lines and lines of delimiters are rows of a spreadsheet. A `sep=` line is not a
    row."""
    lines = ["Contacts", "", "name,note", "row 4,", "", "  ", 'row 7,"two\n\nlines"', ",", "row 9,a,b", "row 10,"]
    for line_above in ("", "sep=,\r\n"):
        chunks = read_chunks(write_file(tmp_path, line_above + "\r\n".join(lines)), chunk_bytes=chunk_bytes)
        name_by_record_number = {
            record_number: name
            for chunk in chunks
            for record_number, name in zip(chunk.row_numbers.tolist(), chunk.frame["name"], strict=True)
        }
        assert name_by_record_number == {4: "row 4", 7: "row 7", 10: "row 10"}
        assert [(row.number, row.raw_record) for chunk in chunks for row in chunk.malformed_rows] == [(9, "row 9,a,b")]


def test_the_delimiter_line_of_excel_is_not_the_header(tmp_path: Path) -> None:
    path = write_file(tmp_path, "sep=;\r\nemail;name\r\na@x.com;Ann\r\nragged\r\n")
    (chunk,) = read_chunks(path)
    assert chunk.frame.to_dict("list") == {"email": ["a@x.com"], "name": ["Ann"]}
    assert chunk.malformed_rows[0].line == 4


def test_a_quote_inside_an_unquoted_cell_is_text(tmp_path: Path) -> None:
    path = write_file(tmp_path, 'size,name\n5" pipe,Ann\nx,Bob "the" Lee\n12" screen,"a, b"\n"x ""y""",z\n')
    assert read_rows(path) == [['5" pipe', "Ann"], ["x", 'Bob "the" Lee'], ['12" screen', "a, b"], ['x "y"', "z"]]


@pytest.mark.parametrize(
    "row",
    ['Ann"Lee, Jr",Graz', 'Ann "Lee, Jr"', '5",6",7', 'Ann ""Lee, Jr"",Graz', 'a,Ann \\"Lee, Jr\\"', 'a"b"c"d,e"f,g'],
)
def test_quotes_inside_an_unquoted_cell_that_enclose_a_delimiter_reject_the_row(tmp_path: Path, row: str) -> None:
    """The row fits the header if its quotes are text, and has fewer cells if its quotes enclose cells."""
    width = row.count(",") + 1
    header, good_row = ",".join(f"c{index}" for index in range(width)), ",".join(["x"] * width)
    for chunk_bytes in (None, 16):
        chunks = read_chunks(
            write_file(tmp_path, f"{header}\n{good_row}\n{row}\n{good_row}\n"), delimiter=",", chunk_bytes=chunk_bytes
        )
        assert [cells for chunk in chunks for cells in chunk.frame.to_numpy().tolist()] == [["x"] * width] * 2
        assert [
            (malformed_row.line, malformed_row.code, malformed_row.raw_record)
            for chunk in chunks
            for malformed_row in chunk.malformed_rows
        ] == [(3, "ambiguous_quote", row)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_line_with_only_blanks_is_not_a_record(tmp_path: Path, delimiter: str) -> None:
    lines = ["  ", "a,b,c", " ", "1,2,3", "   ", "", "ragged ", ",,", "4,5, ", "  \r"]
    path = write_file(tmp_path, "\n".join(lines).replace(",", delimiter))
    (chunk,) = read_chunks(path)
    assert chunk.frame.to_numpy().tolist() == [["1", "2", "3"], ["4", "5", " "]]
    assert chunk.row_numbers.tolist() == [4, 9]
    assert [(row.number, row.line, row.code) for row in chunk.malformed_rows] == [(7, 7, "ragged")]


def test_a_delimiter_does_not_count_as_a_blank(tmp_path: Path) -> None:
    (chunk,) = read_chunks(write_file(tmp_path, "a\tb\tc\n1\t2\t3\n\t\n\t\t\n"))
    assert chunk.row_numbers.tolist() == [2]
    assert [(row.number, row.code) for row in chunk.malformed_rows] == [(3, "ragged")]
    (comma_chunk,) = read_chunks(write_file(tmp_path, "a,b\n1,2\n\t \t\n"))
    assert comma_chunk.malformed_rows == ()


def test_a_byte_that_the_named_encoding_does_not_have_rejects_its_row(tmp_path: Path) -> None:
    (chunk,) = read_chunks(write_file(tmp_path, b"a,b\n1,\x81\n2,\xe9\n"), encoding="cp1252")
    assert chunk.frame.to_numpy().tolist() == [["2", "é"]]
    assert [(row.number, row.code, row.raw_record) for row in chunk.malformed_rows] == [(2, "encoding", "1,\ufffd")]
    assert "source.file.encoding in a job" in chunk.malformed_rows[0].message


@pytest.mark.parametrize("byte_count_before", range(3))
def test_a_character_at_any_place_of_a_read_is_decoded(tmp_path: Path, byte_count_before: int) -> None:
    # The euro sign has three bytes, so two of the three tests have a character across the border of two reads.
    cell = "x" * byte_count_before + "€" * 100_000
    assert read_rows(write_file(tmp_path, f"a,b\n{cell},1\n")) == [[cell, "1"]]


def test_a_byte_order_mark_after_the_first_bytes_stays_in_the_text(tmp_path: Path) -> None:
    with open_csv(write_file(tmp_path, "abc,\ufeffd\n1,2\n")) as source:
        assert source.columns == ("abc", "\ufeffd")


def test_numbers_and_lines_of_records_continue_over_chunks(tmp_path: Path) -> None:
    content = "a,b\n" + "".join(f'{n},"x\n"\n' if n % 5 else f"ragged {n}\n" for n in range(2, 1002))
    chunks = read_chunks(write_file(tmp_path, content), chunk_bytes=500)
    assert len(chunks) > 5
    for chunk in chunks:
        assert chunk.frame["a"].astype(int).tolist() == chunk.row_numbers.tolist()
        assert all(row.raw_record == f"ragged {row.number}" for row in chunk.malformed_rows)
    lines = content.split("\n")
    assert all(lines[row.line - 1] == row.raw_record for chunk in chunks for row in chunk.malformed_rows if row.line)
    assert sum(len(chunk.malformed_rows) for chunk in chunks) == 200


def test_column_names_are_trimmed_and_made_unique_and_missing_names_are_added(tmp_path: Path) -> None:
    with open_csv(write_file(tmp_path, '\ufeff"Email", Name ,,Email,Email (2),"two\nlines"\n1,2,3,4,5,6\n')) as source:
        assert source.columns == ("Email", "Name", "column 3", "Email (3)", "Email (2)", "two\nlines")


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        (b"\xef\xbb\xbf", "is empty"),
        (b"PK\x03\x04....", "cut off or damaged"),
        (gzip.compress(gzip.compress(b"a,b\n1,2\n", mtime=0), mtime=0), "gzip"),
        (bytes(range(256)) * 20, "binary file"),
        ("a,b\n1,2\n".encode("utf-32-le"), "--encoding utf-16-le, or source.file.encoding in a job"),
        (b"1,2\n3,4\n", "no header"),
        (b"No\xebl,Zo\xeb\n1,2\n", "--encoding cp1252, or source.file.encoding in a job"),
        (b'"Email"x,Name\n1,2\n', "header cannot be read"),
    ],
)
def test_the_error_of_a_file_that_is_not_csv_shows_the_reason(
    tmp_path: Path, content: bytes, expected_text: str
) -> None:
    path = write_file(tmp_path, content)
    with pytest.raises(SourceError) as error_info:
        open_csv(path)
    assert expected_text in str(error_info.value)
    assert str(path) in str(error_info.value)


def test_the_error_of_a_refused_file_shows_no_data_of_a_person(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error_info:
        open_csv(write_file(tmp_path, "secret@x.com,Ann\n"))
    assert "secret" not in str(error_info.value)


def test_a_delimiter_or_an_encoding_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a,b\n")
    for delimiter in ("", ",,", '"', "\n", "€"):
        with pytest.raises(ConfigurationError, match="delimiter"):
            open_csv(path, delimiter=delimiter)
    for encoding in ("utf-9", "base64", "", "a\0b"):
        with pytest.raises(ConfigurationError, match="encoding"):
            open_csv(path, encoding=encoding)
