"""A pattern of file names: all files that match are one source."""

from pathlib import Path

import pytest

from connector.errors import ConfigurationError, SourceError
from connector.rows import Source
from connector.sources.files import open_file, open_files, refuse_missing_columns
from tests.sources.files.people import pack_gzip
from tests.sources.files.reading import write_file


def open_pattern(path: Path | str) -> Source:
    return open_files(path, open_file)


def test_the_files_of_a_pattern_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_file(tmp_path, "b.csv", "email,name\nb@x.org,Bob\nragged\nc@x.org,Cem\n")
    write_file(tmp_path, "a.csv", "email,name\na@x.org,Ann\n")
    write_file(tmp_path, "c.txt", "email,name\nno@x.org,No\n")
    write_file(tmp_path, ".hidden.csv", "email,name\nno@x.org,No\n")
    (tmp_path / "d.csv").mkdir()
    with open_pattern(tmp_path / "*.csv") as source:
        assert source.name == str(tmp_path / "*.csv")
        first_chunk, second_chunk = source.read_chunks()
    assert (first_chunk.name, first_chunk.row_numbers.tolist(), first_chunk.frame["email"].tolist()) == (
        str(tmp_path / "a.csv"),
        [2],
        ["a@x.org"],
    )
    assert (second_chunk.name, second_chunk.row_numbers.tolist()) == (str(tmp_path / "b.csv"), [2, 4])
    assert second_chunk.frame["email"].tolist() == ["b@x.org", "c@x.org"]
    assert [row.number for row in second_chunk.malformed_rows] == [3]


def test_the_columns_of_several_files_are_matched_by_name(tmp_path: Path) -> None:
    write_file(tmp_path, "a.csv", "email,name\na@x.org,Ann\n")
    write_file(tmp_path, "b.csv.gz", pack_gzip(b"phone;email\n+31;b@x.org\n"))
    with open_pattern(tmp_path / "*") as source:
        assert source.columns == ("email", "name", "phone")
        frames = [chunk.frame for chunk in source.read_chunks()]
    assert [frame.astype(object).where(frame.notna(), None).to_numpy().tolist() for frame in frames] == [
        [["a@x.org", "Ann", None]],
        [["b@x.org", None, "+31"]],
    ]
    assert [str(dtype) for frame in frames for dtype in frame.dtypes] == ["str"] * 6


def test_the_error_of_a_missing_column_shows_the_file_and_the_column(tmp_path: Path) -> None:
    write_file(tmp_path, "a.csv", "email,name,phone\na@x.org,Ann,1\n")
    write_file(tmp_path, "b.csv", "email\nb@x.org\n")
    with open_pattern(tmp_path / "*.csv") as source:
        refuse_missing_columns(source, ["email"])
        with pytest.raises(ConfigurationError, match=r"b.csv: has no column name, which other files of .* \(1 more"):
            refuse_missing_columns(source, ["email", "name", "phone"])
    with open_pattern(tmp_path / "b.csv") as single_source:
        # No error: if the source is a single file, the check of the mapping reports missing columns.
        refuse_missing_columns(single_source, ["name"])


def test_a_pattern_that_matches_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none-\*\.csv: no file matches this pattern"):
        open_pattern(tmp_path / "none-*.csv")
    with pytest.raises(SourceError, match="there is no such file"):
        open_pattern(tmp_path / "none.csv")


def test_brackets_in_the_name_of_an_existing_file_are_not_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "crm [old]"
    folder.mkdir()
    path = write_file(folder, "people [1].csv", "email\na@x.org\n")
    for pattern in (path, tmp_path / "crm [[]old]" / "*.csv"):
        with open_pattern(pattern) as source:
            assert [chunk.name for chunk in source.read_chunks()] == [str(path)]
    with pytest.raises(SourceError, match=r"has the character \[, write \[\[\] in the pattern"):
        open_pattern(folder / "*.csv")


def test_a_faulty_file_of_a_pattern_is_refused_before_any_file_is_read(tmp_path: Path) -> None:
    write_file(tmp_path, "a.csv", "email\na@x.org\n")
    write_file(tmp_path, "b.csv", "")
    with pytest.raises(SourceError, match=r"b\.csv: is empty"):
        open_pattern(tmp_path / "*.csv")
