"""The drift file by itself: what it holds of rows that were compared, reported before, and not to be compared."""

import csv
from datetime import UTC, datetime
from pathlib import Path

from connector.load.session import Change
from connector.row_files import LoadFiles
from connector.rows import Row

ROW = Row(3, "people.csv", (), ())
COMPARED = Change(ROW, "ann@x.org", (("first_name", "Ann", "Anna"), ("tags", None, ["a"])))
NOT_COMPARED = Change(ROW, "bob@x.org", reason="the list could not be read")
KNOWN = Change(ROW, "eve@x.org", is_known=True)


def test_it_has_a_line_for_each_field_and_for_each_row_that_was_not_compared(tmp_path: Path) -> None:
    with LoadFiles(tmp_path, ["email"], "run", lambda: datetime(2026, 11, 1, tzinfo=UTC)) as file:
        for change in (COMPARED, NOT_COMPARED, KNOWN):
            file.write_change(change)
        known, not_compared = file.remark()
    assert known.startswith("1 changed row says what an earlier run reported in its drift file; it is compared")
    assert not_compared.endswith("since not compared: the list could not be read")
    assert file.drift_path is not None
    with Path(file.drift_path).open(encoding="utf-8", newline="") as opened:
        lines = [[*line[:4], line[7]] for line in csv.reader(opened)][1:]
    assert lines == [
        ["ann@x.org", "first_name", "Ann", "Anna", "changed"],
        ["ann@x.org", "tags", "", '["a"]', "changed"],
        ["bob@x.org", "", "", "", "not_compared"],
    ]


def test_rows_that_an_earlier_run_reported_make_no_file(tmp_path: Path) -> None:
    with LoadFiles(tmp_path, ["email"], "run", lambda: datetime(2026, 11, 1, tzinfo=UTC)) as file:
        file.write_change(KNOWN)
    assert (file.drift_path, list(tmp_path.iterdir())) == (None, [])
