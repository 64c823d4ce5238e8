"""A ledger in PostgreSQL: one session writes, and the session is never replaced."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.copies import back_up_ledger
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.states import State
from tests.ledger.moves import add_base, begin_run, bring_to, read_state
from tests.ledger.places import add_schema, check_refused, run_sql
from tests.pipelines.conftest import wait_for

SESSIONS = "FROM pg_stat_activity WHERE application_name LIKE 'connector: process %%' AND pid <> pg_backend_pid()"


@pytest.fixture(autouse=True)
def no_session_of_another_test(postgres: str) -> None:
    """The server sees the end of a session a moment after it was closed."""
    wait_for(lambda: run_sql(postgres, f"SELECT pid {SESSIONS}") == [])


def with_options(url: str, options: str) -> str:
    """The URL, its session started with other options."""
    return make_url(url).update_query_dict({"options": options}).render_as_string(hide_password=False)


def show(url: str, setting: str) -> str:
    with open_ledger(url) as ledger, ledger.transaction() as connection:
        return str(connection.exec_driver_sql(f"SHOW {setting}").scalar_one())


def test_a_commit_is_on_the_disk_with_any_default_of_the_server(postgres_url: str) -> None:
    options = str(make_url(postgres_url).query["options"])
    url = with_options(postgres_url, f"{options} -csynchronous_commit=off")
    assert run_sql(url, "SHOW synchronous_commit") == [("off",)]
    assert show(url, "synchronous_commit") == "on"
    assert show(url, "lock_timeout") == "30s"


def test_the_error_of_a_locked_ledger_names_the_session(postgres_url: str) -> None:
    with open_ledger(postgres_url):
        ((pid,),) = run_sql(postgres_url, f"SELECT pid {SESSIONS}")
        check_refused(open_ledger(postgres_url), LockedError, rf"PostgreSQL's process {pid}\)")


def test_two_schemas_of_one_database_are_two_ledgers(postgres: str) -> None:
    one, other = add_schema(postgres), add_schema(postgres)
    with open_ledger(one) as first, open_ledger(other) as second:
        begin_run(first)
        begin_run(second)
        bring_to(first, add_base(first), State.SENDING)
        assert read_state(second, add_base(second)) is State.NONE


def test_nothing_more_is_written_once_the_connection_is_lost(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        bring_to(ledger, base, State.SENDING)
        run_sql(postgres_url, f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS}")
        with pytest.raises(LedgerError, match=r"terminating connection|server closed"):
            read_state(ledger, base)
        for _ in range(2):
            with pytest.raises(LedgerError, match="the connection to it was lost"):
                read_state(ledger, base)
        assert run_sql(postgres_url, f"SELECT pid {SESSIONS}") == []
    with open_ledger(postgres_url) as ledger:
        assert read_state(ledger, base) is State.SENDING


def test_a_connection_lost_in_the_middle_of_a_transaction_leaves_nothing_of_it(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        bring_to(ledger, base, State.SENDING)
        with pytest.raises(LedgerError):
            die_and_lose_the_connection(ledger, postgres_url)
    with open_ledger(postgres_url) as ledger:
        assert read_state(ledger, base) is State.SENDING


def die_and_lose_the_connection(ledger: Ledger, postgres_url: str) -> None:
    with ledger.transaction():
        ledger.mark_died()
        run_sql(postgres_url, f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS}")


def test_a_server_that_cannot_be_reached_is_named_without_the_password() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/ledger?sslpassword=hunter3"
    place = r"postgresql://me:\*\*\*@127.0.0.1:1/ledger cannot be used"
    with pytest.raises(LedgerError, match=place) as raised, open_ledger(url):
        pass
    assert "hunter" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_missing_driver_is_named_with_the_way_to_get_it() -> None:
    code = (
        "import sys\nsys.modules['psycopg'] = None  # as if it were not installed\n"
        "from connector.errors import ConfigurationError\nfrom connector.ledger.opening import open_ledger\n"
        "try:\n    open_ledger('postgresql://u:hunter2@127.0.0.1:1/x').__enter__()\n"
        "except ConfigurationError as error:\n    print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'subscriber-connector[postgres]'" in ended.stdout
    assert "hunter2" not in ended.stdout


def test_a_ledger_that_may_only_be_read_is_refused_at_opening(postgres_url: str) -> None:
    with open_ledger(postgres_url):
        pass
    options = str(make_url(postgres_url).query["options"])
    url = with_options(postgres_url, f"{options} -cdefault_transaction_read_only=on")
    check_refused(open_ledger(url), LedgerError, "read-only transaction")


def test_a_schema_that_is_not_there_is_refused(postgres: str) -> None:
    check_refused(open_ledger(with_options(postgres, "-csearch_path=nowhere")), LedgerError, "has no schema")


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: str) -> None:
    run_sql_outside(
        postgres, "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = make_url(postgres).set(database="ascii").render_as_string(hide_password=False)
    check_refused(open_ledger(url), LedgerError, "encoding is SQL_ASCII")


def run_sql_outside(postgres: str, statement: str) -> None:
    """One statement that PostgreSQL takes only outside a transaction."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_schema_of_another_program_is_refused_and_stays_unchanged(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE TABLE entry (note text)")
    check_refused(open_ledger(postgres_url), LedgerError, r"tables of something else \(entry\)")
    assert run_sql(postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()") == [("entry",)]


def test_a_schema_may_hold_other_tables_beside_the_ledgers(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE TABLE invoice (note text)")
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)


def test_a_backup_is_left_to_postgresqls_own_tool(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="pg_dump"):
        back_up_ledger(postgres_url, Path("nowhere"))


def test_a_search_path_that_finds_the_same_tables_finds_the_same_lock(postgres_url: str, postgres: str) -> None:
    """A role with a schema of its own name comes first by another one, and to the same ledger all the same."""
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
    (schema,) = run_sql(postgres_url, "SELECT current_schema()")[0]
    own = make_url(add_schema(postgres))
    (first,) = run_sql(own.render_as_string(hide_password=False), "SELECT current_schema()")[0]
    other = with_options(postgres_url, f"-csearch_path={first},{schema}")
    with open_ledger(postgres_url), pytest.raises(LockedError), open_ledger(other):
        pass
    with open_ledger(other) as ledger, ledger.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM run").scalar_one() == 1


@pytest.mark.parametrize("option", ["autocommit=1", "autocommit=false", "row_factory=x", "port=abc"])
def test_an_option_that_is_not_about_the_connection_is_refused(postgres_url: str, option: str) -> None:
    """With psycopg's autocommit no transaction would be one."""
    check_refused(open_ledger(f"{postgres_url}&{option}"), ConfigurationError, option.partition("=")[0])
