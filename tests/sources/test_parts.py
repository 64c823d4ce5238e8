"""Parts of a source: every row is in one of them, and in no other."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest

from connector.rows import Source
from connector.sources.files import cut_source, digest_files, open_file, open_files
from connector.sources.sql import cut_query, open_sql
from tests.databases import OPEN

ROWS = 5_500  # several blocks of a part, and a rest
PARTS = 3


def _write_csv(path: Path, first: int = 0, rows: int = ROWS) -> None:
    lines = [f'p{each}@example.com,"two\nlines {each}"' for each in range(first, first + rows)]
    lines[7] = "ragged@example.com,too,many"
    path.write_text("\n".join(["email,note", *lines]) + "\n")


def _write_frame(path: Path) -> None:
    frame = pd.DataFrame({"email": [f"p{each}@example.com" for each in range(ROWS)]})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)


def read(source: Source) -> Iterator[tuple[str, int, str]]:
    """File, number and first cell of each row; of a malformed one its text."""
    for chunk in source.chunks():
        yield from ((chunk.name, number, str(cell)) for number, cell in zip(chunk.numbers, chunk.frame.iloc[:, 0]))  # noqa: B905
        yield from ((chunk.name, row.number, row.raw) for row in chunk.malformed)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".xlsx"])
def test_the_parts_of_a_file_are_the_whole_file_with_its_row_numbers(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"people{suffix}"
    (_write_csv if suffix == ".csv" else _write_frame)(path)
    with ExitStack() as stack:
        whole = sorted(read(stack.enter_context(open_file(path))))
        parts = [
            list(read(stack.enter_context(cut_source(open_file(path), number, PARTS))))
            for number in range(1, PARTS + 1)
        ]
    assert len(whole) == ROWS
    assert sorted(row for part in parts for row in part) == whole
    assert all(len(part) >= ROWS // PARTS - 1000 for part in parts)


@pytest.mark.parametrize("files", [2, 7])
def test_the_parts_of_a_pattern_are_all_its_files(tmp_path: Path, files: int) -> None:
    for each in range(files):
        _write_csv(tmp_path / f"{each}.csv", first=each * 2_000, rows=2_000)
    open_all: Callable[[], Source] = lambda: open_files(tmp_path / "*.csv", open_file)  # noqa: E731
    with ExitStack() as stack:
        whole = stack.enter_context(open_all())
        rows = sorted(read(whole))
        parts = [stack.enter_context(cut_source(open_all(), number, PARTS)) for number in range(1, PARTS + 1)]
        assert sorted(row for part in parts for row in read(part)) == rows
        assert len(rows) == files * 2_000


@pytest.mark.parametrize("kind", sorted(OPEN))
@pytest.mark.parametrize("by", ["query", "table"])
def test_the_parts_of_a_query_are_its_rows_whatever_their_keys(kind: str, by: str) -> None:
    with OPEN[kind]() as database, ExitStack() as stack:
        database.run("create table people (email varchar(40), id decimal(10, 2))")
        database.fill("people", [(f"p{each}@example.com", each - 40) for each in range(100)])
        database.run("insert into people values ('none@example.com', null), ('half@example.com', 4.5)")
        query, table = ("select * from people;", None) if by == "query" else (None, "people")
        parts = [
            list(read(stack.enter_context(open_sql(database.url, query=cut))))
            for number in range(1, PARTS + 1)
            for cut in [cut_query(database.url, query, table, "id", number, PARTS)]
        ]
    emails = sorted(email for part in parts for _, _, email in part)
    assert emails == sorted([*(f"p{each}@example.com" for each in range(100)), "none@example.com", "half@example.com"])
    assert all(len(part) >= 33 for part in parts)


def test_files_are_told_from_others_by_names_and_sizes(tmp_path: Path) -> None:
    for each in range(3):
        _write_csv(tmp_path / f"{each}.csv", rows=10)
    digests = []
    for change in ("", "4.csv", "0.csv"):
        if change:
            (tmp_path / change).write_text("email,note\na@example.com,x\n")
        with open_files(tmp_path / "*.csv", open_file) as source:
            digests.append(digest_files(source))
    assert len(set(digests)) == 3
