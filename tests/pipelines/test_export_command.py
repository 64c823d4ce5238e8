"""`connector export`: filters, and files of another database."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector


@pytest.fixture
def filled_connector(connector: Connector) -> Connector:
    connector.sandbox.seed(2500, base_name="News")
    return connector


def test_a_job_exports_with_its_filters(filled_connector: Connector, tmp_path: Path) -> None:
    filled_connector.import_file(filled_connector.write_addresses(3))
    job = tmp_path / "job.yaml"
    job.write_text("job: w\nexport: {to: 'sqlite:///w.db', filters: {email: person1@example.com}}\n", encoding="utf-8")
    result = filled_connector.run_json("export", job)
    assert result.rows == {"read": 2503, "written": 1}
    filters = result.report["certificate"]["filters"]
    assert filters["asked"] == {"email": "person1@example.com"}
    assert filters["sent"] is None, "spellings of an address that differ in case are one address"
    assert filters["controls"] == {"email": "by_case"}
    filled_connector.sandbox.switch(filters="icase")
    result = filled_connector.run_json("export", job)
    assert result.rows == {"read": 1, "written": 1}
    assert result.report["certificate"]["filters"]["sent"] == "email"


def test_a_filter_that_matches_nobody_replaces_nothing(filled_connector: Connector, tmp_path: Path) -> None:
    filled_connector.run_json("export", "out.csv")
    content_before = (tmp_path / "out.csv").read_bytes()
    result = filled_connector.run_json("export", "out.csv", "--email", "nobody@example.com")
    assert (result.exit_code, result.report["rows"]["written"]) == (1, 0)
    assert (tmp_path / "out.csv").read_bytes() == content_before


def test_a_file_of_another_database_is_not_opened_with_duckdb(filled_connector: Connector, tmp_path: Path) -> None:
    """DuckDB would download an extension to read the file."""
    filled_connector.run_json("export", "sqlite:///w.db")
    content_before = (tmp_path / "w.db").read_bytes()
    result = filled_connector.run_json("export", "duckdb:///w.db")
    assert result.is_refused
    assert "download" not in result.stderr
    assert "w.db" in result.stderr
    assert (tmp_path / "w.db").read_bytes() == content_before
