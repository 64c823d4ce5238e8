"""Polluted files, kind by kind, come to rows or to rejections by line, and never to somebody else's values."""

from pathlib import Path

import pytest

from connector.errors import SourceError
from tests.sources.csv.polluted_files import PEOPLE, PLAIN, READ, REFUSED, Case
from tests.sources.csv.reading import open_csv, write


@pytest.mark.parametrize("case", READ, ids=lambda case: case.kind)
@pytest.mark.parametrize("chunk_bytes", [None, 16])
def test_each_kind_of_pollution_comes_to_rows_or_to_rejections_by_line(
    tmp_path: Path, case: Case, chunk_bytes: int | None
) -> None:
    with open_csv(write(tmp_path, case.content), chunk_bytes=chunk_bytes) as source:
        columns, chunks = source.columns, list(source.chunks())
    assert columns == case.columns
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == case.rows
    malformed = [row for chunk in chunks for row in chunk.malformed]
    assert tuple((row.line, row.code) for row in malformed) == case.rejected
    messages = [message for chunk in chunks for message in chunk.messages]
    assert len(messages) == (1 if case.says else 0)
    assert case.says in "".join(messages)
    assert case.why or not case.rejected


@pytest.mark.parametrize(("kind", "content", "words"), REFUSED, ids=[kind for kind, _, _ in REFUSED])
def test_what_cannot_be_told_at_all_is_refused_before_anything_starts(
    tmp_path: Path, kind: str, content: str | bytes, words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        open_csv(write(tmp_path, content))


@pytest.mark.parametrize("name", ["people", ".csv", "people.tsv", "people.pdf", "$.csv", "\u00a0.csv", "people.lorem"])
def test_a_files_name_says_nothing_of_what_is_in_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PLAIN, encoding="utf-8")
    with open_csv(tmp_path / name) as source:
        assert [chunk.frame.to_numpy().tolist() for chunk in source.chunks()] == [PEOPLE]


@pytest.mark.parametrize("width", [1024, 17_000])
def test_a_file_may_be_wide(tmp_path: Path, width: int) -> None:
    names, cells = [f"c{place}" for place in range(width)], [str(place) for place in range(width)]
    with open_csv(write(tmp_path, f"{','.join(names)}\n{','.join(cells)}\n")) as source:
        assert source.columns == tuple(names)
        assert [chunk.frame.to_numpy().tolist() for chunk in source.chunks()] == [[cells]]
