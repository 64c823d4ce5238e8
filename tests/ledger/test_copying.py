"""Copying a ledger from SQLite to PostgreSQL: all rows are copied, and no command uses the old ledger again."""

from pathlib import Path

import pytest
from sqlalchemy import select

from connector.clock import system_clock
from connector.errors import ConfigurationError, LockedError
from connector.ledger.copies import back_up_ledger, copy_ledger
from connector.ledger.opening import open_email_log, open_ledger
from connector.ledger.records import start_run
from connector.ledger.schema import emails_metadata, entry, metadata
from connector.ledger.store import Store
from connector.states import EmailState, State
from tests.ledger.emails.transitions import add_campaign, bring_to_state as move_email_to
from tests.ledger.places import build_file_url, run_sql
from tests.ledger.transitions import EVENTS_BY_REACHED_STATE, add_base, begin_run, bring_to_state

COPIED_AT = system_clock().now()


@pytest.fixture
def source_url(tmp_path: Path) -> str:
    """The URL of a ledger with an entry in each state, each in its own base, and with emails."""
    url = build_file_url(tmp_path / "state" / "ledger.db")
    with open_ledger(url) as ledger:
        begin_run(ledger)
        for index, state in enumerate(state for state in EVENTS_BY_REACHED_STATE if state is not State.NONE):
            bring_to_state(ledger, add_base(ledger, index + 1, f"Base {index}"), state)
    with open_email_log(url) as email_log:
        move_email_to(email_log, add_campaign(email_log), EmailState.SENDING)
    return url


def read_rows(store: Store) -> dict[str, list[dict[str, object]]]:
    """Return all rows of a ledger by table, except the rows of `meta` and `email_meta`."""
    tables = [*metadata.sorted_tables, *emails_metadata.sorted_tables]
    with store.transaction():
        return {
            table.name: [
                dict(row) for row in store.connection.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in tables
            if table.name not in ("meta", "email_meta")
            and store.connection.dialect.has_table(store.connection, table.name)
        }


def test_all_rows_are_copied_and_new_rows_get_larger_keys(source_url: str, postgres_url: str) -> None:
    with open_ledger(source_url) as ledger:
        entry_rows = read_rows(ledger.store)
    with open_email_log(source_url) as email_log:
        email_rows = read_rows(email_log.store)
    assert copy_ledger(source_url, postgres_url, copied_at=COPIED_AT) == (len(EVENTS_BY_REACHED_STATE) - 1, 1)
    with open_ledger(postgres_url) as ledger:
        copied_rows = read_rows(ledger.store)
    assert {name: copied_rows[name] for name in entry_rows} == entry_rows
    assert {name: copied_rows[name] for name in email_rows} == email_rows
    check_keys_of_new_rows(postgres_url)


def check_keys_of_new_rows(postgres_url: str) -> None:
    """Check that new rows of the copy get larger keys than the copied rows."""
    with open_ledger(postgres_url) as ledger:
        with ledger.transaction() as connection:
            assert start_run(connection, "run-2", "job", "import", 1.0) == 2
        assert add_base(ledger, 99).key == len(EVENTS_BY_REACHED_STATE)
    with open_email_log(postgres_url) as email_log:
        assert add_campaign(email_log, "farewell").key == 2


def test_the_old_ledger_is_refused_after_the_copy(source_url: str, postgres_url: str, tmp_path: Path) -> None:
    copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)
    for open_old_ledger in (open_ledger, open_email_log):
        with pytest.raises(ConfigurationError, match=r"was copied to .* and is closed"), open_old_ledger(source_url):
            pass
    with pytest.raises(ConfigurationError, match="was copied to"):
        copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)
    back_up_ledger(source_url, tmp_path / "copy.db")
    with pytest.raises(ConfigurationError, match="was copied to"), open_ledger(build_file_url(tmp_path / "copy.db")):
        pass


def test_a_postgresql_ledger_with_rows_is_refused_and_nothing_is_copied(source_url: str, postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
    with pytest.raises(ConfigurationError, match=r"has rows in the table run\. Nothing was copied"):
        copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)
    with open_ledger(source_url) as ledger, ledger.transaction() as connection:
        assert len(connection.execute(select(entry)).all()) == len(EVENTS_BY_REACHED_STATE) - 1
    run_sql(postgres_url, "DELETE FROM run")
    assert copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)[0] == len(EVENTS_BY_REACHED_STATE) - 1


def test_a_run_that_holds_one_of_the_ledgers_prevents_the_copy(source_url: str, postgres_url: str) -> None:
    for ledger_url in (source_url, postgres_url):
        with open_ledger(ledger_url), pytest.raises(LockedError):
            copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)
    assert copy_ledger(source_url, postgres_url, copied_at=COPIED_AT)[0] == len(EVENTS_BY_REACHED_STATE) - 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://user:secret@127.0.0.1:1/x", "URL has a password"),
        ("sqlite:///other.db", "use connector ledger backup"),
    ],
)
def test_a_copy_to_a_url_with_a_password_or_to_sqlite_is_refused(source_url: str, url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as error_info:
        copy_ledger(source_url, url, copied_at=COPIED_AT)
    assert "secret" not in str(error_info.value)
