"""Which row of a sheet names the columns, and what may stand above it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from connector.errors import SourceError
from connector.sources import open_file
from tests.sources.files.people import write_ods, write_xlsx
from tests.sources.files.reading import read, write


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "is empty"),
        ([["ann@example.com", "Ann"]], "has no header: its first row looks like a subscriber's"),
        ([[1, 2]], "has no header"),
        ([["email", "=NA()"]], "its header cannot be used: the cell B1 holds an error"),
    ],
)
def test_a_sheet_without_a_header_is_refused(tmp_path: Path, rows: list[list[object]], words: str) -> None:
    path = write(tmp_path, "a.xlsx", write_xlsx(rows or [[""]]))
    with pytest.raises(SourceError, match=words):
        open_file(path)


@pytest.mark.parametrize("write_sheet", [write_xlsx, write_ods])
def test_titles_above_the_header_are_left_out_and_told(
    tmp_path: Path, write_sheet: Callable[[Sequence[Sequence[object]]], bytes]
) -> None:
    rows: list[list[object]] = [
        ["Newsletter"], [""], ["", "as of today"], ["email", "name"], ["a@x.org", "Ann"], ["b@x.org", ""],
        ["c@x.org", "Cem"], ["d@x.org", "Dan"],
    ]  # fmt: skip
    (chunk,) = read(write(tmp_path, "a", write_sheet(rows)))
    assert chunk.frame.to_numpy().tolist() == rows[4:]
    assert chunk.numbers.tolist() == [5, 6, 7, 8]
    assert "titles above its header were left out (rows: 2)" in chunk.messages[0]


@pytest.mark.parametrize(
    "rows",
    [
        [["name"], ["Ann"], ["Ben", "x"], ["Cem"]],
        [["email"], ["a@x.org"], ["b@x.org", "x"], ["c@x.org", "x"], ["d@x.org", "x"]],
    ],
    ids=["hardly any row has two cells", "below it is somebody"],
)
def test_a_header_of_one_cell_is_not_taken_for_a_title(tmp_path: Path, rows: list[list[object]]) -> None:
    with open_file(write(tmp_path, "a.xlsx", write_xlsx(rows))) as source:
        assert source.columns == (rows[0][0],)
