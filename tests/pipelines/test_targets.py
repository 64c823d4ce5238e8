"""Filters of exports, and targets of exports and reports: new files, empty files and files of earlier runs."""

import gzip
import io
import json
import os
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.warehouse.destination import find_format_traits
from tests.export.people import MIXED_TABLE
from tests.export.readers import read_csv
from tests.export.warehouses import FILE_FORMATS
from tests.pipelines.conftest import Connector


def build_foreign_workbook() -> bytes:
    """Return a workbook that has columns of an export, as if another program had written the workbook."""
    file, workbook = io.BytesIO(), openpyxl.Workbook()
    workbook.active.append(["id", "_invalid", "_run_id"])
    workbook.save(file)
    return file.getvalue()


def build_foreign_parquet() -> bytes:
    """Return a Parquet file that has the run columns, as if another program had written the file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches(MIXED_TABLE.to_batches()).drop_columns(["tags"]), file)
    return file.getvalue()


FOREIGN_CONTENT_BY_NAME = {
    "people.csv": b"email,name\nann@example.com,Ann\n",
    "people.csv.gz": gzip.compress(b"email,name\nann@example.com,Ann\n"),
    "people.jsonl": b'{"email": "ann@example.com"}\n',
    "people.parquet": build_foreign_parquet(),
    "people.xlsx": build_foreign_workbook(),
    "people.jsonl.gz": gzip.compress(b'{"email": "ann@example.com"}\n'),
    "damaged.csv.gz": b"\x1f\x8b, and no gzip",
    "text.parquet": b"PAR1, and no Parquet",
    "text.jsonl": b"[" * 100_000,
}
FILE_NAMES = ["out.parquet", "out.csv.gz"]


@pytest.fixture
def filled_connector(connector: Connector) -> Connector:
    connector.sandbox.seed(20, base_name="News")
    return connector


FILE_SUFFIXES = [find_format_traits(file_format).suffix for file_format in FILE_FORMATS]


@pytest.mark.parametrize("name", sorted({*FOREIGN_CONTENT_BY_NAME, *(f"people{suffix}" for suffix in FILE_SUFFIXES)}))
def test_only_the_option_overwrite_replaces_a_file_of_another_program(filled_connector: Connector, name: str) -> None:
    path = filled_connector.folder / name
    content_before = FOREIGN_CONTENT_BY_NAME[name]
    path.write_bytes(content_before)
    refused_result = filled_connector.run_json("export", name)
    assert (refused_result.exit_code, refused_result.report["status"]) == (2, "usage")
    assert "--overwrite" in refused_result.report["message"]
    assert path.read_bytes() == content_before
    assert "list" not in filled_connector.sandbox.stats()["requests"]
    if name in ("people.csv", "text.parquet", "people.xlsx"):
        assert filled_connector.run_json("export", name, "--overwrite").rows == {"read": 20, "written": 20}
        # An export wrote the file, so --overwrite is not needed.
        assert filled_connector.run_json("export", name).rows == {"read": 20, "written": 20}
    assert [file.name for file in filled_connector.folder.iterdir() if file.is_file()] == [name]


def test_the_key_overwrite_lets_a_job_replace_a_file_of_another_program(filled_connector: Connector) -> None:
    (filled_connector.folder / "people.csv").write_bytes(FOREIGN_CONTENT_BY_NAME["people.csv"])
    job_text = "job: w\nexport: {to: people.csv, overwrite: true, group_readable: true}\n"
    (filled_connector.folder / "job.yaml").write_text(job_text)
    assert filled_connector.run_json("export", "job.yaml").exit_code == 0
    assert (filled_connector.folder / "people.csv").stat().st_mode & 0o777 == 0o640


def test_a_pipe_or_a_device_is_refused(filled_connector: Connector) -> None:
    os.mkfifo(filled_connector.folder / "pipe.csv")
    (filled_connector.folder / "null.csv").symlink_to(os.devnull)
    for name, expected_text in (("pipe.csv", "a pipe"), ("null.csv", "a character device")):
        for overwrite_options in ((), ("--overwrite",)):
            result = filled_connector.run_json("export", name, *overwrite_options)
            assert (result.exit_code, expected_text in result.report["message"]) == (2, True)
    assert (filled_connector.folder / "null.csv").resolve() == Path(os.devnull)
    for url in ("sqlite:///pipe.csv", "duckdb:///pipe.csv", "duckdb:///null.csv"):
        result = filled_connector.run_json("export", url)
        assert (result.exit_code, "is not a file" in result.report["message"]) == (2, True)


def test_a_parquet_file_has_the_run_and_the_certificate_in_its_metadata(filled_connector: Connector) -> None:
    result = filled_connector.run_json("export", "out.parquet", "--columns", "email, tags")
    metadata = pq.read_metadata(filled_connector.folder / "out.parquet").metadata
    assert json.loads(metadata[b"certificate"]) == result.report["certificate"]
    assert json.loads(metadata[b"connector_run"])["run_id"] == result.report["run_id"]
    expected_columns = ["id", "email", "tags", "_run_id", "_exported_at", "_invalid"]
    assert pq.read_schema(filled_connector.folder / "out.parquet").names == expected_columns


def test_the_report_names_values_that_do_not_fit_their_column(filled_connector: Connector) -> None:
    assert filled_connector.run_json("export", "out.csv").report["messages"] == []
    filled_connector.sandbox.switch(activity="letter")
    (message,) = filled_connector.run_json("export", "out.csv").report["messages"]
    assert message.startswith("20 rows have values of a type that does not fit the column, for example in is_active.")
    assert filled_connector.run_json("export", "email.csv", "--columns", "email").report["messages"] == []


def test_standard_output_gets_the_rows_and_stderr_the_report(filled_connector: Connector) -> None:
    result = filled_connector.run("export", "-", "--report", "report.json")
    (filled_connector.folder / "out.csv").write_text(result.stdout, encoding="utf-8")
    assert result.exit_code == 0
    assert read_csv(filled_connector.folder / "out.csv").num_rows == 20
    assert "complete" in result.stderr
    assert json.loads((filled_connector.folder / "report.json").read_bytes())["rows"] == {"read": 20, "written": 20}
    json_result = filled_connector.run("export", "-", "--output", "json")
    assert json_result.exit_code == 2
    assert json.loads(json_result.stdout)["status"] == "usage"


@pytest.mark.parametrize("name", ["run.json", "run.html"])
def test_a_report_replaces_only_a_report(filled_connector: Connector, name: str) -> None:
    """Each command replaces the report of the previous command, even if one of the commands is not a run."""
    filled_connector.write_addresses(2)
    (filled_connector.folder / name).touch()
    filled_connector.write_job(base="id: 7")
    for command in ("sync job.yaml", "forget person1@example.com", "validate job.yaml", "export out.parquet"):
        assert filled_connector.run(*command.split(), "--report", name).exit_code == 0, command
    for foreign_content in (b'{"status": "ok", "items": []}', b"<!DOCTYPE html>\n<html></html>"):
        (filled_connector.folder / name).write_bytes(foreign_content)
        refused_result = filled_connector.run_json("export", "out.parquet", "--report", name)
        assert (refused_result.exit_code, refused_result.report["status"]) == (2, "usage")
        assert (filled_connector.folder / name).read_bytes() == foreign_content


def test_a_job_exports_with_its_filters(filled_connector: Connector) -> None:
    filled_connector.import_file(filled_connector.write_addresses(3))
    (filled_connector.folder / "job.yaml").write_text(
        "job: w\nexport: {to: 'sqlite:///w.db', filters: {email: person1@example.com}}\n"
    )
    result = filled_connector.run_json("export", "job.yaml")
    assert result.report["rows"]["written"] == 1
    assert result.report["certificate"]["filters"]["asked"] == {"email": "person1@example.com"}


def test_an_export_does_not_replace_a_file_if_no_subscriber_matches(
    filled_connector: Connector, tmp_path: Path
) -> None:
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
