"""Sources that are read twice: each time from the beginning, whatever they are."""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import SourceError
from connector.rows import Source
from connector.sources import CursorKind, open_file, open_incremental, open_repeatedly, open_sql, spool_pipe


def read(source: Source) -> list[str]:
    return [str(cell) for chunk in source.chunks() for cell in chunk.frame["email"]]


def build_database(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "crm.db")) as crm, crm:
        crm.execute("create table people (email, number)")
        crm.executemany("insert into people values (?, ?)", [("a@x.org", 1), ("b@x.org", 2)])
    return f"sqlite:///{folder}/crm.db"


def write_csv(folder: Path) -> Path:
    path = folder / "people.csv"
    path.write_text("email\na@x.org\nb@x.org\n")
    return path


OPENERS: dict[str, Callable[[Path], Source]] = {
    "csv": lambda folder: open_file(write_csv(folder)),
    "query": lambda folder: open_sql(f"sqlite:///{folder}/crm.db", query="select email from people order by number"),
}


@pytest.mark.parametrize("kind", OPENERS)
def test_a_source_gives_its_rows_once_more(tmp_path: Path, kind: str) -> None:
    build_database(tmp_path)
    with open_repeatedly(lambda: OPENERS[kind](tmp_path)) as source:
        assert [read(source), read(source), read(source)] == [["a@x.org", "b@x.org"]] * 3


def test_what_came_meanwhile_is_read_and_other_columns_are_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path)
    with open_repeatedly(lambda: open_file(path)) as source:
        read(source)
        path.write_text("email\nc@x.org\n")
        assert read(source) == ["c@x.org"]
        path.write_text("mail\nc@x.org\n")
        with pytest.raises(SourceError, match="its columns have changed"):
            read(source)


def test_an_incremental_source_forgets_what_it_saw_before(tmp_path: Path) -> None:
    url = build_database(tmp_path)
    with open_incremental(url, table="people", column="number", kind=CursorKind.INTEGER) as source:
        source.begin_at(1)
        assert read(source) == ["a@x.org", "b@x.org"]
        assert (source.is_read_to_end, source.watch.largest) == (True, 2)
        with closing(sqlite3.connect(tmp_path / "crm.db")) as crm, crm:
            crm.execute("delete from people where number = 2")
        next(source.chunks())
        assert (source.is_read_to_end, source.watch.largest) == (False, 1)


@pytest.mark.parametrize(
    "content", ["email\na@x.org\nb@x.org\n", '{"email": "a@x.org"}\n{"email": "b@x.org"}\n'], ids=["csv", "jsonl"]
)
def test_a_pipe_is_kept_and_read_twice(tmp_path: Path, content: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    kept = spool_pipe(pipe)
    writer.join()
    assert kept is not None
    form = "jsonl" if content.startswith("{") else "csv"
    with open_repeatedly(lambda: open_file(pipe, spool=kept, format=form), kept.close) as source:
        assert [read(source), read(source)] == [["a@x.org", "b@x.org"]] * 2


def test_what_is_no_pipe_is_not_kept(tmp_path: Path) -> None:
    assert spool_pipe(write_csv(tmp_path)) is None
    assert spool_pipe(tmp_path / "none.csv") is None
    assert spool_pipe(tmp_path) is None
