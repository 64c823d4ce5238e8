"""Exports against the sandbox: the same rows and types in every format. A failed export does not change its target."""

import asyncio
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa

from connector import read_subscribers
from connector.export.copying import export_subscribers
from connector.library.lists import build_frame
from connector.listing.pages import ListFailed
from connector.listing.reader import ListProgress
from connector.paging.certificate import Reason
from connector.sandbox import SandboxProcess
from connector.service.client import open_client
from connector.service.wire import ListQuery
from connector.warehouse.destination import Destination, Format, parse_destination
from tests.export.exports import create, export, hurried, now, service_of
from tests.export.readers import read_back
from tests.export.warehouses import connect, open_destination

PEOPLE: list[dict[str, object]] = [
    {
        "base_id": 7, "is_active": True, "email": "zoë@bücher.example", "first_name": 'Zoë "Zo"',
        "last_name": "O'Neil\nvan Dam", "gender": "female", "phone": "+31 20 123", "tags": ["a,b", 'say "hi"', "日本"],
        "client_user_id": "007", "custom_field1": "null", "custom_field2": "", "custom_field3": " spaced ",
        "address_country": "NL", "address_city": "Ἀθῆναι", "address_state": "NH", "address_zip": 2134,
        "address_line1": "שדרות רוטשילד", "address_line2": "a\r\nb", "address_line3": "x", "birthday": "1904-02-29",
    },
    {"base_id": 7, "email": "bare@example.com"},
    {"base_name": "Shop, online", "is_active": False, "email": "bo@example.com", "tags": [], "gender": "male"},
]  # fmt: skip
RUNS_OWN = ["_run_id", "_exported_at"]


@pytest.fixture(params=[Format.CSV, Format.POSTGRESQL])
def file_or_table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """Two destinations for decisions of the export. `test_writers` tests what each writer discards."""
    return open_destination(request, tmp_path, request.param)


def names_in(destination: Destination) -> list[str]:
    """Return the files beside a file, or the name of a table on a server if the table exists."""
    if destination.url is not None:
        with connect(destination) as connection:
            names = sa.inspect(connection).get_table_names(schema=destination.schema)
        return [name for name in names if name != "_connector_runs"]
    return sorted(file.name for file in destination.path.parent.iterdir())


def test_an_export_has_the_rows_and_types_of_read_subscribers(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    create(sandbox, *PEOPLE)

    exported = export(sandbox, file_or_table, run_id="run-1")

    frame = read_subscribers(base_url=sandbox.base_url, token=sandbox.token)
    written = build_frame(read_back(file_or_table))
    pd.testing.assert_frame_equal(written.drop(columns=RUNS_OWN), frame.drop(columns=RUNS_OWN))
    assert written.dtypes.equals(frame.dtypes)
    assert (exported.written, exported.certificate.is_complete, exported.note) == (3, True, "")
    assert written["_run_id"].tolist() == ["run-1"] * 3
    assert written["_exported_at"].nunique() == 1


def test_an_incomplete_list_is_written_on_request_and_never_over_a_target(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")

    exported = export(sandbox, file_or_table)
    assert (exported.written, exported.certificate.reason) == (0, Reason.UNSTABLE_ORDER)
    assert "incomplete" in exported.note
    assert names_in(file_or_table) == []

    exported = export(sandbox, file_or_table, allow_incomplete=True)
    table = read_back(file_or_table)
    assert exported.written == exported.certificate.distinct == table.num_rows == len(set(table["id"].to_pylist()))
    assert (exported.written > 1000, exported.note) == (True, "")

    again = export(sandbox, file_or_table, allow_incomplete=True)
    assert again.written == 0
    assert "replaces nothing" in again.note
    assert read_back(file_or_table).equals(table)
    assert len(names_in(file_or_table)) == 1


def test_a_list_that_fails_leaves_the_target_unchanged_and_no_file(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    create(sandbox, *PEOPLE)
    export(sandbox, file_or_table)
    before = read_back(file_or_table)
    create(sandbox, {"base_id": 7, "email": "new@example.com"})
    sandbox.switch(list_error=1)

    with pytest.raises(ListFailed):
        export(sandbox, file_or_table)

    assert read_back(file_or_table).equals(before)
    assert len(names_in(file_or_table)) == 1


def test_a_cancelled_export_leaves_the_target_unchanged_and_no_file(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    create(sandbox, *PEOPLE)
    export(sandbox, file_or_table)
    before = read_back(file_or_table)
    sandbox.seed(30_000, base_name="News")

    async def run() -> None:
        enough = asyncio.Event()

        def follow(progress: ListProgress) -> None:
            if progress.rows > 20_000:
                enough.set()

        async with open_client(service_of(sandbox)) as client:
            exporting = asyncio.create_task(
                export_subscribers(
                    client, hurried(), ListQuery(), file_or_table, run_id="run-2", now=now, on_progress=follow
                )
            )
            await enough.wait()
            exporting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await exporting

    asyncio.run(run())

    assert read_back(file_or_table).equals(before)
    assert len(names_in(file_or_table)) == 1


def test_certificate_and_export_have_the_rows_of_the_last_sweep_only(sandbox: SandboxProcess, tmp_path: Path) -> None:
    """A list in another order than by id changes all the time, so that every sweep differs."""
    sandbox.seed(3000, base_name="News")
    sandbox.switch(order="email", churn_insert=1, churn_delete=1)
    destination = parse_destination(str(tmp_path / "out.parquet"))

    exported = export(sandbox, destination, allow_incomplete=True)

    certificate = exported.certificate
    assert (certificate.reason, certificate.sweeps) == (Reason.CHANGING, 5)
    assert exported.written == certificate.distinct == read_back(destination).num_rows
    assert certificate.appeared > 0
    assert certificate.vanished > 0


def test_values_of_a_frame_are_the_values_of_the_creates(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)

    table = pa.Table.from_pandas(read_subscribers(base_url=sandbox.base_url, token=sandbox.token))
    rows: list[dict[str, Any]] = table.to_pylist()
    full, bare = rows[0], rows[1]
    sent = PEOPLE[0] | {"address_zip": "2134"}
    read = {name: str(full[name].date()) if name == "birthday" else full[name] for name in sent}
    assert read == sent
    assert bare["is_active"] is False


def test_a_list_that_shrank_is_refused_until_max_shrink_allows_it(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    people: list[dict[str, object]] = [{"base_id": 7, "email": f"p{number}@example.com"} for number in range(10)]
    create(sandbox, *people)
    export(sandbox, file_or_table)
    before = read_back(file_or_table)
    sandbox.reset()
    create(sandbox, *people[:3])

    refused = export(sandbox, file_or_table, max_shrink=0.5)
    assert (refused.written, refused.is_refused) == (0, True)
    assert "70% fewer than the 10" in refused.note
    assert "--max-shrink 70%" in refused.note  # 70 % of 10 is a little less than 7 in binary
    assert read_back(file_or_table).equals(before)
    assert export(sandbox, file_or_table, max_shrink=0.7).written == 3
    assert read_back(file_or_table).num_rows == 3


@pytest.mark.parametrize("to", ["sqlite:///{}/w.db", "duckdb:///{}/w.db", "{}/people.parquet"])
def test_an_export_is_compared_with_the_last_export_of_the_same_filters(
    sandbox: SandboxProcess, tmp_path: Path, to: str
) -> None:
    create(sandbox, *({"base_id": 1 + number % 4, "email": f"p{number}@example.com"} for number in range(16)))
    destination = parse_destination(to.format(tmp_path))
    export(sandbox, destination, max_shrink=0.5)
    for base in (1, 2):
        filtered = export(sandbox, destination, query=ListQuery(base_id=base), max_shrink=0.5)
        assert (filtered.written, filtered.is_refused) == (4, False)
    sandbox.reset()
    create(sandbox, {"base_id": 2, "email": "p1@example.com"})
    assert export(sandbox, destination, query=ListQuery(base_id=2), max_shrink=0.5).is_refused
    assert read_back(destination).num_rows == 4
