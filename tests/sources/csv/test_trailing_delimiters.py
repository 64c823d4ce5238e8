"""Rows that end with a delimiter where the header does not: nobody is lost for it, and no value moves."""

from pathlib import Path

import pytest

from tests.sources.csv.reading import open_csv, read, write

GOOD = "a@x.org,Ann,Lee,\n" * 9
ROWS = [["a@x.org", "Ann", "Lee"]] * 9


@pytest.mark.parametrize("chunk_bytes", [None, 20])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_delimiter_at_the_end_of_every_row_is_left_out(
    tmp_path: Path, delimiter: str, ending: str, chunk_bytes: int | None
) -> None:
    text = f'email,first,last\n{GOOD}b@x.org,"Bo, Jr.",,\n,,,\n'.replace("\n", ending)
    text = text.replace("Bo, Jr.", "Bo~ Jr.").replace(",", delimiter).replace("~", ",")
    chunks = read(write(tmp_path, text), chunk_bytes=chunk_bytes)
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == [*ROWS, ["b@x.org", "Bo, Jr.", ""]]
    assert [row for chunk in chunks for row in chunk.malformed] == []
    assert ["its rows end with a delimiter" in each for chunk in chunks for each in chunk.messages] == [True]


@pytest.mark.parametrize(
    "row", ["b@x.org,Bob,Vos", "b@x.org,Bob,", "b@x.org,Vos, Bob,Jr.", "b@x.org,Vos, Bob,Jr.,"], ids=len
)
@pytest.mark.parametrize("chunk_bytes", [None, 20])
def test_a_row_that_ends_otherwise_is_rejected_and_nothing_is_shifted(
    tmp_path: Path, row: str, chunk_bytes: int | None
) -> None:
    chunks = read(write(tmp_path, f"email,first,last\n{GOOD}{row}\n{GOOD}"), chunk_bytes=chunk_bytes)
    assert [each for chunk in chunks for each in chunk.frame.to_numpy().tolist()] == ROWS * 2
    malformed = [each for chunk in chunks for each in chunk.malformed]
    assert [(each.number, each.line, each.code, each.raw) for each in malformed] == [(10, 11, "ragged", row)]


@pytest.mark.parametrize("rows", ["a@x.org,Ann,Lee,x\n" * 9, "a@x.org,Ann,Lee,,\n" * 9, "a@x.org,Ann,Lee\n" * 9 + GOOD])
def test_rows_of_another_width_are_ragged_still(tmp_path: Path, rows: str) -> None:
    chunks = read(write(tmp_path, f"email,first,last\n{rows}"))
    assert {row.code for chunk in chunks for row in chunk.malformed} == {"ragged"}
    assert sum(len(chunk.malformed) for chunk in chunks) == 9


def test_a_delimiter_that_the_header_has_too_is_a_column_without_a_name(tmp_path: Path) -> None:
    with open_csv(write(tmp_path, f"email,first,last,\n{GOOD}")) as source:
        assert source.columns == ("email", "first", "last", "column 4")
