"""The drift file by itself: what it holds however its run ends."""

import csv
from datetime import UTC, datetime
from pathlib import Path

from connector.load import Change, Row
from pipelines.rows.drift import DriftFile

ROW = Row(3, "people.csv", ("email", "name"), ("ann@x.org", "Anna"))
DRIFTED = Change(ROW, "ann@x.org", b"a" * 16, ("first_name",), (), {"first_name": "Anna"}, {"first_name": b"12"})
UNKNOWN = Change(ROW, "bob@x.org", b"b" * 16, None)
BY_MAPPING = Change(ROW, "eve@x.org", b"e" * 16, (), ("tags", "phone"))


def build_file(folder: Path) -> DriftFile:
    return DriftFile(folder / "drift" / "run.csv", "run", lambda: datetime(2026, 11, 1, tzinfo=UTC))


def read_lines(file: DriftFile) -> list[list[str]]:
    assert file.path is not None
    with Path(file.path).open(encoding="utf-8", newline="") as opened:
        return [line[:4] for line in csv.reader(opened)][1:]


def test_those_who_wait_are_written_when_the_run_ends_early(tmp_path: Path) -> None:
    with build_file(tmp_path) as file:
        file.write_change(DRIFTED)
        assert (file.path, len(file.waiting)) == (None, 1)
        (message,) = file.remark()
    assert "when a run comes to its end" in message
    assert read_lines(file) == [["ann@x.org", "first_name", "", "Anna"]]


def test_those_who_wait_are_written_with_what_was_found(tmp_path: Path) -> None:
    with build_file(tmp_path) as file:
        file.write_change(DRIFTED)
        file.end({(DRIFTED.base_key, DRIFTED.digest): {"first_name": "Ann"}})
        assert list(file.remark()) == []
    assert read_lines(file) == [["ann@x.org", "first_name", "Ann", "Anna"]]


def test_of_whom_it_is_not_known_what_differs_there_is_a_line_without_a_field(tmp_path: Path) -> None:
    with build_file(tmp_path) as file:
        file.write_change(UNKNOWN)
        assert file.waiting == []
        (message,) = file.remark()
    assert message.startswith("1 changed rows are in the drift file without a field")
    assert read_lines(file) == [["bob@x.org", "", "", ""]]


def test_where_nothing_differs_but_the_mapping_there_is_no_file(tmp_path: Path) -> None:
    with build_file(tmp_path) as file:
        file.write_change(BY_MAPPING)
        (message,) = file.remark()
    assert message.startswith("1 rows differ from what was sent only since the mapping has changed (phone, tags)")
    assert (file.path, list(tmp_path.iterdir())) == (None, [])
