"""Packed files: the source unpacks a file once, limits the unpacked size, and refuses a damaged file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.errors import SourceError
from connector.sources.files import open_file
from tests.sources.files.people import build_csv, pack_gzip, pack_zip, pack_zstd
from tests.sources.files.reading import read_rows, write_file

PACK_FUNCTION_BY_SUFFIX: dict[str, Callable[[bytes], bytes]] = {"gz": pack_gzip, "zip": pack_zip, "zst": pack_zstd}


def build_people_csv(row_count: int) -> bytes:
    """Return a CSV file with cells that cannot be compressed much."""
    return b"email,key\n" + b"".join(
        b"p%d@example.com,%s\n" % (n, os.urandom(8).hex().encode()) for n in range(row_count)
    )


SUFFIXES_AND_DAMAGES: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gz", lambda content: content[:-1000]),
    ("zst", lambda content: content[:-1000]),
    ("gz", lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]),  # changes the checksum
    ("zip", lambda content: content[:20_000] + bytes(50) + content[20_050:]),
    # Changes the compression method to an unknown number.
    ("zip", lambda content: content.replace(b"\0\x08\0", b"\0\x61\0")),
    ("zip", lambda content: content[:-40]),  # removes the end of the directory
]


def test_a_cut_off_or_damaged_file_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    for suffix, damage in SUFFIXES_AND_DAMAGES:
        path = write_file(
            tmp_path, f"people.csv.{suffix}", damage(PACK_FUNCTION_BY_SUFFIX[suffix](build_people_csv(2_000)))
        )
        with pytest.raises(SourceError, match=r"cut off(,| or) damaged (or encrypted )?\(.+\); fetch it") as error_info:
            open_file(path)
        assert str(error_info.value).startswith(f"{path}: ")
        assert str(error_info.value).count(str(path)) == 1


def test_several_compressed_parts_in_a_file_are_read_as_one_file(tmp_path: Path) -> None:
    for name, pack in (("a.gz", pack_gzip), ("a.zst", pack_zstd)):
        assert read_rows(write_file(tmp_path, name, pack(b"a,b\n1,2\n") + pack(b"3,4\n"))) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize(
    ("other_files", "expected_text"),
    [
        (
            {"b.csv": b"x", "c.csv": b"x"},
            r"people\.csv, b\.csv, c\.csv; name the file to read: .*people\.zip#people\.csv",
        ),
        ({f"{n}.csv": b"" for n in range(99)}, r"holds people\.csv, 0\.csv, .*18\.csv and 80 more; name the file"),
    ],
)
def test_the_error_of_an_archive_with_several_files_shows_their_names(
    tmp_path: Path, other_files: dict[str, bytes], expected_text: str
) -> None:
    with pytest.raises(SourceError, match=expected_text):
        open_file(write_file(tmp_path, "people.zip", pack_zip(build_csv(), other_files=other_files)))


CONTENT_BY_MAILCHIMP_FILE = {
    "subscribed_email_audience_export_1f.csv": b"Email Address,First Name\nann@example.com,Ann\n",
    "unsubscribed_email_audience_export_1f.csv": b"Email Address,First Name\nben@example.com,Ben\n",
    "cleaned_email_audience_export_1f.csv": b"Email Address,First Name\ncem@example.com,Cem\n",
}


def test_one_file_of_an_archive_can_be_chosen_by_its_name(tmp_path: Path) -> None:
    path = write_file(tmp_path, "export.zip", pack_zip(b"#", "readme.txt", other_files=CONTENT_BY_MAILCHIMP_FILE))
    first_name_by_member = {
        "cleaned_email_audience_export_1f.csv": "Cem",
        "subscribed*": "Ann",
        "unsubscribed_*.csv": "Ben",
    }
    for member, name in first_name_by_member.items():
        assert [row[1] for row in read_rows(Path(f"{path}#{member}"))] == [name]
    for member, expected_text in (
        ("*.csv", "3 of them match"),
        ("people.csv", "none of them is people.csv"),
        ("", "there is no such file"),
    ):
        with pytest.raises(SourceError, match=expected_text) as error_info:
            open_file(f"{path}#{member}")
        assert all(name in str(error_info.value) for name in CONTENT_BY_MAILCHIMP_FILE) or not member


def test_a_number_sign_names_a_member_of_an_archive_or_is_part_of_a_file_name(tmp_path: Path) -> None:
    path = write_file(tmp_path, "people.csv", b"a\n1\n")
    with pytest.raises(SourceError, match=r"is not a ZIP archive, so it does not contain b\.csv"):
        open_file(f"{path}#b.csv")
    assert read_rows(write_file(tmp_path, "people#1.csv", b"a\n1\n")) == [["1"]]


def test_an_archive_without_a_file_is_refused(tmp_path: Path) -> None:
    for archive in (pack_zip(b"", "folder/"), b"PK\x05\x06" + bytes(18)):
        with pytest.raises(SourceError, match="holds no file"):
            open_file(write_file(tmp_path, "people.zip", archive))


def test_folders_and_macos_files_in_an_archive_are_ignored(tmp_path: Path) -> None:
    other_files = {"export/": b"", "__MACOSX/export/._people.csv": b"x", "export/.DS_Store": b"x"}
    path = write_file(tmp_path, "people.zip", pack_zip(b"a\n1\n", "export/people.csv", other_files=other_files))
    assert read_rows(path) == [["1"]]


READ_SCRIPT = """
import resource, sys
from connector.errors import SourceError
from connector.sources.files import open_file
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, rows, error = peak(), 0, ""
try:
    with open_file(sys.argv[1]) as source:
        rows = sum(len(chunk.frame) for chunk in source.read_chunks())
except SourceError as raised:
    error = raised
print(rows, peak() - before, error)
"""


def read_in_process(path: Path) -> tuple[int, int, str]:
    """Read the file in another process. Return the number of rows, the memory of the reading in MB, and the error."""
    result = subprocess.run([sys.executable, "-c", READ_SCRIPT, path], check=True, capture_output=True, text=True)
    row_count, memory_mb, error = result.stdout.split(" ", 2)
    return int(row_count), int(memory_mb), error


def test_a_file_that_unpacks_to_too_much_is_refused_without_using_much_memory(tmp_path: Path) -> None:
    line = b"bomb@example.com," + b"x" * 10_000 + b"\n"
    path = write_file(tmp_path, "bomb.csv.gz", pack_gzip(b"email,key\n" + line * 8_000))
    _, memory_mb, message = read_in_process(path)
    assert memory_mb < 100
    assert f"{path}: unpacks to more than 500 times its size" in message


def test_a_small_file_that_unpacks_to_more_than_500_times_its_size_is_read(tmp_path: Path) -> None:
    line = b"ann@example.com," + b"x" * 10_000 + b"\n"
    path = write_file(tmp_path, "people.csv.gz", pack_gzip(b"email,key\n" + line * 2_000))
    assert path.stat().st_size * 500 < 20_000_000
    assert len(read_rows(path)) == 2_000


ROW_COUNT, ROWS_PER_WRITE = 60_000, 3_000  # 60,000 rows have 120 MB, and the source reads them in forty chunks


def build_people() -> list[dict[str, object]]:
    return [{"email": f"p{n}@example.com", "n": n, "notes": os.urandom(1000).hex()} for n in range(ROWS_PER_WRITE)]


def write_json_lines(path: Path) -> None:
    text = "".join(json.dumps(person) + "\n" for person in build_people())
    path.write_text(text * (ROW_COUNT // ROWS_PER_WRITE), encoding="utf-8")


def write_parquet(path: Path) -> None:
    table = pa.Table.from_pylist(build_people())
    pq.write_table(pa.concat_tables([table] * (ROW_COUNT // ROWS_PER_WRITE)), path, use_dictionary=False)


@pytest.mark.parametrize("write", [write_json_lines, write_parquet])
def test_a_large_file_is_read_with_the_memory_of_a_few_chunks(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "people")
    row_count, memory_mb, _ = read_in_process(tmp_path / "people")
    assert row_count == ROW_COUNT
    assert memory_mb < 150  # a source that keeps all chunks needs 170 MB or more
