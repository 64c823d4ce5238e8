"""Files that change while they are read: the run sends no row, and a later run loads the complete file."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from connector.errors import SourceError
from connector.sources.files import open_file, open_files
from tests.pipelines.conftest import Connector
from tests.sources.files.people import BUILD_FILE_BY_NAME, PEOPLE
from tests.sources.files.reading import write_file


def append_row(file_path: Path) -> None:
    with file_path.open("ab") as file:
        file.write(b"ann@example.co")


def touch_file(file_path: Path) -> None:
    os.utime(file_path, ns=(1, 1))


def cut_file_off(file_path: Path) -> None:
    os.truncate(file_path, file_path.stat().st_size - 10)


FORMATS = ("people.csv", "people.csv.gz", "people.parquet", "people.xlsx", "people.jsonl")


@pytest.mark.parametrize(
    ("name", "change_file"), [("people.csv", append_row), ("people.csv", touch_file), ("people.parquet", cut_file_off)]
)
def test_a_file_that_changes_while_a_run_reads_it_is_refused(
    tmp_path: Path, name: str, change_file: Callable[[Path], None]
) -> None:
    file_path = write_file(tmp_path, name, BUILD_FILE_BY_NAME[name]())
    with open_file(file_path) as source:
        change_file(file_path)
        with pytest.raises(SourceError, match="has changed since it was opened"):
            list(source.read_chunks())


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_replaced_or_deleted_while_a_run_reads_it_is_read_to_the_end(tmp_path: Path, name: str) -> None:
    file_path = write_file(tmp_path, name, BUILD_FILE_BY_NAME[name]())
    other_file_path = write_file(tmp_path, f"other.{name}", b"a")
    with open_file(file_path) as source:
        other_file_path.replace(file_path)
        row_count = sum(len(chunk.frame) for chunk in source.read_chunks())
        file_path.unlink()
        assert sum(len(chunk.frame) for chunk in source.read_chunks()) == row_count == len(PEOPLE)


def test_a_growing_file_among_several_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_file(tmp_path, name, BUILD_FILE_BY_NAME["people.csv"]())
    with open_files(tmp_path / "*.csv", open_file) as source:
        append_row(tmp_path / "b.csv")  # before the run opens the file again
        with pytest.raises(SourceError, match=r"b\.csv: has changed"):
            list(source.read_chunks())


@contextmanager
def upload_slowly(file_path: Path) -> Iterator[None]:
    """Write rows to the file, a part of a row at a time, until the `with` block ends."""
    stop_event = threading.Event()

    def write() -> None:
        with file_path.open("a", encoding="utf-8", buffering=1) as file:
            for row_number in count():
                for text in (f"late{row_number}@example.co", "m,Ann,Lee,true\n"):
                    file.write(text)
                    file.flush()
                    if stop_event.wait(0.005):
                        return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def test_an_upload_in_progress_is_refused_before_the_first_create(connector: Connector) -> None:
    file_path = connector.write_addresses(2_000)
    with upload_slowly(file_path):
        for command in ("plan", file_path), ("import", file_path, "--limit", "1000", "--quiet-period", "200ms"):
            result = connector.run_json(*command, "--base-id", "7")
            assert result.exit_code == 3, (command, result.stderr)
            assert "people.csv: has changed since it was opened" in result.stderr
            assert "Wait until the data are complete, then run again" in result.stderr
    assert connector.count_creates_by_email() == {}
    assert connector.run_json("validate", file_path).rows["read"] > 2_000
