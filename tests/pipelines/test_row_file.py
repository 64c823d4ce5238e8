"""Files of rows, for example the rejects file: restarts, full disks and permissions."""

import resource
from pathlib import Path

from connector.runs.row_files import RowFile
from pipelines.report.differences import DifferenceFile


def test_a_restarted_row_file_has_no_row_from_before_the_restart(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.csv", ["name"], "rejects file", "rows")
    file.write_line(["Ann"])
    file.restart()
    assert (file.path, list(tmp_path.iterdir())) == (None, [])
    file.write_line(["Bob"])
    file.close()
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").split() == ["name", "Bob"]


def test_a_row_file_on_a_full_disk_reports_a_failure(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.csv", ["name"], "rejects file", "the rows that need attention")
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits_before[1]))
        for _ in range(30):
            file.write_line(["x" * 1000])
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)
    assert file.failure is not None
    assert (
        "cannot be written to its end (File too large), and lacks some of the rows that need attention" in file.failure
    )


def test_a_file_of_differences_replaces_the_partial_file_of_a_killed_run(tmp_path: Path) -> None:
    path = tmp_path / "differences.csv"
    (tmp_path / ".differences.csv.partial").write_text("ann@example.com", encoding="utf-8")
    with DifferenceFile(path) as file:
        assert file.publish() == str(path)
    assert ([file_path.name for file_path in tmp_path.iterdir()], path.stat().st_mode & 0o777) == ([path.name], 0o600)


def test_a_file_of_differences_contains_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "differences.csv"
    with DifferenceFile(path) as file:
        file.write("missing", "News", "=ann@example.com", [1, 2])
        file.publish()
    assert path.read_text(encoding="utf-8").splitlines()[1] == "missing,News,'=ann@example.com,1; 2,,,,,"
