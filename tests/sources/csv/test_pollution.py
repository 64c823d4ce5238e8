"""Polluted CSV files: each row is read correctly or rejected with its line. No value moves into another column."""

from pathlib import Path

import pytest

from connector.errors import SourceError
from tests.sources.csv.polluted_files import FILES_REFUSED_AT_OPENING, FILES_REFUSED_AT_READING, READABLE_FILES, Case
from tests.sources.csv.reading import open_csv, read_chunks, write_file


@pytest.mark.parametrize("case", READABLE_FILES, ids=lambda case: case.kind)
def test_each_row_of_a_polluted_file_is_read_or_rejected_with_its_line(tmp_path: Path, case: Case) -> None:
    assert case.reason or not case.rejected_rows
    for chunk_bytes in (None, 16):
        with open_csv(write_file(tmp_path, case.content), chunk_bytes=chunk_bytes) as source:
            columns, chunks = source.columns, list(source.read_chunks())
        assert columns == case.columns
        assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == case.rows
        malformed_rows = [row for chunk in chunks for row in chunk.malformed_rows]
        assert tuple((row.line, row.code) for row in malformed_rows) == case.rejected_rows
        messages = [message for chunk in chunks for message in chunk.messages]
        assert len(messages) == (1 if case.message else 0)
        assert case.message in "".join(messages)


@pytest.mark.parametrize(
    ("kind", "content", "expected_text"),
    FILES_REFUSED_AT_OPENING,
    ids=[kind for kind, _, _ in FILES_REFUSED_AT_OPENING],
)
def test_a_file_without_a_certain_header_is_refused_at_opening(
    tmp_path: Path, kind: str, content: str | bytes, expected_text: str
) -> None:
    with pytest.raises(SourceError, match=expected_text):
        open_csv(write_file(tmp_path, content))


@pytest.mark.parametrize(
    ("kind", "content", "expected_text"),
    FILES_REFUSED_AT_READING,
    ids=[kind for kind, _, _ in FILES_REFUSED_AT_READING],
)
def test_a_small_file_that_hides_rows_is_refused_before_its_first_row(
    tmp_path: Path, kind: str, content: str, expected_text: str
) -> None:
    with open_csv(write_file(tmp_path, content)) as source, pytest.raises(SourceError, match=expected_text):
        next(source.read_chunks())


GOOD_ROWS = "a@x.org,Ann,Lee,\n" * 9
EXPECTED_ROWS = [["a@x.org", "Ann", "Lee"]] * 9


@pytest.mark.parametrize(
    ("delimiter", "ending", "chunk_bytes"), [(",", "\n", None), (";", "\r\n", 20), ("\t", "\n", 20)]
)
def test_a_delimiter_at_the_end_of_every_row_is_left_out(
    tmp_path: Path, delimiter: str, ending: str, chunk_bytes: int | None
) -> None:
    text = f'email,first,last\n{GOOD_ROWS}b@x.org,"Bo, Jr.",,\n,,,\n'.replace("\n", ending)
    text = text.replace("Bo, Jr.", "Bo~ Jr.").replace(",", delimiter).replace("~", ",")
    chunks = read_chunks(write_file(tmp_path, text), chunk_bytes=chunk_bytes)
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == [
        *EXPECTED_ROWS,
        ["b@x.org", "Bo, Jr.", ""],
    ]
    assert [row for chunk in chunks for row in chunk.malformed_rows] == []
    assert ["its rows end with a delimiter" in message for chunk in chunks for message in chunk.messages] == [True]


@pytest.mark.parametrize(
    "row", ["b@x.org,Bob,Vos", "b@x.org,Bob,", "b@x.org,Vos, Bob,Jr.", "b@x.org,Vos, Bob,Jr.,"], ids=len
)
def test_a_row_without_a_delimiter_at_its_end_is_rejected(tmp_path: Path, row: str) -> None:
    for chunk_bytes in (None, 20):
        chunks = read_chunks(
            write_file(tmp_path, f"email,first,last\n{GOOD_ROWS}{row}\n{GOOD_ROWS}"), chunk_bytes=chunk_bytes
        )
        assert [cells for chunk in chunks for cells in chunk.frame.to_numpy().tolist()] == EXPECTED_ROWS * 2
        malformed_rows = [row for chunk in chunks for row in chunk.malformed_rows]
        assert [
            (malformed_row.number, malformed_row.line, malformed_row.code, malformed_row.raw_record)
            for malformed_row in malformed_rows
        ] == [(11, 11, "ragged", row)]


@pytest.mark.parametrize(
    "rows", ["a@x.org,Ann,Lee,x\n" * 9, "a@x.org,Ann,Lee,,\n" * 9, "a@x.org,Ann,Lee\n" * 9 + GOOD_ROWS]
)
def test_rows_with_more_cells_than_the_header_are_still_rejected(tmp_path: Path, rows: str) -> None:
    chunks = read_chunks(write_file(tmp_path, f"email,first,last\n{rows}"))
    assert {row.code for chunk in chunks for row in chunk.malformed_rows} == {"ragged"}
    assert sum(len(chunk.malformed_rows) for chunk in chunks) == 9


def test_a_delimiter_at_the_end_of_the_header_makes_a_column_without_a_name(tmp_path: Path) -> None:
    with open_csv(write_file(tmp_path, f"email,first,last,\n{GOOD_ROWS}")) as source:
        assert source.columns == ("email", "first", "last", "column 4")
