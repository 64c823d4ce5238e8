"""Emails in PostgreSQL: the schema of the tables, and a campaign that ends with its session."""

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
def test_another_search_path_opens_the_same_emails(postgres_url: str, postgres: str, is_ledger_first: bool) -> None:
    """The search path of a role may find another schema first. The role opens the same emails."""
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


def test_campaigns_of_two_schemas_do_not_block_each_other(postgres: str) -> None:
    with (
        open_emails(add_schema(postgres)) as log,
        open_emails(add_schema(postgres)) as other,
        log.hold_campaign("account", "welcome"),
        other.hold_campaign("account", "welcome"),
    ):
        pass


def test_a_table_of_another_program_is_refused_and_stays_unchanged(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE TABLE email (note text)")
    check_refused(open_emails(postgres_url), LedgerError, r"tables of something else \(email\)")
    assert run_sql(postgres_url, TABLES) == [("email",)]


def test_a_run_whose_session_ended_writes_nothing_more(postgres_url: str) -> None:
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


def test_a_released_campaign_is_free_for_other_sessions(postgres_url: str) -> None:
    with open_emails(postgres_url) as log, open_emails(postgres_url) as other:
        hold_for_a_moment(log)
        hold_for_a_moment(other)


def hold_for_a_moment(log: EmailLog) -> None:
    with log.hold_campaign("account", "welcome"):
        pass
