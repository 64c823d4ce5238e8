"""A source that is read several times is read from its start each time."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.errors import SourceError
from connector.rows import Source
from connector.sources.cursor import CursorKind
from connector.sources.files import open_file, open_files
from connector.sources.sql import IncrementalSource, open_sql
from tests.databases import DATABASE_OPENER_BY_KIND, Database
from tests.sources.files.people import build_parquet, build_xlsx, pack_gzip

CSV_CONTENT = b"email,number\na@x.org,1\nb@x.org,2\n"
CONTENT_BUILDER_BY_KIND: dict[str, Callable[[], bytes]] = {
    "csv": lambda: CSV_CONTENT,
    "gz": lambda: pack_gzip(CSV_CONTENT),
    "jsonl": lambda: b'{"email": "a@x.org"}\n{"email": "b@x.org"}\n',
    "xlsx": build_xlsx,
    "parquet": build_parquet,
}


def read_emails(source: Source) -> list[str]:
    return [str(cell) for chunk in source.read_chunks() for cell in chunk.frame["email"]]


@pytest.mark.parametrize("kind", CONTENT_BUILDER_BY_KIND)
def test_every_kind_of_file_source_can_be_read_several_times(tmp_path: Path, kind: str) -> None:
    path, pipe_path = tmp_path / "file", tmp_path / "pipe"
    path.write_bytes(CONTENT_BUILDER_BY_KIND[kind]())
    os.mkfifo(pipe_path)
    writer = threading.Thread(target=pipe_path.write_bytes, args=(CONTENT_BUILDER_BY_KIND[kind](),))
    writer.start()
    for source in (open_file(path), open_file(pipe_path), open_files(tmp_path / "f*", open_file)):
        with source:
            first_emails = read_emails(source)
            assert len(first_emails) >= 2
            assert [read_emails(source), read_emails(source)] == [first_emails, first_emails]
    writer.join()


@pytest.mark.parametrize("kind", ["duckdb", "postgresql", "sqlite"])
def test_a_query_can_be_read_again_after_an_incomplete_or_a_complete_reading(kind: str) -> None:
    with DATABASE_OPENER_BY_KIND[kind]() as database:
        database.run("create table people (email varchar(20))", "insert into people values ('a@x.org'), ('b@x.org')")
        with open_sql(database.url, query="select email from people order by email") as source:
            next(source.read_chunks())
            assert [read_emails(source), read_emails(source)] == [["a@x.org", "b@x.org"]] * 2


def test_a_file_that_changed_after_it_was_first_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("email\na@x.org\n")
    with open_file(path) as source:
        read_emails(source)
        path.write_text("email\nc@x.org\nd@x.org\n")
        with pytest.raises(SourceError, match="has changed since it was opened"):
            read_emails(source)


def test_a_second_reading_of_an_incremental_source_starts_at_the_same_value(tmp_path: Path) -> None:
    database = Database("sqlite", f"sqlite:///{tmp_path}/crm.db")
    database.run("create table people (email, number)", "insert into people values ('a@x.org', 1), ('b@x.org', 2)")
    with IncrementalSource(database.url, table="people", column="number", kind=CursorKind.INTEGER) as source:
        source.set_start(1)
        assert read_emails(source) == ["a@x.org", "b@x.org"]
        assert (source.is_read_to_end, source.watch.largest_value) == (True, 2)
        database.run("delete from people where number = 2")
        next(source.read_chunks())
        assert (source.is_read_to_end, source.watch.largest_value) == (False, 1)
