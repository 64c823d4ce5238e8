"""A ledger in PostgreSQL: its session, its settings, and databases that are refused."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.copies import back_up_ledger
from connector.ledger.opening import open_ledger
from connector.states import State
from tests.ledger.places import add_schema, check_opening_fails, run_sql
from tests.ledger.transitions import add_base, begin_run, bring_to_state, read_entry_state
from tests.pipelines.conftest import wait_for

SESSIONS_SQL = "FROM pg_stat_activity WHERE application_name LIKE 'connector: process %%' AND pid <> pg_backend_pid()"


@pytest.fixture(autouse=True)
def wait_for_end_of_other_sessions(server_url: str) -> None:
    """Wait until the server has noticed the end of the sessions of other tests."""
    wait_for(lambda: run_sql(server_url, f"SELECT pid {SESSIONS_SQL}") == [])


def set_options(url: str, options: str) -> str:
    """Return the URL with these options of the session."""
    return make_url(url).update_query_dict({"options": options}).render_as_string(hide_password=False)


def read_setting(url: str, setting: str) -> str:
    with open_ledger(url) as ledger, ledger.transaction() as connection:
        return str(connection.exec_driver_sql(f"SHOW {setting}").scalar_one())


def test_a_commit_waits_for_the_disk_with_any_default_setting_of_the_server(postgres_url: str) -> None:
    options = str(make_url(postgres_url).query["options"])
    url = set_options(postgres_url, f"{options} -csynchronous_commit=off")
    assert run_sql(url, "SHOW synchronous_commit") == [("off",)]
    assert read_setting(url, "synchronous_commit") == "on"
    assert read_setting(url, "lock_timeout") == "30s"


def test_two_schemas_of_one_database_are_two_ledgers(server_url: str) -> None:
    first_url, second_url = add_schema(server_url), add_schema(server_url)
    with open_ledger(first_url) as first_ledger, open_ledger(second_url) as second_ledger:
        begin_run(first_ledger)
        begin_run(second_ledger)
        bring_to_state(first_ledger, add_base(first_ledger), State.SENDING)
        assert read_entry_state(second_ledger, add_base(second_ledger)) is State.NONE


def test_a_run_whose_connection_is_lost_writes_nothing_more(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        bring_to_state(ledger, base, State.SENDING)
        run_sql(postgres_url, f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS_SQL}")
        with pytest.raises(LedgerError, match=r"terminating connection|server closed"):
            read_entry_state(ledger, base)
        for _ in range(2):
            with pytest.raises(LedgerError, match="the connection to the ledger was lost"):
                read_entry_state(ledger, base)
        assert run_sql(postgres_url, f"SELECT pid {SESSIONS_SQL}") == []
    with open_ledger(postgres_url) as ledger:
        assert read_entry_state(ledger, base) is State.SENDING


def test_the_error_of_an_unreachable_server_shows_the_url_without_the_password() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/ledger?sslpassword=hunter3"
    expected_text = r"postgresql://me:\*\*\*@127.0.0.1:1/ledger cannot be used"
    with pytest.raises(LedgerError, match=expected_text) as error_info, open_ledger(url):
        pass
    assert "hunter" not in str(error_info.value)
    assert error_info.value.__suppress_context__


def test_the_error_of_a_missing_driver_shows_how_to_install_it() -> None:
    script = (
        "import sys\nsys.modules['psycopg'] = None  # simulates that psycopg is not installed\n"
        "from connector.errors import ConfigurationError\nfrom connector.ledger.opening import open_ledger\n"
        "try:\n    open_ledger('postgresql://u:hunter2@127.0.0.1:1/x').__enter__()\n"
        "except ConfigurationError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'subscriber-connector[postgres]'" in result.stdout
    assert "hunter2" not in result.stdout


def test_a_read_only_ledger_is_refused_at_opening(postgres_url: str) -> None:
    with open_ledger(postgres_url):
        pass
    options = str(make_url(postgres_url).query["options"])
    url = set_options(postgres_url, f"{options} -cdefault_transaction_read_only=on")
    check_opening_fails(open_ledger(url), LedgerError, "read-only transaction")


def test_a_missing_schema_is_refused(server_url: str) -> None:
    check_opening_fails(open_ledger(set_options(server_url, "-csearch_path=nowhere")), LedgerError, "has no schema")


def test_a_database_that_cannot_hold_every_text_is_refused(server_url: str) -> None:
    run_sql_outside_transaction(
        server_url, "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = make_url(server_url).set(database="ascii").render_as_string(hide_password=False)
    check_opening_fails(open_ledger(url), LedgerError, "encoding is SQL_ASCII")


def run_sql_outside_transaction(server_url: str, statement: str) -> None:
    """Run a statement outside a transaction."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_schema_of_another_program_is_refused_and_stays_unchanged(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE TABLE entry (note text)")
    check_opening_fails(open_ledger(postgres_url), LedgerError, r"tables of another program \(entry\)")
    assert run_sql(postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()") == [("entry",)]


def test_the_error_of_a_backup_of_postgresql_shows_pg_dump() -> None:
    with pytest.raises(ConfigurationError, match="pg_dump"):
        back_up_ledger("postgresql://me@127.0.0.1:1/ledger", Path("nowhere"))


def test_a_ledger_is_locked_for_every_search_path_that_finds_its_tables(postgres_url: str, server_url: str) -> None:
    """The search path of a role can start with the role's own schema."""
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
    (schema,) = run_sql(postgres_url, "SELECT current_schema()")[0]
    own_schema_url = make_url(add_schema(server_url))
    (own_schema,) = run_sql(own_schema_url.render_as_string(hide_password=False), "SELECT current_schema()")[0]
    second_url = set_options(postgres_url, f"-csearch_path={own_schema},{schema}")
    with open_ledger(postgres_url):
        check_opening_fails(open_ledger(second_url), LockedError, "is held by process")
    with open_ledger(second_url) as ledger, ledger.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM run").scalar_one() == 1


@pytest.mark.parametrize("option", ["autocommit=false", "port=abc"])
def test_an_option_that_is_not_about_the_connection_is_refused(postgres_url: str, option: str) -> None:
    """With the autocommit of psycopg, transactions would have no effect."""
    check_opening_fails(open_ledger(f"{postgres_url}&{option}"), ConfigurationError, option.partition("=")[0])
