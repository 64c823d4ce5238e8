"""`open_file` reads every format. If the job names no format, the content of the file decides the format.
If the content does not show the format, the name of the file decides."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from connector.errors import ConfigurationError, SourceError
from connector.sources.files import open_file
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping
from tests.sources.files.people import (
    BUILD_FILE_BY_NAME,
    EXPECTED_FRAME,
    PEOPLE,
    build_parquet,
    build_xlsx,
    pack_gzip,
    pack_zip,
)
from tests.sources.files.reading import read_chunks, read_frame, read_rows, write_file

TAGS_MAPPING = FieldMapping({"tags": ColumnRule(column="tags")})


@pytest.mark.parametrize("name", BUILD_FILE_BY_NAME)
def test_a_file_of_any_format_has_the_same_people(tmp_path: Path, name: str) -> None:
    frame = read_frame(write_file(tmp_path, name, BUILD_FILE_BY_NAME[name]()))
    assert frame.drop(columns="tags").equals(EXPECTED_FRAME)
    assert [str(dtype) for dtype in frame.dtypes] == ["str"] * len(frame.columns)
    tags = apply_mapping(frame, TAGS_MAPPING).frame["tags"].tolist()
    assert [list(tag_list) if tag_list is not None else [] for tag_list in tags] == [
        person["tags"] for person in PEOPLE
    ]


FILES_AND_COLUMNS: list[tuple[str, bytes | str, tuple[str, ...]]] = [
    ("a.tsv", "a\tb,c,d\n1\t2,3,4\n", ("a", "b,c,d")),  # the suffix decides the delimiter
    ("a.csv", "a\tb\n1\t2\n", ("a", "b")),
    ("a.tsv", "a,b\n1,2\n", ("a", "b")),  # the suffix is wrong, because the file has no tab
    ("a.tsv.gz", pack_gzip(b"a\tb,c,d\n1\t2,3,4\n"), ("a", "b,c,d")),
    ("a.zip", pack_zip(b"a\tb,c,d\n1\t2,3,4\n", "a.tsv"), ("a", "b,c,d")),
    ("a.csv", '\ufeff{"a": 1, "b": 2}\n', ("a", "b")),
    ("a.csv", "{a},[b]\n1,2\n", ("{a}", "[b]")),  # this is a CSV file with odd column names, and not JSON
    ("a.jsonl", "\n\n  \n{}\n" + '{"a": 1, "b": 2}', ("a", "b")),
]


@pytest.mark.parametrize(
    ("name", "content", "columns"), FILES_AND_COLUMNS, ids=[name for name, *_ in FILES_AND_COLUMNS]
)
def test_the_content_and_the_name_of_a_file_decide_its_format(
    tmp_path: Path, name: str, content: bytes | str, columns: tuple[str, ...]
) -> None:
    with open_file(write_file(tmp_path, name, content)) as source:
        assert source.columns == columns


def test_the_options_of_a_file_override_the_guess(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a.dat", "na\xefve|x;y\n1|2\n".encode("cp1252"))
    assert read_rows(path, delimiter="pipe", encoding="cp1252") == [["1", "2"]]
    assert read_rows(write_file(tmp_path, "b.tsv", "a;\tb\n1;2\n"), delimiter=";") == [["1", "2"]]
    assert read_rows(write_file(tmp_path, "b.dat", "a\tb\n1\t2\n"), format="tsv") == [["1", "2"]]


REFUSED_FILES: list[tuple[str, bytes | str, dict[str, str], type[Exception], str]] = [
    ("a", "x\n", {"format": "xml"}, ConfigurationError, "use `auto`, `csv`, `tsv`, `excel`, `parquet`, `jsonl`"),
    ("a.csv", build_parquet(), {"format": "csv"}, SourceError, "is a Parquet file, and not csv"),
    ("a.xlsx", build_xlsx(), {"format": "jsonl"}, SourceError, "is an Excel workbook, and not"),
    ("a.csv", "a,b\n", {"format": "excel"}, SourceError, "is not an Excel workbook"),
    ("a.csv", "a,b\n", {"format": "parquet"}, SourceError, "is not a Parquet file"),
    ("a.csv", "a,b\n", {"sheet": "People"}, ConfigurationError, "is read as csv, which has no `sheet`"),
    ("a.xlsx", build_xlsx(), {"delimiter": ","}, ConfigurationError, "is read as excel, which has no `delimiter`"),
    ("a.parquet", build_parquet(), {"encoding": "utf-8"}, ConfigurationError, "parquet, which has no `encoding`"),
    ("a.csv", "", {}, SourceError, "is empty"),
    ("a.xls", "\n<html><table>", {}, SourceError, "is a web page or XML, whatever its name says"),
    ("a.parquet", b"PAR1" + b"x" * 100, {}, SourceError, "is not a Parquet file that can be read"),
    ("a.xlsx", build_xlsx()[:-30], {}, SourceError, "cut off or damaged"),
    ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), {}, SourceError, "is not a workbook"),
    ("a.docx", pack_zip(b"", "[Content_Types].xml"), {}, SourceError, "is not a workbook that can be read"),
]


@pytest.mark.parametrize(
    ("name", "content", "options", "error", "expected_text"), REFUSED_FILES, ids=[row[-1] for row in REFUSED_FILES]
)
def test_a_file_that_does_not_fit_its_format_or_its_options_is_refused(
    tmp_path: Path, name: str, content: bytes | str, options: dict[str, Any], error: type[Exception], expected_text: str
) -> None:
    path = write_file(tmp_path, name, content)
    with pytest.raises(error, match=expected_text) as error_info:
        open_file(path, **options)
    assert str(error_info.value).startswith(str(path)) or options == {"format": "xml"}


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no such file; check the path"):
        open_file(tmp_path / "none.xlsx")
    with pytest.raises(SourceError, match="is a folder"):
        open_file(tmp_path)
    with pytest.raises(SourceError, match="cannot be opened"):
        open_file("nul\0.csv")


def test_an_unread_source_can_be_closed_twice(tmp_path: Path) -> None:
    for name in BUILD_FILE_BY_NAME:
        source = open_file(write_file(tmp_path, name, BUILD_FILE_BY_NAME[name]()))
        source.close()
        source.close()


@pytest.mark.parametrize("name", ["people.csv", "people.jsonl", "people.parquet", "people.xlsx"])
def test_each_chunk_has_numbered_rows_and_the_share_of_the_file_that_has_been_read(tmp_path: Path, name: str) -> None:
    rows, path = [[f"person{index}@example.com", "x" * 200] for index in range(35_000)], tmp_path / name
    match name.partition(".")[2]:
        case "csv":
            path.write_text("".join(f"{','.join(row)}\n" for row in [["email", "notes"], *rows]))
        case "jsonl":
            path.write_text("".join(f'{{"email": "{email}", "notes": "{notes}"}}\n' for email, notes in rows))
        case "parquet":
            pd.DataFrame(rows, columns=["email", "notes"]).to_parquet(path, row_group_size=15_000)
        case _:
            path.write_bytes(build_xlsx([["email", "notes"], *rows]))
    chunks = read_chunks(path)
    expected_shares = np.cumsum([len(chunk.frame) for chunk in chunks]) / len(rows)
    assert len(chunks) > 1
    assert max(len(chunk.frame) for chunk in chunks) <= (50_000 if name.endswith("csv") else 20_000)
    assert [cells for chunk in chunks for cells in chunk.frame.to_numpy().tolist()] == rows
    first_number = 2 if name.endswith(("csv", "xlsx")) else 1  # the header is a row of a CSV file and of a sheet
    row_numbers_of_chunks = [number for chunk in chunks for number in chunk.row_numbers.tolist()]
    assert row_numbers_of_chunks == list(range(first_number, first_number + len(rows)))
    assert [chunk.read_share for chunk in chunks] == pytest.approx(expected_shares.tolist(), abs=0.05)
