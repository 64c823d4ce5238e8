"""Exports to Delta tables: what each mode leaves, whose table it is, and what a reader sees at any moment."""

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
from connector.paging.certificate import Verdict
from connector.warehouse.destination import parse_destination
from connector.warehouse.opening import open_writer
from connector.warehouse.runs import ExportStart, RowChanges
from tests.export.people import BARE, BROKEN, FULL
from tests.export.test_modes import day, person, publish
from tests.stores import Bucket, set_environ


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A destination in a new folder, or in a new bucket."""
    if request.param == "folder":
        return f"delta://{tmp_path / 'lake' / 'subscribers'}"
    bucket: Bucket = request.getfixturevalue("bucket")
    set_environ(monkeypatch, bucket.environ | {"AWS_ALLOW_HTTP": "true"})
    return f"delta://{bucket.url('lake/subscribers')}"


def open_table(place: str) -> DeltaTable:
    return DeltaTable(place.removeprefix("delta://"))


def read(place: str, *columns: str) -> list[tuple[Any, ...]]:
    """id, first_name, the run's number, and these columns; a time as the number of its day."""
    rows = open_table(place).to_pyarrow_table().to_pylist()
    picked = [
        (row["id"], row["first_name"], float(row["_run_id"][4:]), *(row[name] for name in columns)) for row in rows
    ]
    return sorted(picked, key=lambda row: (row[0], row[2]))


def find_commits(place: str) -> list[dict[str, Any]]:
    """The exports in the table's history, the last one first."""
    return [json.loads(commit["connector"]) for commit in open_table(place).history() if "connector" in commit]


def test_replace_leaves_only_the_listed_rows(place: str) -> None:
    target = parse_destination(place)
    publish(target, [person(1), person(2)], 1)
    assert publish(target, [person(2, "Bo"), person(3)], 2) == RowChanges(inserted=2)
    assert read(place) == [(2, "Bo", 2), (3, "Ann", 2)]
    publish(target, [], 3)
    assert read(place) == []


def test_append_keeps_the_earlier_rows(place: str) -> None:
    target = parse_destination(place, mode="append")
    publish(target, [person(1), person(2)], 1)
    publish(target, [person(2, "Bo")], 2)
    assert read(place) == [(1, "Ann", 1), (2, "Ann", 1), (2, "Bo", 2)]


def test_upsert_keeps_one_row_for_each_subscriber_and_marks_who_has_gone(place: str) -> None:
    target = parse_destination(place, mode="upsert")
    publish(target, [person(1), person(2), person(4)], 1)
    assert publish(target, [person(2, "Bo", Tags=["x"]), person(3), person(4)], 2) == RowChanges(1, 2)
    assert read(place, "deleted_at", "_exported_at") == [
        (1, "Ann", 2, day(2), day(2)), (2, "Bo", 2, None, day(2)), (3, "Ann", 2, None, day(2)),
        (4, "Ann", 1, None, day(1)),
    ]  # fmt: skip

    publish(target, [person(1), person(2, "Bo", Tags=["x"]), person(4)], 3)
    assert read(place, "deleted_at")[0] == (1, "Ann", 3, None)
    assert read(place, "deleted_at")[2] == (3, "Ann", 3, day(3))
    assert publish(target, [person(1), person(2, "Bo", Tags=["x"]), person(4)], 4) == RowChanges(0, 0)


def test_a_filtered_upsert_marks_only_subscribers_whom_the_filter_lists(tmp_path: Path) -> None:
    place = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(place, mode="upsert")
    in_base = [person(number, "O'Neil", Base={"Id": base, "Name": "x"}) for number, base in ((1, 7), (2, 7), (3, 8))]
    publish(target, in_base, 1)
    publish(target, in_base[:1], 2, asked={"base_id": 7, "first_name": "O'Neil"})
    assert [row[3] for row in read(place, "deleted_at")] == [None, day(2), None]
    publish(target, in_base[:1], 3, verdict=Verdict.INCOMPLETE)
    assert [row[3] for row in read(place, "deleted_at")] == [None, day(2), None], "an incomplete list marks nobody"


def test_values_of_every_field_are_equal_in_duckdb_pandas_and_pyarrow(tmp_path: Path) -> None:
    place = f"delta://{tmp_path / 'lake'}"
    publish(parse_destination(place), [FULL, BARE, BROKEN], 1)
    table = open_table(place).to_pyarrow_table().sort_by("id")
    by_id = {row["id"]: row for row in table.to_pylist()}
    full = by_id[FULL["Id"]]
    assert (full["tags"], full["birthday"], full["address_zip"]) == (FULL["Tags"], date(1904, 2, 29), "02134")
    assert full["address_line2"] == "Line\r\ntwo"
    assert json.loads(by_id[3]["_invalid"])["birthday"] == "1990-02-30"
    frame = open_table(place).to_pandas().sort_values("id")
    assert frame["email"].tolist()[-1] == FULL["Email"]
    dataset = open_table(place).to_pyarrow_dataset()
    assert dataset is not None
    assert duckdb.connect().execute("select count(*), max(id) from dataset").fetchall() == [(3, FULL["Id"])]


def test_each_export_is_one_commit_with_its_run_and_certificate(place: str) -> None:
    for mode, number in (("append", 1), ("append", 2)):
        publish(parse_destination(place, mode=mode), [person(1)], number, asked={"base_id": 7})
    assert open_table(place).version() == 1
    last = find_commits(place)[0]
    assert (last["run_id"], last["mode"], last["rows"], last["filters"]) == ("run-2", "append", 1, '{"base_id": 7}')
    assert last["certificate"]["verdict"] == "complete"


def test_partition_columns_divide_the_table_into_folders_and_cannot_change(tmp_path: Path) -> None:
    place = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(place, mode="upsert", partition_by=["base_id", "is_active"])
    people = [
        person(1, Base={"Id": 7, "Name": "x"}, IsActive=True),
        person(2, Base={"Id": 8, "Name": "y"}, IsActive=False),
    ]
    publish(target, people, 1)
    publish(target, [person(1, "Bo", Base={"Id": 7, "Name": "x"}, IsActive=False)], 2)
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"_delta_log", "base_id=7", "base_id=8"}
    assert [row[:3] for row in read(place)] == [(1, "Bo", 2), (2, "Ann", 2)]
    with pytest.raises(ConfigurationError, match="partitioned by base_id, is_active"):
        publish(parse_destination(place, mode="upsert", partition_by=["base_id"]), people, 3)


def test_a_table_of_another_program_is_left_unchanged_without_overwrite(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    write_deltalake(folder, pa.table({"id": [1], "mine": ["x"]}))
    with pytest.raises(ConfigurationError, match="--overwrite"):
        publish(parse_destination(f"delta://{folder}"), [person(1)], 1)
    with pytest.raises(ConfigurationError, match="lacks"):
        publish(parse_destination(f"delta://{folder}", overwrite=True), [person(1)], 1)
    assert DeltaTable(folder).to_pyarrow_table().to_pylist() == [{"id": 1, "mine": "x"}]


def test_an_adopted_table_belongs_to_the_connector_from_then_on(tmp_path: Path) -> None:
    place, other = f"delta://{tmp_path / 'lake'}", tmp_path / "other"
    publish(parse_destination(place), [person(1)], 1)
    rows = open_table(place).to_pyarrow_table()
    write_deltalake(other, rows.append_column("mine", pa.array(["x"])))
    publish(parse_destination(f"delta://{other}", overwrite=True), [person(2)], 2)
    publish(parse_destination(f"delta://{other}"), [person(3)], 3)
    assert [(row["id"], row["mine"]) for row in DeltaTable(other).to_pyarrow_table().to_pylist()] == [(3, None)]


def test_upsert_leaves_the_columns_that_it_does_not_write(tmp_path: Path) -> None:
    """A column of the user's own, and a column that --columns leaves out."""
    place = f"delta://{tmp_path / 'lake'}"
    publish(parse_destination(place, mode="upsert"), [person(1), person(2)], 1)
    table = open_table(place)
    rows = table.to_pyarrow_table()
    own = rows.append_column("mine", pa.array(["kept"] * len(rows)))
    write_deltalake(table, own, mode="overwrite", schema_mode="overwrite")
    publish(parse_destination(place, mode="upsert", columns=["email", "tags"]), [person(1, Tags=["x"]), person(3)], 2)
    assert read(place, "mine", "tags") == [
        (1, "Ann", 2, "kept", ["x"]), (2, "Ann", 2, "kept", ["a", "b"]), (3, None, 2, None, ["a", "b"]),
    ]  # fmt: skip


def test_a_table_stays_in_its_mode_even_if_its_history_is_gone(tmp_path: Path) -> None:
    place = f"delta://{tmp_path / 'lake'}"
    publish(parse_destination(place, mode="append"), [person(1)], 1)
    table = open_table(place)
    write_deltalake(table, table.to_pyarrow_table(), mode="append")  # another program's commit
    table.create_checkpoint()
    for version in range(2):
        (tmp_path / "lake" / "_delta_log" / f"{version:020d}.json").unlink()
    assert find_commits(place) == []
    with pytest.raises(ConfigurationError, match="kept in the mode append"):
        publish(parse_destination(place, mode="upsert"), [person(1)], 2)


def test_a_folder_with_other_files_is_refused_and_a_new_one_is_private(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="has files and is not a Delta table"):
        publish(parse_destination(f"delta://{tmp_path / 'full'}"), [person(1)], 1)
    publish(parse_destination(f"delta://{tmp_path / 'own'}"), [person(1)], 1)
    publish(parse_destination(f"delta://{tmp_path / 'shared'}", group_readable=True), [person(1)], 1)
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o750


def test_an_export_that_began_earlier_does_not_overwrite_a_later_one(place: str) -> None:
    target = parse_destination(place)
    publish(target, [person(1)], 1)
    writer = open_writer(target)
    writer.prepare(ExportStart("run-2", "nightly", {}, day(2)))
    publish(target, [person(3)], 3)
    with pytest.raises(RunAborted, match="began later"):
        _publish_staged(writer, 2)
    assert read(place) == [(3, "Ann", 3)]


@pytest.mark.parametrize("mode", ["replace", "upsert"])
def test_an_export_that_is_overtaken_just_before_its_commit_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    from connector.warehouse import delta

    place = f"delta://{tmp_path / 'lake'}"
    target = parse_destination(place, mode=mode)
    publish(target, [person(1)], 1)

    def overtake(*_: Any) -> None:
        monkeypatch.undo()
        publish(target, [person(3)], 3)

    monkeypatch.setattr(delta, "refuse_now", overtake)
    with pytest.raises(RunAborted, match="No row of this export was written"):
        publish(target, [person(2)], 2)
    assert [row[0] for row in read(place)] == ([3] if mode == "replace" else [1, 3])


def test_an_incomplete_list_never_replaces_rows(place: str) -> None:
    target = parse_destination(place)
    publish(target, [person(1)], 1, verdict=Verdict.INCOMPLETE)
    with pytest.raises(RunAborted, match="replaces nothing"):
        publish(target, [person(2)], 2, verdict=Verdict.INCOMPLETE)
    assert read(place) == [(1, "Ann", 1)]


def test_the_last_certified_export_with_the_same_filters_is_counted(place: str) -> None:
    target = parse_destination(place, mode="append")
    publish(target, [person(1), person(2)], 1)
    publish(target, [person(1)], 2, verdict=Verdict.INCOMPLETE)
    writer = open_writer(target)
    writer.prepare(ExportStart("run-3", "nightly", {}, day(3)))
    assert (writer.count_last({}), writer.count_last({"base_id": 7})) == (2, None)
    writer.discard()


_KILLED = """
import os, signal, sys
from connector.warehouse import delta
from connector.warehouse.destination import parse_destination
from tests.export.test_modes import person, publish
real, moment = delta.write_deltalake, sys.argv[2]
def write(*args, **options):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)
delta.write_deltalake = write
publish(parse_destination(sys.argv[1], mode="append"), [person(2)], 2)
"""


@pytest.mark.parametrize(("moment", "ids"), [("before", [1]), ("after", [1, 2])])
def test_a_killed_export_leaves_all_of_its_rows_or_none(tmp_path: Path, moment: str, ids: list[int]) -> None:
    place = f"delta://{tmp_path / 'lake'}"
    publish(parse_destination(place, mode="append"), [person(1)], 1)
    command = [sys.executable, "-c", _KILLED, place, moment]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [row[0] for row in read(place)] == ids
    publish(parse_destination(place, mode="append"), [person(3)], 3)
    assert [row[0] for row in read(place)] == [*ids, 3]


def test_a_commit_whose_answer_was_lost_counts_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from connector.warehouse import delta

    def write_and_fail(*arguments: Any, **options: Any) -> None:
        write_deltalake(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(delta, "write_deltalake", write_and_fail)
    place = f"delta://{tmp_path / 'lake'}"
    assert publish(parse_destination(place), [person(1)], 1) == RowChanges(inserted=1)
    assert read(place) == [(1, "Ann", 1)]


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        ("delta://", {}, "needs a folder"),
        ("delta://lake", {"mode": "history"}, "keeps its earlier versions"),
        ("delta://lake", {"table": "people"}, "leave out the table"),
        ("delta://lake", {"file_format": "csv"}, "is for files"),
        ("delta://lake", {"run_columns": False}, "needs _run_id"),
        ("delta://lake", {"partition_by": ["tags"]}, "cannot be partitioned"),
        ("delta://lake", {"partition_by": ["gender"], "columns": ["email"]}, "add gender to the columns"),
        ("delta://ftp://host/lake", {}, "only objects at s3"),
        ("people.parquet", {"partition_by": ["gender"]}, "not a Delta table"),
    ],
)
def test_an_option_that_a_delta_table_does_not_have_is_refused(
    place: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_destination(place, **options)


def _publish_staged(writer: Any, number: int) -> RowChanges:
    from connector.warehouse.columns import SCHEMA
    from tests.export.people import build_table, run_of

    writer.add(build_table([person(2)], run_id=f"run-{number}", exported_at=day(number)).select(SCHEMA.names))
    try:
        changes: RowChanges = writer.publish(run_of(1, run_id=f"run-{number}", at=day(number)))
        return changes
    finally:
        writer.discard()
