"""What only emails in PostgreSQL promise: tables where the ledger's are, a campaign lost with its session."""

import pytest
from sqlalchemy import make_url

from connector.errors import LedgerError, LockedError
from connector.ledger.emails import EmailLog
from connector.ledger.opening import open_emails, open_ledger
from connector.states import EmailState
from tests.ledger.emails.moves import add_campaign, bring_to, read_state
from tests.ledger.places import add_schema, check_refused, run_sql
from tests.pipelines.conftest import wait_for

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
SESSIONS = "FROM pg_stat_activity WHERE application_name LIKE 'connector: process %%' AND pid <> pg_backend_pid()"


def find_schema(url: str) -> str:
    return str(run_sql(url, "SELECT current_schema()")[0][0])


def with_path(url: str, *schemas: str) -> str:
    options = {"options": f"-csearch_path={','.join(schemas)}"}
    return make_url(url).update_query_dict(options).render_as_string(hide_password=False)


@pytest.mark.parametrize("is_ledger_first", [True, False])
def test_the_emails_are_where_the_ledger_is_or_where_they_were_made(
    postgres_url: str, postgres: str, is_ledger_first: bool
) -> None:
    """A role with a schema of its own name comes by another one first, and to the same emails all the same."""
    other = add_schema(postgres)
    from_elsewhere = with_path(postgres_url, find_schema(other), find_schema(postgres_url))
    opening = open_ledger(postgres_url) if is_ledger_first else open_emails(postgres_url)
    with opening:
        pass
    with open_emails(from_elsewhere) as log:
        bring_to(log, add_campaign(log), EmailState.SENT)
    with open_emails(postgres_url) as log:
        assert read_state(log, add_campaign(log)) is EmailState.SENT
    assert run_sql(other, TABLES) == []


def test_a_search_path_that_finds_the_same_emails_finds_the_same_campaigns(postgres_url: str, postgres: str) -> None:
    from_elsewhere = with_path(postgres_url, find_schema(add_schema(postgres)), find_schema(postgres_url))
    with (
        open_emails(postgres_url) as log,
        log.hold_campaign("account", "welcome"),
        open_emails(from_elsewhere) as other,
        pytest.raises(LockedError),
        other.hold_campaign("account", "welcome"),
    ):
        pass


def test_campaigns_of_two_schemas_are_held_apart(postgres: str) -> None:
    with (
        open_emails(add_schema(postgres)) as log,
        open_emails(add_schema(postgres)) as other,
        log.hold_campaign("account", "welcome"),
        other.hold_campaign("account", "welcome"),
    ):
        pass


@pytest.mark.parametrize("table", ["campaign", "email"])
def test_tables_of_something_else_are_left_alone(postgres_url: str, table: str) -> None:
    run_sql(postgres_url, f"CREATE TABLE {table} (note text)")
    check_refused(open_emails(postgres_url), LedgerError, rf"tables of something else \({table}\)")
    assert run_sql(postgres_url, TABLES) == [(table,)]


def test_a_run_that_has_lost_its_campaign_with_its_session_writes_nothing_more(postgres_url: str) -> None:
    with open_emails(postgres_url) as log:
        with log.hold_campaign("account", "welcome") as campaign:
            bring_to(log, campaign, EmailState.SENDING)
            run_sql(postgres_url, f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS}")
            with pytest.raises(LedgerError, match=r"terminating connection|server closed"):
                read_state(log, campaign)
            with open_emails(postgres_url) as other, other.hold_campaign("account", "welcome") as same:
                with other.transaction():
                    assert other.mark_died(same) == 1
                for _ in range(2):
                    with pytest.raises(LedgerError, match="the connection to it was lost"):
                        read_state(log, campaign)
        with pytest.raises(LedgerError, match="the connection to it was lost"):
            read_state(log, campaign)
    wait_for(lambda: run_sql(postgres_url, f"SELECT pid {SESSIONS}") == [])


def test_a_campaign_is_free_for_other_sessions_once_it_is_given_back(postgres_url: str) -> None:
    with open_emails(postgres_url) as log, open_emails(postgres_url) as other:
        hold_for_a_moment(log)
        hold_for_a_moment(other)


def hold_for_a_moment(log: EmailLog) -> None:
    with log.hold_campaign("account", "welcome"):
        pass
