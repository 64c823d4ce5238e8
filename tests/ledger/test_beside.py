"""Runs that do not lock the ledger start with the rate limit that the last load found."""

import asyncio
import time
from pathlib import Path

from connector.clock import system_clock
from connector.control import Stop
from connector.ledger.opening import open_ledger, start_pace
from connector.ledger.records import record_rate_limit
from connector.ledger.schema import SCHEMA_VERSION
from connector.pace.rate import FoundLimit
from connector.service.settings import Service, Token
from connector.settings import Settings
from tests.ledger.places import ON_SQLITE, build_file_url
from tests.ledger.test_versions import write_meta

FIRST_LIMIT, SECOND_LIMIT = FoundLimit(5.0, 6.0, 1.0, 0.0), FoundLimit(50.0, 60.0, 1.0, 0.5)


def record_limits(url: str, *limits: FoundLimit) -> None:
    now = system_clock().now().timestamp()
    with open_ledger(url) as ledger:
        for limit in limits:
            with ledger.transaction() as connection:
                record_rate_limit(connection, "main", limit, now)


def read_initial_limit(url: str, account: str = "main") -> FoundLimit | None:
    settings = Settings(Service("http://127.0.0.1:1", Token("t")), account, Path(), url)
    pace = asyncio.run(start_pace(settings, float("inf"), system_clock(), Stop()))
    return pace.rate.found_limit


def test_a_run_starts_with_the_limit_that_the_last_load_of_its_account_found(ledger_url: str) -> None:
    record_limits(ledger_url, FIRST_LIMIT, SECOND_LIMIT)
    initial_limit = read_initial_limit(ledger_url)
    assert initial_limit is not None
    assert SECOND_LIMIT.ramp_start_rate <= initial_limit.ramp_end_rate <= 2 * SECOND_LIMIT.ramp_end_rate
    assert read_initial_limit(ledger_url, "other") is None


@ON_SQLITE
def test_the_limit_in_a_ledger_of_another_version_is_not_used(ledger_url: str) -> None:
    record_limits(ledger_url, FIRST_LIMIT)
    write_meta(ledger_url, "schema_version", str(SCHEMA_VERSION + 1))
    assert read_initial_limit(ledger_url) is None


def test_reading_the_recorded_rate_limit_creates_no_ledger(tmp_path: Path, postgres_url: str) -> None:
    for url in (
        build_file_url(tmp_path / "ledger.db"),
        build_file_url(tmp_path / "folder" / "ledger.db"),
        postgres_url,
    ):
        assert read_initial_limit(url) is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_access_to_its_ledger_starts_without_a_known_rate_limit() -> None:
    for url in ["postgresql://u:secret@127.0.0.1:1/x", "postgresql://u@h:port/x", "nonsense", "sqlite://"]:
        started_at = time.monotonic()
        assert read_initial_limit(url) is None
        assert time.monotonic() - started_at < 30
