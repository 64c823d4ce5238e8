"""Exports to Delta tables: the values, the owner of a table, and exports that are interrupted. `test_modes`
tests the effect of each mode."""

import json
import os
import signal
import stat
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import CertificateVerdict
from connector.warehouse.destination import parse_destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart, RowChanges
from tests.export.people import BARE_SUBSCRIBER, BROKEN_SUBSCRIBER, FULL_SUBSCRIBER
from tests.export.test_at_once import begin_export, finish_export
from tests.export.test_modes import build_day_time, build_person, publish_people
from tests.stores import Bucket, set_environ


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A destination in a new folder, or in a new bucket."""
    if request.param == "folder":
        return f"delta://{tmp_path / 'lake' / 'subscribers'}"
    bucket: Bucket = request.getfixturevalue("bucket")
    set_environ(monkeypatch, bucket.environ | {"AWS_ALLOW_HTTP": "true"})
    return f"delta://{bucket.url('lake/subscribers')}"


def open_table(url: str) -> DeltaTable:
    return DeltaTable(url.removeprefix("delta://"))


def read_rows(url: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return id, first_name, the number of the run, and these columns, for each row."""
    rows = open_table(url).to_pyarrow_table().to_pylist()
    row_tuples = [
        (row["id"], row["first_name"], float(row["_run_id"][4:]), *(row[name] for name in columns)) for row in rows
    ]
    return sorted(row_tuples, key=lambda row: (row[0], row[2]))


def list_exports(url: str) -> list[dict[str, Any]]:
    """Return the exports in the table's history, the last export first."""
    return [json.loads(commit["connector"]) for commit in open_table(url).history() if "connector" in commit]


def test_a_filtered_upsert_marks_only_subscribers_that_match_the_filter(tmp_path: Path) -> None:
    url = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(url, mode="upsert")
    people = [
        build_person(subscriber_id, "O'Neil", Base={"Id": base_id, "Name": "x"})
        for subscriber_id, base_id in ((1, 7), (2, 7), (3, 8))
    ]
    publish_people(target, people, 1)
    publish_people(target, people[:1], 2, filters={"base_id": 7, "first_name": "O'Neil"})
    assert [row[3] for row in read_rows(url, "deleted_at")] == [None, build_day_time(2), None]


def test_values_of_every_field_are_equal_in_duckdb_pandas_and_pyarrow(tmp_path: Path) -> None:
    url = f"delta://{tmp_path / 'lake'}"
    publish_people(parse_destination(url), [FULL_SUBSCRIBER, BARE_SUBSCRIBER, BROKEN_SUBSCRIBER], 1)
    table = open_table(url).to_pyarrow_table().sort_by("id")
    row_by_id = {row["id"]: row for row in table.to_pylist()}
    full_row = row_by_id[FULL_SUBSCRIBER["Id"]]
    assert (full_row["tags"], full_row["birthday"], full_row["address_zip"]) == (
        FULL_SUBSCRIBER["Tags"],
        date(1904, 2, 29),
        "02134",
    )
    assert full_row["address_line2"] == "Line\r\ntwo"
    assert json.loads(row_by_id[3]["_invalid"])["birthday"] == "1990-02-30"
    frame = open_table(url).to_pandas().sort_values("id")
    assert frame["email"].tolist()[-1] == FULL_SUBSCRIBER["Email"]
    dataset = open_table(url).to_pyarrow_dataset()
    assert dataset is not None
    assert duckdb.connect().execute("select count(*), max(id) from dataset").fetchall() == [(3, FULL_SUBSCRIBER["Id"])]


def test_each_export_is_one_commit_with_its_run_and_certificate(url: str) -> None:
    for mode, export_number in (("append", 1), ("append", 2)):
        publish_people(parse_destination(url, mode=mode), [build_person(1)], export_number, filters={"base_id": 7})
    assert open_table(url).version() == 1
    assert read_rows(url) == [(1, "Ann", 1), (1, "Ann", 2)]
    last_export = list_exports(url)[0]
    assert (last_export["run_id"], last_export["mode"], last_export["rows"], last_export["filters"]) == (
        "run-2",
        "append",
        1,
        '{"base_id": 7}',
    )
    assert last_export["certificate"]["verdict"] == "complete"


def test_partition_columns_divide_the_table_into_folders_and_cannot_change(tmp_path: Path) -> None:
    url = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(url, mode="upsert", partition_by=["base_id", "is_active"])
    people = [
        build_person(1, Base={"Id": 7, "Name": "x"}, IsActive=True),
        build_person(2, Base={"Id": 8, "Name": "y"}, IsActive=False),
    ]
    publish_people(target, people, 1)
    publish_people(target, [build_person(1, "Bo", Base={"Id": 7, "Name": "x"}, IsActive=False)], 2)
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"_delta_log", "base_id=7", "base_id=8"}
    assert [row[:3] for row in read_rows(url)] == [(1, "Bo", 2), (2, "Ann", 2)]
    with pytest.raises(ConfigurationError, match="partitioned by base_id, is_active"):
        publish_people(parse_destination(url, mode="upsert", partition_by=["base_id"]), people, 3)


def test_a_table_of_another_program_stays_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    write_deltalake(folder, pa.table({"id": [1], "mine": ["x"]}))
    with pytest.raises(ConfigurationError, match="--overwrite"):
        publish_people(parse_destination(f"delta://{folder}"), [build_person(1)], 1)
    with pytest.raises(ConfigurationError, match="lacks"):
        publish_people(parse_destination(f"delta://{folder}", overwrite=True), [build_person(1)], 1)
    assert DeltaTable(folder).to_pyarrow_table().to_pylist() == [{"id": 1, "mine": "x"}]


def test_a_table_belongs_to_the_connector_after_the_first_overwrite(tmp_path: Path) -> None:
    url, other_folder = f"delta://{tmp_path / 'lake'}", tmp_path / "other"
    publish_people(parse_destination(url), [build_person(1)], 1)
    rows = open_table(url).to_pyarrow_table()
    write_deltalake(other_folder, rows.append_column("mine", pa.array(["x"])))
    publish_people(parse_destination(f"delta://{other_folder}", overwrite=True), [build_person(2)], 2)
    publish_people(parse_destination(f"delta://{other_folder}"), [build_person(3)], 3)
    assert [(row["id"], row["mine"]) for row in DeltaTable(other_folder).to_pyarrow_table().to_pylist()] == [(3, None)]


def test_upsert_keeps_the_values_of_other_columns(tmp_path: Path) -> None:
    """The table has a column that the user added, and a column that --columns leaves out."""
    url = f"delta://{tmp_path / 'lake'}"
    publish_people(parse_destination(url, mode="upsert"), [build_person(1), build_person(2)], 1)
    table = open_table(url)
    rows = table.to_pyarrow_table()
    rows_with_user_column = rows.append_column("mine", pa.array(["kept"] * len(rows)))
    write_deltalake(table, rows_with_user_column, mode="overwrite", schema_mode="overwrite")
    publish_people(
        parse_destination(url, mode="upsert", columns=["email", "tags"]),
        [build_person(1, Tags=["x"]), build_person(3)],
        2,
    )
    assert read_rows(url, "mine", "tags") == [
        (1, "Ann", 2, "kept", ["x"]), (2, "Ann", 2, "kept", ["a", "b"]), (3, None, 2, None, ["a", "b"]),
    ]  # fmt: skip


def test_a_table_keeps_its_mode_even_if_its_history_is_removed(tmp_path: Path) -> None:
    url = f"delta://{tmp_path / 'lake'}"
    publish_people(parse_destination(url, mode="append"), [build_person(1)], 1)
    table = open_table(url)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")  # a commit of another program
    table.create_checkpoint()
    # A clean-up keeps the commit of the checkpoint. Some releases of deltalake cannot read a table without this commit.
    (tmp_path / "lake" / "_delta_log" / f"{0:020d}.json").unlink()
    assert list_exports(url) == []
    with pytest.raises(ConfigurationError, match="has the mode append"):
        publish_people(parse_destination(url, mode="upsert"), [build_person(1)], 2)


def test_a_folder_with_other_files_is_refused_and_a_new_folder_is_private(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="has files and is not a Delta table"):
        publish_people(parse_destination(f"delta://{tmp_path / 'full'}"), [build_person(1)], 1)
    publish_people(parse_destination(f"delta://{tmp_path / 'own'}"), [build_person(1)], 1)
    publish_people(parse_destination(f"delta://{tmp_path / 'shared'}", group_readable=True), [build_person(1)], 1)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o750


def test_an_export_that_began_earlier_does_not_overwrite_a_later_export(url: str) -> None:
    target = parse_destination(url)
    publish_people(target, [build_person(1)], 1)
    writer = begin_export(target, 2)
    publish_people(target, [build_person(3)], 3)
    with pytest.raises(RunAborted, match="began later"):
        finish_export(writer, 2)
    assert read_rows(url) == [(3, "Ann", 3)]


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_an_export_writes_nothing_if_another_export_commits_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    from connector.warehouse import delta

    url = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(url, mode=mode)
    publish_people(target, [build_person(1)], 1)

    def publish_another_export(*_: Any) -> None:
        monkeypatch.undo()
        publish_people(target, [build_person(3)], 3)

    monkeypatch.setattr(delta, "refuse_if_superseded", publish_another_export)
    with pytest.raises(RunAborted, match="No row of this export was written"):
        publish_people(target, [build_person(2)], 2)
    assert [row[0] for row in read_rows(url)] == ([3] if mode == "replace" else [1, 3])


@pytest.mark.parametrize("url", ["folder"], indirect=True)
def test_an_incomplete_list_never_replaces_rows(url: str) -> None:
    target = parse_destination(url)
    publish_people(target, [build_person(1)], 1, verdict=CertificateVerdict.INCOMPLETE)
    with pytest.raises(RunAborted, match="replaces no rows"):
        publish_people(target, [build_person(2)], 2, verdict=CertificateVerdict.INCOMPLETE)
    assert read_rows(url) == [(1, "Ann", 1)]


@pytest.mark.parametrize("url", ["folder"], indirect=True)
def test_the_row_count_of_the_last_certified_export_with_equal_filters_is_found(url: str) -> None:
    target = parse_destination(url, mode="append")
    publish_people(target, [build_person(1), build_person(2)], 1)
    publish_people(target, [build_person(1)], 2, verdict=CertificateVerdict.INCOMPLETE)
    writer = open_writer(target)
    writer.prepare(ExportStart("run-3", "nightly", {}, build_day_time(3)))
    assert (writer.find_last_row_count({}), writer.find_last_row_count({"base_id": 7})) == (2, None)
    writer.discard()


_KILLED_EXPORT = """
import os, signal, sys
from connector.warehouse import delta
from connector.warehouse.destination import parse_destination
from tests.export.test_modes import build_person, publish_people
original_write, kill_moment = delta.write_deltalake, sys.argv[2]
def write(*args, **options):
    if kill_moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    original_write(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)
delta.write_deltalake = write
publish_people(parse_destination(sys.argv[1], mode="append"), [build_person(2)], 2)
"""


@pytest.mark.parametrize(("kill_moment", "ids"), [("before", [1]), ("after", [1, 2])])
def test_a_killed_export_writes_all_of_its_rows_or_none_of_its_rows(
    tmp_path: Path, kill_moment: str, ids: list[int]
) -> None:
    url = f"delta://{tmp_path / 'lake'}"
    publish_people(parse_destination(url, mode="append"), [build_person(1)], 1)
    command = [sys.executable, "-c", _KILLED_EXPORT, url, kill_moment]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ, check=False)
    assert result.returncode == -signal.SIGKILL
    assert [row[0] for row in read_rows(url)] == ids
    publish_people(parse_destination(url, mode="append"), [build_person(3)], 3)
    assert [row[0] for row in read_rows(url)] == [*ids, 3]


def test_a_commit_without_an_answer_is_reported_as_written_if_it_took_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from connector.warehouse import delta

    def write_and_fail(*arguments: Any, **options: Any) -> None:
        write_deltalake(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(delta, "write_deltalake", write_and_fail)
    url = f"delta://{tmp_path / 'lake'}"
    assert publish_people(parse_destination(url), [build_person(1)], 1) == RowChanges(inserted_row_count=1)
    assert read_rows(url) == [(1, "Ann", 1)]
