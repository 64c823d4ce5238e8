"""Exports that several workers stage in parts: the rows that one process writes, all at once or none, and nothing left
of what a worker or a run left that died."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from connector.errors import ConfigurationError, RunAborted
from connector.export import Exported, PartDone, PartOrder, PartReaders, export_part, export_subscribers
from connector.paging.certificate import Reason
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.wire import ListQuery
from connector.stores import StoreError, delete_objects, list_folder, replace_bytes
from connector.warehouse.destination import Destination, Format, parse_destination
from tests.export.exports import export, hurried, now, service_of
from tests.export.warehouses import connect, open_destination, run_sql
from tests.stores import Bucket, set_environ

QUERY = ListQuery(limit=50)
ROWS = 900
OF_RUN = {"_run_id", "_exported_at"}

Spoil = Callable[[Client, Destination, Sequence[PartOrder], list[PartDone]], Awaitable[None]]


def export_in_parts(
    sandbox: SandboxProcess, destination: Destination, *, spoil: Spoil | None = None, **options: Any
) -> Exported:
    """As a run with two workers does, in this process; `spoil` comes when all parts are staged."""

    async def run() -> Exported:
        async with open_client(service_of(sandbox)) as client:

            async def read(orders: Sequence[PartOrder]) -> Sequence[PartDone]:
                parts = [export_part(client, hurried(), QUERY, destination, order) for order in orders]
                done = list(await asyncio.gather(*parts))
                if spoil is not None:
                    await spoil(client, destination, orders, done)
                return done

            return await export_subscribers(
                client,
                hurried(),
                QUERY,
                destination,
                run_id=uuid4().hex,
                now=now,
                readers=PartReaders(2, read),
                **options,
            )

    return asyncio.run(run())


@pytest.fixture(params=["folder", "divided", "s3", "replace", "append", "upsert", "history"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    """A folder, one by base, one in a store, or a table of PostgreSQL in each mode."""
    if request.param in ("folder", "divided"):
        by = "base_id" if request.param == "divided" else None
        return parse_destination(str(tmp_path / "list"), in_parts=True, partition_by=by)
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        set_environ(monkeypatch, bucket.environ)
        return parse_destination(bucket.url("list"), in_parts=True)
    return open_destination(request, tmp_path, Format.POSTGRESQL, mode=request.param, in_parts=True)


def read_rows(destination: Destination) -> list[dict[str, Any]]:
    """All rows, by their ids, without what is of the run alone."""
    if destination.is_database:
        with connect(destination) as connection:
            table = f"{destination.schema}.subscribers"
            rows = [dict(each) for each in connection.exec_driver_sql(f"select * from {table}").mappings()]
    else:
        rows = [row for name in read_manifest(destination)["files"] for row in read_file(destination, name)]
    return sorted(({k: v for k, v in row.items() if k not in OF_RUN} for row in rows), key=lambda row: row["id"])


def list_files(destination: Destination) -> list[str]:
    if destination.object_url is not None:
        return sorted(name for name in list_folder(destination.object_url) if name.endswith(".parquet"))
    return sorted(str(path.relative_to(destination.path)) for path in destination.path.rglob("*.parquet"))


def read_file(destination: Destination, name: str) -> list[dict[str, Any]]:
    import fsspec

    place = destination.object_url or str(destination.path)
    with fsspec.open(f"{place}/{name}") as file:
        table: pa.Table = pq.ParquetFile(file).read()
    rows: list[dict[str, Any]] = table.to_pylist()
    by, _, value = name.partition("/")[0].partition("=")
    return [{**row, by: int(value)} for row in rows] if value else rows


def list_leftovers(destination: Destination) -> list[str]:
    """Staged parts that no data set has, and tables of the connector's own."""
    if destination.is_database:
        with connect(destination) as connection:
            names = sa.inspect(connection).get_table_names(schema=destination.schema)
        return [name for name in names if name.startswith("_connector_part")]
    if destination.object_url is None:
        return [path.name for path in destination.path.parent.iterdir() if path != destination.path]
    return [name for name in list_files(destination) if name not in read_manifest(destination)["files"]]


def read_manifest(destination: Destination) -> dict[str, Any]:
    import fsspec

    with fsspec.open(f"{destination.object_url or destination.path}/_connector.json") as file:
        manifest: dict[str, Any] = json.load(file)
    return manifest | {"files": {each["path"]: each["rows"] for each in manifest["files"]}}


def test_the_rows_are_those_that_one_process_writes(
    place: Destination, sandbox: SandboxProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sandbox.seed(ROWS - 100, base_name="News")
    sandbox.seed(100, base_name="Shop")
    alone = parse_destination(str(tmp_path_factory.mktemp("alone") / "alone.parquet"))
    export(sandbox, alone)

    exported = export_in_parts(sandbox, place)

    certificate = exported.certificate
    assert (certificate.reason, certificate.ranges, exported.written) == (Reason.ID_ORDER, 2, ROWS)
    expected = pq.read_table(alone.path).drop_columns(sorted(OF_RUN)).to_pylist()
    written = read_rows(place)
    assert [{name: row[name] for name in expected[0]} for row in written] == expected
    assert list_leftovers(place) == []
    if not place.is_database:
        manifest = read_manifest(place)
        assert (manifest["rows"], sum(manifest["files"].values())) == (ROWS, ROWS)
        assert set(manifest["files"]) == set(list_files(place))
        assert manifest["certificate"]["ranges"] == 2


@pytest.mark.parametrize("place", ["divided", "append", "history"], indirect=True)
def test_another_export_takes_the_place_of_the_first(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")
    export_in_parts(sandbox, place)
    sandbox.seed(50, base_name="News")
    assert export_in_parts(sandbox, place).written == ROWS + 50
    kept = ROWS if place.mode == "append" and place.is_database else 0
    assert len(read_rows(place)) == ROWS + 50 + kept
    assert list_leftovers(place) == []


@pytest.mark.parametrize("place", ["folder", "s3", "replace"], indirect=True)
def test_what_a_dead_attempt_staged_never_shows(place: Destination, sandbox: SandboxProcess) -> None:
    first = sandbox.seed(ROWS, base_name="News")["first_id"]

    async def stage_twice(client: Client, there: Destination, orders: Sequence[PartOrder], _: list[PartDone]) -> None:
        await export_part(client, hurried(), QUERY, there, orders[0])

    assert export_in_parts(sandbox, place, spoil=stage_twice).written == ROWS
    assert [row["id"] for row in read_rows(place)] == list(range(first, first + ROWS))
    assert list_leftovers(place) == []


@pytest.mark.parametrize("place", ["folder", "s3", "upsert"], indirect=True)
def test_a_part_that_is_lost_before_the_end_leaves_all_as_it_was(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")
    export(sandbox, place)
    before = read_rows(place)

    async def lose(_: Client, there: Destination, __: Sequence[PartOrder], done: list[PartDone]) -> None:
        staged = done[1].staged
        assert staged is not None
        (name,) = staged.rows
        if there.is_database:  # as a server does that has crashed
            run_sql(there, f"truncate {{}}{name}")
        elif there.object_url is not None:
            delete_objects([f"{there.object_url}/{name}"])
        else:
            (there.path.parent / f".{there.path.name}.new" / name).unlink()

    with pytest.raises(RunAborted, match=r"is gone|has 0 rows, and a worker staged \d+"):
        export_in_parts(sandbox, place, spoil=lose)
    assert read_rows(place) == before
    assert list_leftovers(place) == []


@pytest.mark.parametrize("place", ["folder", "s3", "replace"], indirect=True)
def test_a_part_that_fails_leaves_all_as_it_was(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")
    export(sandbox, place)
    before = read_rows(place)

    async def fail(*_: object) -> None:
        raise RunAborted("another worker cannot be reached")

    with pytest.raises(RunAborted, match="another worker"):
        export_in_parts(sandbox, place, spoil=fail)
    assert read_rows(place) == before
    assert list_leftovers(place) == [] or place.object_url is not None  # a store's go with the next export


@pytest.mark.parametrize("place", ["replace", "s3"], indirect=True)
def test_what_a_killed_run_left_goes_with_the_next_one(place: Destination, sandbox: SandboxProcess) -> None:
    """Of a folder it is written over before that."""
    sandbox.seed(ROWS, base_name="News")
    export_in_parts(sandbox, place)
    before = read_rows(place)

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.warehouse.tables.TableParts.drop", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            export_in_parts(sandbox, place, spoil=die)
    assert len(list_leftovers(place)) == 2
    export(sandbox, place)
    assert read_rows(place) == before
    assert list_leftovers(place) == []


@pytest.mark.parametrize("place", ["divided", "upsert"], indirect=True)
def test_a_list_that_cannot_be_divided_is_read_by_one_process(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")
    sandbox.switch(order="email")

    exported = export_in_parts(sandbox, place)

    assert exported.undivided.startswith("One process read the list: it is in no order of its ids")
    assert (exported.certificate.reason, exported.certificate.ranges) == (Reason.TWO_SWEEPS, 1)
    assert len(read_rows(place)) == exported.written == ROWS


@pytest.mark.parametrize("place", ["folder", "replace"], indirect=True)
def test_ranges_that_prove_nothing_are_read_again_by_one_process(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")

    async def forget(_: Client, __: Destination, ___: Sequence[PartOrder], done: list[PartDone]) -> None:
        done.pop()

    exported = export_in_parts(sandbox, place, spoil=forget)

    assert exported.undivided.startswith("One process read the list: its pages did not join")
    assert len(read_rows(place)) == exported.written == ROWS
    assert list_leftovers(place) == []


@pytest.mark.parametrize("place", ["folder", "replace"], indirect=True)
def test_a_window_and_a_list_that_shrank_are_refused_as_by_one_process(
    place: Destination, sandbox: SandboxProcess
) -> None:
    sandbox.seed(3000, base_name="News")
    export_in_parts(sandbox, place)
    before = read_rows(place)
    sandbox.switch(result_window=1733)
    assert export_in_parts(sandbox, place).certificate.reason is Reason.CUT_OFF
    sandbox.reset()
    sandbox.seed(ROWS, base_name="News")
    exported = export_in_parts(sandbox, place)
    assert exported.is_refused
    assert "70% fewer" in exported.note
    assert read_rows(place) == before
    assert list_leftovers(place) == []


@pytest.mark.parametrize("text", ["a.parquet", "-", "duckdb:///w.duckdb", "sqlite:///w.db", "s3://bucket/a.parquet"])
def test_what_several_workers_cannot_write_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"by several workers: export to a folder.* or leave out --engine"):
        parse_destination(text, in_parts=True)


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_manifest_that_may_be_there_keeps_the_files_that_it_names(
    place: Destination, sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.seed(ROWS, base_name="News")

    def replace_and_lose_the_answer(*arguments: Any) -> None:
        replace_bytes(*arguments)
        raise StoreError("no answer came", is_passing=True)

    monkeypatch.setattr("connector.warehouse.dataset_places.replace_bytes", replace_and_lose_the_answer)
    with pytest.raises(RunAborted, match="no answer came"):
        export_in_parts(sandbox, place)
    assert len(read_rows(place)) == ROWS


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_ranges_that_prove_nothing_leave_no_files_in_a_store(place: Destination, sandbox: SandboxProcess) -> None:
    sandbox.seed(ROWS, base_name="News")

    async def move_rows(*_: object) -> None:
        sandbox.switch(order="shuffled", filters="ignored")

    exported = export_in_parts(sandbox, place, spoil=move_rows)

    assert exported.undivided
    assert not exported.certificate.is_complete
    assert list_files(place) == []
