"""A campaign sends no email to a recipient whom a column of the source or the service's list shows as unsubscribed."""

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.emails.outbox import list_recipients
from tests.pipelines.emails.test_mail_command import mailer, write_job
from tests.pipelines.leftovers import create_with_other_ledger, unsubscribe

__all__ = ["mailer"]


def write_people(mailer: Connector, header: str, *cells: str) -> None:
    names = ("ann", "bob", "cleo", "dan")
    people = (f"{name}@example.net,{name},1,{cell}" for name, cell in zip(names, cells, strict=False))
    mailer.write_people(f"email,first,order,{header}", *people)


def test_an_unsubscribed_row_is_suppressed(mailer: Connector) -> None:
    write_people(mailer, "Newsletter", "nein", "ja", "ja")
    mailer.run_json("mail", "mail.yaml", "--preview", "2").expect_rows(read=3, suppressed=1, sent=2)
    result = mailer.run_json("mail", "mail.yaml").expect(0, read=3, suppressed=1, sent=2)
    assert "the column Newsletter shows that the person wants no email" in result.stderr
    assert list_recipients(mailer.sandbox) == ["bob@example.net", "cleo@example.net"]


def test_each_consent_column_that_is_not_ignored_suppresses_rows(mailer: Connector) -> None:
    write_people(mailer, "is_active,opt-out", "true,1", "false,0", "true,0", "perhaps,0")
    mailer.run_json("mail", "mail.yaml").expect(1, read=4, suppressed=2, invalid=1, sent=1)
    assert list_recipients(mailer.sandbox) == ["cleo@example.net"]
    write_people(mailer, "unsubscribed", "ja", "", "nein")
    write_job(mailer.folder, {"campaign": "second"}, ignore=["unsubscribd"])
    assert "Did you mean unsubscribed?" in mailer.run("mail", "mail.yaml").stderr
    write_job(mailer.folder, {"campaign": "second"}, ignore=["unsubscribed"])
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}


def test_one_unsubscribed_row_suppresses_all_rows_of_its_recipient(mailer: Connector) -> None:
    mailer.write_people("email,first,order,unsubscribed", "ann@example.net,Ann,1,",
        "bob@example.net,Bob,1,", "ANN@example.net,Ann,2,ja", "cleo@example.net,Cleo,1,ja", "cleo@example.net,Cleo,2,",
        "BOB@example.net,Bob,3,", "dan@example.net,Dan,3,", "Dan@Example.net,,,ja",
    )  # fmt: skip
    expected_counts = {"read": 8, "suppressed": 3, "duplicate": 4, "sent": 1}
    assert mailer.run_json("mail", "mail.yaml", "--preview", "2").rows == expected_counts
    # Row 4 suppresses the recipient of row 2, although the limit leaves row 4 out.
    assert mailer.run_json("mail", "mail.yaml", "--limit", "1").rows == {"read": 1, "suppressed": 1}
    result = mailer.run_json("mail", "mail.yaml")
    assert (result.exit_code, result.rows) == (0, expected_counts), result.stderr
    assert list_recipients(mailer.sandbox) == ["bob@example.net"]


@pytest.mark.parametrize(
    ("row", "unsent_row_counts"),
    [("ann@example.net,Ann,1,paused", {"invalid": 1, "duplicate": 1}), ("Ann <ann@example.net>,1", {"invalid": 2})],
)
def test_an_unreadable_row_suppresses_its_recipient(
    mailer: Connector, row: str, unsent_row_counts: dict[str, int]
) -> None:
    people = (f"{name}@example.net,A,1,yes" for name in ("ann", "bob"))
    mailer.write_people("email,first,order,is_active", *people, row)
    result = mailer.run_json("mail", "mail.yaml")
    assert (result.exit_code, result.rows) == (1, {"read": 3, "sent": 1} | unsent_row_counts), result.stderr
    assert list_recipients(mailer.sandbox) == ["bob@example.net"]


def test_the_word_unsubscribed_in_a_late_row_also_suppresses_earlier_rows(mailer: Connector) -> None:
    """Only the word in the late row shows that the column is about subscriptions. The header does not show this."""
    people = [f"p{index}@example.net,P,1,{'inactive' if index == 0 else 'open'}" for index in range(32_000)]
    mailer.write_people("email,first,order,state", *people, "last@example.net,L,1,unsubscribed")
    result = mailer.run_json("mail", "mail.yaml", "--preview", "1")
    assert result.rows["suppressed"] == 2, result.stderr


# Recipients whom the list of the service shows as inactive


def test_an_inactive_subscriber_gets_an_email_only_if_the_job_allows_it(mailer: Connector) -> None:
    mailer.sandbox.seed(1200, base_name="Others")
    unsubscribe(mailer, "BOB@example.net")
    mailer.run_json("mail", "mail.yaml").expect(0, read=3, suppressed=1, sent=2)
    assert list_recipients(mailer.sandbox) == ["ann@example.net", "cleo@example.net"]
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "suppressed": 1, "already_sent": 2}
    write_job(mailer.folder, skip_inactive=False)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "already_sent": 2, "sent": 1}


@pytest.mark.parametrize(
    ("switches", "seeded_people_count"),
    [({"hide": "inactive"}, 0), ({"filters": "ignored"}, 0), ({"activity": "omit_false"}, 20)],
)  # fmt: skip
def test_inactive_subscribers_get_no_email_even_if_the_list_does_not_show_is_active(
    mailer: Connector, switches: dict[str, str], seeded_people_count: int
) -> None:
    if seeded_people_count:
        mailer.sandbox.seed(seeded_people_count, base_name="Others")
    unsubscribe(mailer, "bob@example.net")
    mailer.sandbox.switch(**switches)
    mailer.run_json("mail", "mail.yaml").expect(0, read=3, suppressed=1, sent=2)


SKIP_INACTIVE_ADVICE, UNREADABLE_IS_ACTIVE_MESSAGE = (
    "`skip_inactive: false`",
    "No row of the service's list shows an IsActive that can be read",
)


@pytest.mark.parametrize(
    ("switches", "exit_code", "expected_text"),
    [
        ({"order": "shuffled", "max_limit": 5}, 3, SKIP_INACTIVE_ADVICE),
        ({"rows_omit": "Email"}, 3, SKIP_INACTIVE_ADVICE),
        ({"emails_in_rows": "masked"}, 3, SKIP_INACTIVE_ADVICE),
        ({"activity": "omit", "filters": "ignored"}, 2, UNREADABLE_IS_ACTIVE_MESSAGE),
        ({"activity": "letter"}, 2, UNREADABLE_IS_ACTIVE_MESSAGE),
    ],
)
def test_no_email_is_sent_if_the_list_does_not_show_inactive_subscribers(
    mailer: Connector, switches: dict[str, object], exit_code: int, expected_text: str
) -> None:
    mailer.sandbox.seed(200, base_name="Others")
    unsubscribe(mailer, "bob@example.net")
    mailer.sandbox.switch(**switches)
    result = mailer.run_json("mail", "mail.yaml")
    assert (result.exit_code, list_recipients(mailer.sandbox)) == (exit_code, []), result.stderr
    assert expected_text in result.stderr
    write_job(mailer.folder, skip_inactive=False)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}


def test_a_recipient_is_suppressed_if_the_list_does_not_show_is_active(mailer: Connector) -> None:
    people = [f"p{index}@example.net,{'true' if index else 'false'}" for index in range(9)]
    mailer.write_csv("base.csv", "email,is_active", *people)
    create_with_other_ledger(mailer, mailer.folder / "base.csv", "--base-id", "7")
    mailer.sandbox.switch(activity="omit_some", filters="ignored")
    mailer.write_people("email,first,order", *(f"p{index}@example.net,P,1" for index in range(9)))
    result = mailer.run_json("mail", "mail.yaml")
    create_events = [event for event in mailer.sandbox.truth()["events"] if event["kind"] == "created"]
    emails_without_activity = {event["subscriber"]["Email"] for event in create_events if event["id"] % 3 == 0}
    suppressed_emails = emails_without_activity | {"p0@example.net"}
    assert result.rows == {"read": 9, "suppressed": len(suppressed_emails), "sent": 9 - len(suppressed_emails)}
    assert suppressed_emails.isdisjoint(list_recipients(mailer.sandbox))
