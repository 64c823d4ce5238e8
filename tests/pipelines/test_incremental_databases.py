"""Incremental sync from real databases that change between and during runs: the sandbox's truth holds everybody of the
database, each once."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import OPEN, Database
from tests.pipelines.conftest import Connector, count_stored, has_stored, wait_for

_TABLE = {
    "postgresql": "create table customers (email text, updated_at timestamptz default clock_timestamp())",
    "mariadb": "create table customers (email varchar(80), updated_at datetime(6) default now(6))",
}
QUERY = "select email, updated_at from customers where updated_at >= :cursor"


@pytest.fixture(params=sorted(_TABLE))
def crm(request: pytest.FixtureRequest) -> Iterator[Database]:
    with OPEN[request.param]() as database:
        database.run(_TABLE[request.param])
        yield database


def write_job(folder: Path, crm: Database, *, query: str = QUERY, cursor: str = "lookback: 1m") -> Path:
    path = folder / "crm.yaml"
    path.write_text(
        f'job: crm\nsource:\n  sql:\n    url: "{crm.url}"\n    query: "{query}"\n'
        f"    cursor: {{column: updated_at, start: 2000-01-01T00:00:00, {cursor}}}\n"
        "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n"
        "load: {quiet_period: 300ms, max_concurrency: 8}\n",
        encoding="utf-8",
    )
    return path


def add_people(crm: Database, names: list[str]) -> None:
    with crm.begin() as connection:
        for name in names:
            connection.exec_driver_sql("insert into customers (email) values (%s)", (f"{name}@example.com",))


def read_people(crm: Database) -> set[str]:
    with crm.begin() as connection:
        return {str(row[0]) for row in connection.exec_driver_sql("select email from customers")}


def kill_in_the_middle(connector: Connector, job: Path, target: int) -> None:
    """Kill the run as soon as so many are stored."""
    with connector.start("sync", job, "--quiet") as process:
        wait_for(lambda: has_stored(connector.sandbox, target) or process.poll() is not None)
        process.kill()
        process.communicate()


def test_a_cursor_moves_only_as_a_run_ends_whatever_moment_it_is_killed_at(
    connector: Connector, tmp_path: Path, crm: Database
) -> None:
    """Without a look-back, and everything at once: whoever is left out once is left out for good."""
    sandbox, job = connector.sandbox, write_job(tmp_path, crm, cursor="lookback: 0s")
    sandbox.switch(latency_ms=20)
    add_people(crm, [f"first-{number}" for number in range(60)])
    for target in (1, 30, 60):
        kill_in_the_middle(connector, job, target)
    ended = connector.run_json("sync", job)
    assert ended.rows["read"] in (1, 60)  # 1: the last one was killed after it had ended
    add_people(crm, ["second"])
    after = connector.run_json("sync", job)
    assert after.rows == {"read": 2, "created": 1, "exists": 1}
    assert count_stored(sandbox) == dict.fromkeys(read_people(crm), 1)


@pytest.mark.parametrize(("cursor", "rows"), [("lookback: 1m", {"read": 2, "created": 1, "exists": 1}),
                                              ("lookback: 0s", {"read": 1, "exists": 1})])  # fmt: skip
def test_a_row_that_is_committed_late_is_what_a_lookback_is_for(
    connector: Connector, tmp_path: Path, crm: Database, cursor: str, rows: dict[str, int]
) -> None:
    job = write_job(tmp_path, crm, cursor=cursor)
    with crm.begin() as slow:
        slow.exec_driver_sql(
            "insert into customers (email) values (%s)", ("late@example.com",)
        )  # its time is now, and nobody sees it yet
        add_people(crm, ["early"])
        assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    assert connector.run_json("sync", job).rows == rows
    assert connector.run_json("sync", job, "--full").rows["read"] == 2
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)


BREAKING = {
    "postgresql": "select email, updated_at, 1 / divisor as n from customers where updated_at >= :cursor",
    "mariadb": (
        "select email, updated_at, if(divisor = 0, (select 1 union select 2), 1) as n from customers "
        "where updated_at >= :cursor"
    ),
}


def test_a_source_that_fails_in_the_middle_ends_the_run_before_anything_is_sent(
    connector: Connector, tmp_path: Path, crm: Database
) -> None:
    """Its first 20,000 rows are a chunk, of fifty people; the second chunk has a row that cannot be computed."""
    series = {"postgresql": "generate_series(1, 20100) as s(seq)", "mariadb": "seq_1_to_20100"}[crm.kind]
    crm.run(
        "alter table customers add column divisor integer",
        "insert into customers (email, updated_at, divisor) select concat('p', case when seq <= 20000 then "
        "mod(seq, 50) else seq end, '@example.com'), '2026-11-20 10:00:00', case when seq = 20050 then 0 else 1 end "
        f"from {series}",
    )
    job = write_job(tmp_path, crm, query=BREAKING[crm.kind])
    failed = connector.run_json("sync", job)
    if crm.kind == "postgresql":  # the driver says that a value is at fault, which a person must correct
        assert failed.is_refused
    else:
        assert (failed.code, failed.report["status"]) == (3, "aborted")
        assert failed.rows == {"read": 20_000, "unsent": 20_000}
        assert failed.report["messages"][-1].startswith("no cursor is kept: the run did not finish")
    assert "reading stopped after row 20000" in failed.stderr
    assert count_stored(connector.sandbox) == {}
    crm.run("update customers set divisor = 1")
    mended = connector.run_json("sync", job)
    assert (mended.code, mended.rows) == (
        0, {"read": 20_100, "created": 150, "duplicate": 19_950},
    )  # fmt: skip
    assert mended.report["messages"][-1].startswith("the cursor stands at 2026-11-20T10:00:00")
    assert count_stored(connector.sandbox) == dict.fromkeys(read_people(crm), 1)


REFUSED = [
    # (database, type of the column, values, start, words)
    ("postgresql", "double precision", ["1", "'NaN'"], "0",
     '1 row has no whole number in updated_at .*record 2: "nan"'),
    ("postgresql", "text", ["'24.11.2026 10:00'"], "2000-01-01T00:00:00", "text >= timestamp"),
    ("postgresql", "bigint", ["1764000000"], "2000-01-01T00:00:00", "integer >= timestamp|bigint >= timestamp"),
    ("mariadb", "varchar(40)", ["'2026-11-24 10:00'", "'24.11.2026 10:00'", "'13.11.2026'"], "2000-01-01T00:00:00",
     '2 rows have no timestamp in updated_at .*"13.11.2026"'),
    ("mariadb", "bigint", ["1764000000"], "2000-01-01T00:00:00", "has numbers, and start is a timestamp"),
    ("mariadb", "datetime null", ["'0000-00-00'", "'2026-11-24'"], "2000-01-01", "1 row has no date in updated_at"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "type_", "values", "start", "words"), REFUSED)
def test_values_that_cannot_be_compared_are_refused_before_anything_is_sent(
    connector: Connector, tmp_path: Path, kind: str, type_: str, values: list[str], start: str, words: str
) -> None:
    with OPEN[kind]() as crm:
        rows = ", ".join(f"('p{number}@example.com', {value})" for number, value in enumerate(values))
        crm.run(
            *(["set sql_mode = ''"] if kind == "mariadb" else []),
            f"create table customers (email varchar(80), updated_at {type_})",
            f"insert into customers values {rows}",
        )
        job = write_job(tmp_path, crm, cursor="lookback: 0s")
        job.write_text(job.read_text(encoding="utf-8").replace("2000-01-01T00:00:00", start), encoding="utf-8")
        for command in ("check", "sync"):
            ended = connector.run(command, job)
            assert ended.code == 2, (command, ended.stdout)
            assert re.search(words, ended.stdout + ended.stderr), (command, ended.stdout + ended.stderr)
    assert connector.sandbox.stats()["subscribers"] == 0


def test_a_bound_with_a_zone_begins_at_its_moment_in_a_session_of_another_zone(
    connector: Connector, tmp_path: Path
) -> None:
    with OPEN["mariadb"]() as crm:
        crm.run(
            "set time_zone = '+00:00'",
            "create table customers (email varchar(80), updated_at timestamp null)",
            "insert into customers values ('before@example.com', '2026-11-21 07:59:59'), "
            "('at@example.com', '2026-11-21 08:00:00'), ('after@example.com', '2026-11-21 09:00:00')",
        )
        eastern = Database("mariadb", f"{crm.url}?init_command=set%20time_zone='-05:00'")
        job = write_job(tmp_path, eastern)
        ended = connector.run_json("sync", job, "--since", "2026-11-21T10:00:00+02:00")
        assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2})
        ended = connector.run_json("sync", job)
    assert ended.rows == {"read": 3, "created": 1, "exists": 2}
    assert "the cursor stands at 2026-11-21T09:00:00+00:00 now" in ended.report["messages"]
