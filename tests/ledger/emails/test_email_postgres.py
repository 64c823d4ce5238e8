"""Emails in PostgreSQL: the schema of the tables, and the lock of a campaign, which ends with its session."""

import pytest
from sqlalchemy import make_url

from connector.errors import LedgerError, LockedError
from connector.ledger.opening import open_email_log, open_ledger
from connector.states import EmailState
from tests.ledger.emails.transitions import add_campaign, bring_to_state, read_email_state
from tests.ledger.places import add_schema, check_opening_fails, run_sql
from tests.pipelines.conftest import wait_for

TABLES_SQL = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
SESSIONS_SQL = "FROM pg_stat_activity WHERE application_name LIKE 'connector: process %%' AND pid <> pg_backend_pid()"


def find_schema(url: str) -> str:
    return str(run_sql(url, "SELECT current_schema()")[0][0])


def set_search_path(url: str, *schemas: str) -> str:
    options = {"options": f"-csearch_path={','.join(schemas)}"}
    return make_url(url).update_query_dict(options).render_as_string(hide_password=False)


@pytest.mark.parametrize("is_ledger_opened_first", [True, False])
def test_another_search_path_opens_the_same_emails(
    postgres_url: str, server_url: str, is_ledger_opened_first: bool
) -> None:
    """The search path of another role may start with another schema."""
    other_schema_url = add_schema(server_url)
    url_with_other_path = set_search_path(postgres_url, find_schema(other_schema_url), find_schema(postgres_url))
    first_open_context = open_ledger(postgres_url) if is_ledger_opened_first else open_email_log(postgres_url)
    with first_open_context:
        pass
    with open_email_log(url_with_other_path) as email_log:
        bring_to_state(email_log, add_campaign(email_log), EmailState.SENT)
    with open_email_log(postgres_url) as email_log:
        assert read_email_state(email_log, add_campaign(email_log)) is EmailState.SENT
    assert run_sql(other_schema_url, TABLES_SQL) == []


def test_a_campaign_is_also_locked_for_a_process_with_another_search_path(postgres_url: str, server_url: str) -> None:
    url_with_other_path = set_search_path(postgres_url, find_schema(add_schema(server_url)), find_schema(postgres_url))
    with (
        open_email_log(postgres_url) as email_log,
        email_log.hold_campaign("account", "welcome"),
        open_email_log(url_with_other_path) as other_email_log,
    ):
        check_opening_fails(other_email_log.hold_campaign("account", "welcome"), LockedError, "welcome is held")


def test_a_run_whose_database_session_ended_writes_nothing_more(postgres_url: str) -> None:
    with open_email_log(postgres_url) as email_log:
        with email_log.hold_campaign("account", "welcome") as campaign:
            bring_to_state(email_log, campaign, EmailState.SENDING)
            run_sql(postgres_url, f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS_SQL}")
            with pytest.raises(LedgerError, match=r"terminating connection|server closed"):
                read_email_state(email_log, campaign)
            with (
                open_email_log(postgres_url) as other_email_log,
                other_email_log.hold_campaign("account", "welcome") as same_campaign,
            ):
                with other_email_log.transaction():
                    assert other_email_log.mark_sending_emails_unknown(same_campaign) == 1
                for _ in range(2):
                    with pytest.raises(LedgerError, match="the connection to the ledger was lost"):
                        read_email_state(email_log, campaign)
        with pytest.raises(LedgerError, match="the connection to the ledger was lost"):
            read_email_state(email_log, campaign)
    wait_for(lambda: run_sql(postgres_url, f"SELECT pid {SESSIONS_SQL}") == [])
