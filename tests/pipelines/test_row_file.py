"""A file of rows that is begun anew."""

import resource
from pathlib import Path

from connector.row_files import RowFile


def test_a_file_that_is_begun_anew_holds_only_what_came_since(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.csv", ["name"], "rejects file", "rows")
    file.write_line(["Ann"])
    file.restart()
    assert (file.path, list(tmp_path.iterdir())) == (None, [])
    file.write_line(["Bob"])
    file.close()
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").split() == ["name", "Bob"]


def test_one_that_cannot_be_thrown_away_is_a_failure_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    file = RowFile(path, ["name"], "rejects file", "rows")
    file.write_line(["Ann"])
    path.unlink()
    path.mkdir()
    file.restart()
    assert file.failure is not None
    assert f"the rejects file {path} cannot be replaced" in file.failure


def test_a_file_that_is_cut_off_by_a_full_disk_is_a_failure_that_is_reported(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.csv", ["name"], "rejects file", "the rows that a person should see")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        for _ in range(30):
            file.write_line(["x" * 1000])
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.failure is not None
    assert "cannot be written to its end (File too large), so not all of the rows that a person" in file.failure
