"""Files that change while they are read: the run sends no row, and a later run loads the complete file."""

import gzip
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pandas as pd
import pytest

from connector.errors import SourceError
from connector.sources.files import open_file, open_files
from tests.pipelines.conftest import Connector, count_stored_emails, wait_for, write_addresses
from tests.stores import Bucket

CSV_ROWS = "".join(f"person{index}@example.com,Ann,true\n" for index in range(50))
CSV_HEADER = "email,first_name,is_active\n"


def write_csv(file_path: Path) -> None:
    file_path.write_text(CSV_HEADER + CSV_ROWS, encoding="utf-8")


def write_gzip(file_path: Path) -> None:
    file_path.write_bytes(gzip.compress((CSV_HEADER + CSV_ROWS).encode()))


def write_parquet(file_path: Path) -> None:
    pd.DataFrame({"email": ["ann@example.com", "bob@example.com"], "is_active": [True, True]}).to_parquet(file_path)


def write_workbook(file_path: Path) -> None:
    import xlsxwriter

    with xlsxwriter.Workbook(file_path) as workbook:
        sheet = workbook.add_worksheet()
        for row, cells in enumerate((("email", "is_active"), ("ann@example.com", "true"))):
            sheet.write_row(row, 0, cells)


def write_lines(file_path: Path) -> None:
    file_path.write_text('{"email": "ann@example.com", "is_active": true}\n', encoding="utf-8")


def append_row(file_path: Path) -> None:
    with file_path.open("ab") as file:
        file.write(b"ann@example.co")


def touch_file(file_path: Path) -> None:
    os.utime(file_path, ns=(1, 1))


def cut_file_off(file_path: Path) -> None:
    os.truncate(file_path, file_path.stat().st_size - 10)


FORMATS: dict[str, Callable[[Path], None]] = {
    "people.csv": write_csv, "people.csv.gz": write_gzip, "people.parquet": write_parquet,
    "people.xlsx": write_workbook, "people.jsonl": write_lines,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change_file"),
    [*((name, append_row) for name in FORMATS), ("people.csv", touch_file), ("people.parquet", cut_file_off)],
)
def test_a_file_that_changes_between_its_opening_and_its_last_row_is_refused(
    tmp_path: Path, name: str, change_file: Callable[[Path], None]
) -> None:
    file_path = tmp_path / name
    FORMATS[name](file_path)
    with open_file(file_path) as source:
        change_file(file_path)
        with pytest.raises(SourceError, match="has changed since it was opened"):
            list(source.read_chunks())


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_file_that_is_replaced_or_deleted_is_read_to_its_end(tmp_path: Path, name: str) -> None:
    file_path, other_file = tmp_path / name, tmp_path / f"other.{name}"
    FORMATS[name](file_path)
    FORMATS[name](other_file)
    append_row(other_file)
    with open_file(file_path) as source:
        other_file.replace(file_path)
        row_count = sum(len(chunk.frame) for chunk in source.read_chunks())
        file_path.unlink()
        assert sum(len(chunk.frame) for chunk in source.read_chunks()) == row_count > 0


def test_one_of_several_files_that_grows_is_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name)
    with open_files(tmp_path / "*.csv", open_file) as source:
        append_row(tmp_path / "b.csv")  # before the run opens the file again
        with pytest.raises(SourceError, match=r"b\.csv: has changed"):
            list(source.read_chunks())


def test_an_object_of_a_store_that_is_overwritten_is_refused(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    bucket.put("people.csv", (CSV_HEADER + CSV_ROWS).encode())
    with open_file(bucket.url("people.csv")) as source:
        assert sum(len(chunk.frame) for chunk in source.read_chunks()) == 50
        bucket.put("people.csv", (CSV_HEADER + CSV_ROWS + "ann@example.co").encode())
        with pytest.raises(SourceError, match="has changed since it was opened"):
            list(source.read_chunks())


@contextmanager
def upload_slowly(file_path: Path) -> Iterator[None]:
    """Write rows to the file, a part of a row at a time, until the block ends."""
    is_finished = threading.Event()

    def write() -> None:
        with file_path.open("a", encoding="utf-8", buffering=1) as file:
            for row_number in count():
                for text in (f"late{row_number}@example.co", "m,Ann,Lee,true\n"):
                    file.write(text)
                    file.flush()
                    if is_finished.wait(0.005):
                        return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_finished.set()
        thread.join()


def test_an_upload_in_progress_is_refused_before_the_first_create(connector: Connector, tmp_path: Path) -> None:
    file_path = write_addresses(
        tmp_path / "people.csv", 10_000
    )  # with this many rows, the upload continues while the file is read
    with upload_slowly(file_path):
        for command in (
            ("import", file_path, "--base-id", "7", "--quiet-period", "200ms"),
            ("plan", file_path, "--base-id", "7"),
            ("import", file_path, "--base-id", "7", "--limit", "1000"),
            ("validate", file_path),
        ):
            result = connector.run_json(*command)
            assert result.exit_code == 3, (command, result.stderr)
            assert "people.csv: has changed since it was opened" in result.stderr
            assert "Wait until it is complete, then run again" in result.stderr
    assert count_stored_emails(connector.sandbox) == {}
    assert connector.run_json("validate", file_path).rows["read"] > 10_000


def test_a_file_may_change_after_its_last_row_is_read(connector: Connector, tmp_path: Path) -> None:
    file_path = write_addresses(tmp_path / "people.csv", 20)
    connector.sandbox.switch(latency_ms=100)
    with connector.start(
        "import", file_path, "--base-id", "7", "--quiet-period", "200ms", "--output", "json"
    ) as process:
        wait_for(lambda: connector.sandbox.stats()["subscribers"] > 0)
        shutil.copyfile(write_addresses(tmp_path / "other.csv", 90), file_path)
        process.communicate()
    assert process.returncode == 0
    assert len(count_stored_emails(connector.sandbox)) == 20
