"""The file of differences comes whole, beside whatever a killed run has left."""

from pathlib import Path

from pipelines.report.differences import DifferenceFile


def test_what_a_killed_run_left_is_removed_and_in_nobodys_way(tmp_path: Path) -> None:
    path, left = tmp_path / "differences.csv", tmp_path / ".differences.csv.partial"
    left.write_text("ann@example.com", encoding="utf-8")
    for _ in range(2):
        with DifferenceFile(path) as file:
            file.write("missing", "News", "=ann@example.com", [1, 2])
            assert file.publish() == str(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text(encoding="utf-8").splitlines()[1] == "missing,News,'=ann@example.com,1; 2,,,,,"
