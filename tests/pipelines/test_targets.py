"""Targets of exports and reports: new files, empty files and files of earlier runs, and no other file."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.export.people import MIXED_TABLE
from tests.export.readers import read_csv
from tests.pipelines.conftest import ROOT, Connector, write_addresses

FOREIGN = {
    "people.csv": b"email,name\nann@example.com,Ann\n",
    "people.csv.gz": gzip.compress(b"email,name\nann@example.com,Ann\n"),
    "people.jsonl": b'{"email": "ann@example.com"}\n',
    "people.jsonl.gz": gzip.compress(b'{"email": "ann@example.com"}\n'),
    "damaged.csv.gz": b"\x1f\x8b, and no gzip",
    "text.parquet": b"PAR1, and no Parquet",
    "text.jsonl": b"[" * 100_000,
}
FORMATS = ["out.parquet", "out.csv.gz"]


@pytest.fixture
def filled(connector: Connector) -> Connector:
    connector.sandbox.seed(20, base_name="News")
    return connector


def write_foreign_parquet(path: Path) -> bytes:
    """Write a Parquet file of another program that has the columns of a run."""
    pq.write_table(pa.Table.from_batches(MIXED_TABLE.to_batches()).drop_columns(["tags"]), path)
    return path.read_bytes()


@pytest.mark.parametrize("name", [*FOREIGN, "people.parquet"])
def test_a_file_of_another_program_is_replaced_only_with_overwrite(
    filled: Connector, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(FOREIGN.get(name, b""))
    before = FOREIGN[name] if name in FOREIGN else write_foreign_parquet(path)

    refused = filled.run_json("export", name)
    assert (refused.code, refused.report["status"]) == (2, "usage")
    assert "--overwrite" in refused.report["message"]
    assert path.read_bytes() == before
    assert "list" not in filled.sandbox.stats()["requests"]

    if name in ("people.csv", "text.parquet"):
        assert filled.run_json("export", name, "--overwrite").rows == {"read": 20, "written": 20}
        assert filled.run_json("export", name).rows == {"read": 20, "written": 20}, "it is an export's by now"
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == [name]


def test_a_job_replaces_a_file_of_another_program_with_its_key_overwrite(filled: Connector, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(FOREIGN["people.csv"])
    job = tmp_path / "job.yaml"
    job.write_text("job: w\nexport: {to: people.csv, columns: [email]}\n", encoding="utf-8")
    assert filled.run_json("export", job).code == 2
    assert (tmp_path / "people.csv").read_bytes() == FOREIGN["people.csv"]
    assert filled.run_json("export", job, "--overwrite").code == 0
    (tmp_path / "people.csv").write_bytes(FOREIGN["people.csv"])
    job.write_text("job: w\nexport: {to: people.csv, overwrite: true, group_readable: true}\n", encoding="utf-8")
    assert filled.run_json("export", job).code == 0
    assert (tmp_path / "people.csv").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_file_and_an_earlier_export_are_replaced(connector: Connector, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert connector.run_json("export", name).report["rows"] == {"read": 0, "written": 0}
    connector.sandbox.seed(20, base_name="News")
    assert connector.run_json("export", name).rows == {"read": 20, "written": 20}
    connector.sandbox.reset()
    connector.sandbox.seed(2, base_name="News")
    shrunk = connector.run_json("export", name)
    assert (shrunk.code, "90% fewer than the 20" in shrunk.stderr) == (3, True), "what is there is counted, packed too"


def test_a_link_is_followed_and_a_pipe_or_a_device_is_refused(filled: Connector, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "people.csv")
    assert filled.run_json("export", "link.csv").code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert read_csv(tmp_path / "real" / "people.csv").num_rows == 20

    (tmp_path / "real" / "people.csv").write_bytes(FOREIGN["people.csv"])
    assert filled.run_json("export", "link.csv").code == 2
    assert (tmp_path / "real" / "people.csv").read_bytes() == FOREIGN["people.csv"]

    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "null.csv").symlink_to(os.devnull)
    for name, words in (("pipe.csv", "a pipe"), ("null.csv", "a character device")):
        for more in ((), ("--overwrite",)):
            result = filled.run_json("export", name, *more)
            assert (result.code, words in result.report["message"]) == (2, True)
    assert (tmp_path / "null.csv").resolve() == Path(os.devnull)
    for url in ("sqlite:///pipe.csv", "duckdb:///pipe.csv", "duckdb:///null.csv"):
        result = filled.run_json("export", url)
        assert (result.code, "is not a file" in result.report["message"]) == (2, True)


def test_parquet_carries_the_run_and_the_certificate(filled: Connector, tmp_path: Path) -> None:
    result = filled.run_json("export", "out.parquet", "--columns", "email, tags")
    metadata = pq.read_metadata(tmp_path / "out.parquet").metadata
    assert json.loads(metadata[b"certificate"]) == result.report["certificate"]
    assert json.loads(metadata[b"connector_run"])["run_id"] == result.report["run_id"]
    named = ["id", "email", "tags", "_run_id", "_exported_at", "_invalid"]
    assert pq.read_schema(tmp_path / "out.parquet").names == named


def test_standard_output_gets_the_rows_and_stderr_the_report(filled: Connector, tmp_path: Path) -> None:
    result = filled.run("export", "-", "--report", "report.json")
    (tmp_path / "out.csv").write_text(result.stdout, encoding="utf-8")
    assert result.code == 0
    assert read_csv(tmp_path / "out.csv").num_rows == 20
    assert "complete" in result.stderr
    assert json.loads((tmp_path / "report.json").read_bytes())["rows"] == {"read": 20, "written": 20}

    both = filled.run("export", "-", "--output", "json")
    assert both.code == 2
    assert json.loads(both.stdout)["status"] == "usage"


@pytest.mark.parametrize(
    ("output", "arguments"), [("closed", ("export", "-")), ("out-full", ("export", "out.csv", "--output", "json"))]
)
def test_a_full_or_closed_standard_output_ends_with_exit_code_3(
    filled: Connector, output: str, arguments: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "pipelines", *arguments]
    options = {"cwd": filled.folder, "env": os.environ | filled.environ | {"PYTHONPATH": str(ROOT)}}
    if output == "closed":
        result = subprocess.run(
            ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, check=False, **options
        )  # type: ignore[call-overload] # one dict of both
    else:
        with Path("/dev/full").open("wb") as full:
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, **options)  # type: ignore[call-overload]
    assert result.returncode == 3, result.stderr
    assert b"tandard output" in result.stderr
    assert b"Traceback" not in result.stderr
    assert b"fault of the program" not in result.stderr


@pytest.mark.parametrize("name", ["run.json", "run.html"])
def test_a_report_replaces_only_a_report(filled: Connector, tmp_path: Path, name: str) -> None:
    """Each report replaces the previous one: of one run, of several runs, and of a command without a run."""
    people = write_addresses(tmp_path / "people.csv", 2)
    (tmp_path / name).touch()
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: w\nsource: {file: {path: people.csv}}\n"
        "subscriber: {base: {id: 7}, fields: {email: email, is_active: {value: true}}}\n",
        encoding="utf-8",
    )
    for arguments in (
        ("import", str(people), "--base-id", "7", "--active"),
        ("sync", "job.yaml", "job.yaml"),
        ("forget", "person1@example.com"),
        ("ledger", "backup", "copy.db"),
        ("validate", "job.yaml"),
        ("export", "out.parquet"),
    ):
        assert filled.run(*arguments, "--report", name).code == 0, arguments
    for foreign in (
        b'{"status": "ok", "items": []}',
        b"<!DOCTYPE html>\n<html></html>",
        b"email\n",
        b"SQLite format 3",
    ):
        (tmp_path / name).write_bytes(foreign)
        refused = filled.run_json("export", "out.parquet", "--report", name)
        assert (refused.code, refused.report["status"]) == (2, "usage")
        assert (tmp_path / name).read_bytes() == foreign
