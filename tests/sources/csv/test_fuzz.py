"""Comparison with Python's csv module: the source reads the same cells from the same bytes."""

import csv
import io
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hypothesis import assume, given, strategies as st

from connector.errors import SourceError
from connector.sources.csv import CsvDialect, find_file_problem, parse_block
from connector.sources.csv_records import find_records
from tests.sources.csv.reading import read_file, write_file

CODE_PAGES = ("cp1250", "cp1251", "cp1252", "iso8859-1", "iso8859-2", "iso8859-15", "koi8-r")
NAMED_ENCODINGS = ("utf-8", "utf-16-le", "gb18030", *CODE_PAGES)
DETECTED_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")  # the source detects these encodings
SPECIAL_CHARACTERS = ",;\t| :\"'\\\r\n"

encodings_and_settings = st.one_of(
    st.tuples(st.sampled_from(DETECTED_ENCODINGS), st.just("auto")),
    st.sampled_from(NAMED_ENCODINGS).map(lambda name: (name, name)),
)
dialects = st.tuples(
    st.sampled_from([",", ";", "\t", "|", ":", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)


def draw_tables(encoding: str) -> st.SearchStrategy[list[list[str]]]:
    """Return a Hypothesis strategy of tables with letters of the encoding, many delimiters, quotes and line breaks."""
    letters = st.characters(exclude_categories=("Cc", "Cs"))
    if encoding in CODE_PAGES:  # without this, Hypothesis needs seconds to find the letters of a code page
        decoded_text = bytes(range(256)).decode(encoding, "ignore")
        letters = st.sampled_from([character for character in decoded_text if unicodedata.category(character) != "Cc"])
    cells = st.text(st.one_of(st.sampled_from(SPECIAL_CHARACTERS), letters), max_size=8)
    widths = st.integers(1, 4)
    return widths.flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=9)
    )


def write_table(
    rows: list[list[str]], delimiter: str, line_ending: str, quoting: Literal[0, 1, 2], encoding: str
) -> bytes:
    output = io.StringIO(newline="")
    writer = csv.writer(output, delimiter=delimiter, lineterminator=line_ending, quoting=quoting)
    writer.writerow([f"c{index}" for index in range(len(rows[0]))])
    writer.writerows(rows)
    return output.getvalue().encode(encoding)


def is_record(row: list[str], delimiter: str) -> bool:
    """Return whether the source reads the row as a record. The source skips a row whose cells contain only blanks, even
    if the cells are quoted."""
    return bool("".join(row).strip(" \t" if delimiter not in " \t" else " \t".replace(delimiter, "")))


@given(st.data(), encodings_and_settings, dialects, st.one_of(st.none(), st.integers(1, 40)))
def test_a_table_that_the_csv_module_writes_is_read_back_unchanged(
    data: st.DataObject,
    encoding_and_setting: tuple[str, str],
    dialect: tuple[str, str, Literal[0, 1, 2]],
    chunk_size: int | None,
) -> None:
    (encoding, encoding_setting), (delimiter, line_ending, quoting) = encoding_and_setting, dialect
    rows = data.draw(draw_tables(encoding))
    # Python 3.11 quotes a cell with CR or LF only if `lineterminator` contains this character.
    if quoting == csv.QUOTE_MINIMAL and line_ending != "\r\n":
        assume(not any(character in cell for row in rows for cell in row for character in "\r\n"))
    with TemporaryDirectory() as folder:
        path = write_file(Path(folder), write_table(rows, delimiter, line_ending, quoting, encoding))
        file = read_file(path, delimiter=delimiter, encoding=encoding_setting, chunk_size=chunk_size)
    assert file.malformed_rows == []
    assert [row for row in file.rows if is_record(row, delimiter)] == [row for row in rows if is_record(row, delimiter)]


@given(st.text(alphabet='ab",\n\r ', max_size=60), st.integers(1, 20))
def test_the_size_of_the_blocks_does_not_change_the_records(text: str, chunk_size: int) -> None:
    unsplit_records, split_records = (read_records("x,y\n" + text, size) for size in (None, chunk_size))
    assert unsplit_records == split_records
    if not isinstance(unsplit_records, str):
        record_numbers = {record_number for record_number, _ in unsplit_records}
        assert len(record_numbers) == len(unsplit_records)
        assert 1 not in record_numbers
        assert max(record_numbers, default=1) <= 1 + len(text.splitlines())


@given(
    st.lists(st.sampled_from(["", " ", ",", "1,2", '"a\nb",c', '"d ""e""\r\n\n",f']), max_size=12), st.integers(1, 20)
)
def test_a_record_has_the_number_that_another_csv_reader_counts(lines_below_header: list[str], chunk_size: int) -> None:
    lines = ["x,y", *lines_below_header]
    expected_rows = [
        (record_number, cells)
        for record_number, cells in enumerate(csv.reader(io.StringIO("\n".join(lines) + "\n", newline="")), 1)
        if record_number > 1 and "".join(cells).strip()
    ]
    assert read_records("\n".join(lines) + "\n", chunk_size) == expected_rows


def read_records(text: str, chunk_size: int | None) -> list[tuple[int, object]] | str:
    """Return the number of each record with its cells, or with its line, text and code if the record is malformed. If
    the file is refused, return the error."""
    with TemporaryDirectory() as folder:
        try:
            file = read_file(write_file(Path(folder), text), delimiter=",", chunk_size=chunk_size)
        except SourceError as error:
            return str(error).replace(folder, "")
    return [
        *zip(file.row_numbers, file.rows, strict=True),
        *((row.number, (row.line, row.raw_record, row.code)) for row in file.malformed_rows),
    ]


RANDOM_TEXTS = st.text(alphabet='ab",\n\r ', max_size=40)


@given(RANDOM_TEXTS, st.integers(1, 3))
def test_the_cells_of_a_record_are_the_cells_that_the_csv_module_finds(text: str, width: int) -> None:
    block = text.encode()
    records, dialect = find_records(block, ",", is_last=True), CsvDialect(",", width, "utf-8")
    assume(find_file_problem(block, records, dialect) is None)
    parsed_block = parse_block(block, records, dialect, range(width))
    for row, index in zip(parsed_block.table.to_pylist(), parsed_block.indices.tolist(), strict=True):
        record = block[records.starts[index] : records.stops[index]].decode()
        expected_row = next(csv.reader(io.StringIO(record, newline=""), strict=True))
        assert list(row.values()) == expected_row
