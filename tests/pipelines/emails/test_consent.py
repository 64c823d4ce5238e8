"""A campaign goes to nobody who has unsubscribed: by a column of the source, or by the service's list."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.emails.outbox import list_recipients
from tests.pipelines.emails.test_mail_command import mailer, write_job

__all__ = ["mailer"]


def write_people(folder: Path, header: str, *cells: str) -> None:
    names = ("ann", "bob", "cleo", "dan")
    people = (f"{name}@example.net,{name},1,{cell}" for name, cell in zip(names, cells, strict=False))
    write_csv(folder / "people.csv", f"email,first,order,{header}", *people)


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("unsubscribed", ("ja", "", "nein")),
        ("is_active", ("false", "true", "true")),
        ("Abgemeldet am", ("01.02.2024", "", "")),
        ("status", ("cleaned", "subscribed", "subscribed")),
        ("Newsletter", ("nein", "ja", "ja")),
        ("no_newsletter", ("yes", "no", "no")),
    ],
)
def test_a_row_that_says_so_is_suppressed(
    mailer: Connector, tmp_path: Path, header: str, cells: tuple[str, ...]
) -> None:
    write_people(tmp_path, header, *cells)
    preview = mailer.run_json("mail", "mail.yaml", "--preview", "2")
    assert preview.rows == {"read": 3, "suppressed": 1, "sent": 2}, preview.stderr
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, {"read": 3, "suppressed": 1, "sent": 2}), ended.stderr
    assert f"by the column {header}" in ended.stderr
    assert list_recipients(mailer.sandbox) == ["bob@example.net", "cleo@example.net"]


def test_two_columns_are_both_obeyed_and_an_unclear_word_makes_its_row_invalid(
    mailer: Connector, tmp_path: Path
) -> None:
    write_people(tmp_path, "is_active,opt-out", "true,1", "false,0", "true,0", "perhaps,0")
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (1, {"read": 4, "suppressed": 2, "invalid": 1, "sent": 1}), ended.stderr
    assert list_recipients(mailer.sandbox) == ["cleo@example.net"]


@pytest.mark.parametrize(
    "row", ["ann@example.net,Ann,1,paused", "ann@example.net,Ann,Lee,1,no", "Ann <ann@example.net>,1"]
)
def test_a_row_that_cannot_be_read_keeps_the_email_from_its_recipient(
    mailer: Connector, tmp_path: Path, row: str
) -> None:
    write_csv(
        tmp_path / "people.csv",
        "email,first,order,is_active",
        *(f"{name}@example.net,A,1,yes" for name in ("ann", "bob")),
        row,
    )
    ended = mailer.run_json("mail", "mail.yaml")
    assert ended.code == 1, ended.stderr
    others = {"invalid": 1, "duplicate": 1} if row.endswith("paused") else {"invalid": 2}
    assert ended.rows == {"read": 3, "sent": 1} | others
    assert list_recipients(mailer.sandbox) == ["bob@example.net"]


def test_an_ignored_column_says_nothing(mailer: Connector, tmp_path: Path) -> None:
    write_people(tmp_path, "unsubscribed", "ja", "", "nein")
    write_job(tmp_path, ignore=["unsubscribd"])
    assert "Did you mean unsubscribed?" in mailer.run("mail", "mail.yaml").stderr
    write_job(tmp_path, ignore=["unsubscribed"])
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}


def unsubscribe(mailer: Connector, tmp_path: Path, *emails: str) -> None:
    people = write_csv(tmp_path / "gone.csv", "email", *emails)
    other = {"CONNECTOR_STATE_DIR": str(tmp_path / "elsewhere")}
    assert mailer.run_json("import", people, "--base-id", "7", "--inactive", environ=other).code == 0


def test_an_address_that_the_service_lists_as_inactive_gets_no_email(mailer: Connector, tmp_path: Path) -> None:
    mailer.sandbox.seed(1200, base_name="Others")
    unsubscribe(mailer, tmp_path, "BOB@example.net")
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, {"read": 3, "suppressed": 1, "sent": 2}), ended.stderr
    assert list_recipients(mailer.sandbox) == ["ann@example.net", "cleo@example.net"]
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "suppressed": 1, "already_sent": 2}
    write_job(tmp_path, skip_inactive=False)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "already_sent": 2, "sent": 1}


@pytest.mark.parametrize("switches", [{"hide": "inactive"}, {"filters": "ignored"}])
def test_inactive_subscribers_are_found_whatever_the_list_shows(
    mailer: Connector, tmp_path: Path, switches: dict[str, str]
) -> None:
    unsubscribe(mailer, tmp_path, "bob@example.net")
    mailer.sandbox.switch(**switches)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "suppressed": 1, "sent": 2}


def test_nothing_is_sent_while_the_list_cannot_be_read(mailer: Connector, tmp_path: Path) -> None:
    mailer.sandbox.seed(15_000, base_name="Others")
    mailer.sandbox.switch(order="shuffled")
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, list_recipients(mailer.sandbox)) == (3, [])
    assert "skip_inactive: false" in ended.stderr
    write_job(tmp_path, skip_inactive=False)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}


def test_any_row_of_a_recipient_that_says_so_counts_wherever_it_stands(mailer: Connector, tmp_path: Path) -> None:
    write_csv(
        tmp_path / "people.csv",
        "email,first,order,unsubscribed",
        "ann@example.net,Ann,1,",
        "bob@example.net,Bob,1,",
        "ANN@example.net,Ann,2,ja",
        "cleo@example.net,Cleo,1,ja",
        "cleo@example.net,Cleo,2,",
        "BOB@example.net,Bob,3,",
        "dan@example.net,Dan,3,",
        "Dan@Example.net,,,ja",
    )
    expected = {"read": 8, "suppressed": 3, "duplicate": 4, "sent": 1}
    assert mailer.run_json("mail", "mail.yaml", "--preview", "2").rows == expected
    limited = mailer.run_json("mail", "mail.yaml", "--limit", "1")
    assert limited.rows == {"read": 1, "suppressed": 1}, "row 3 says so"
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, expected), ended.stderr
    assert list_recipients(mailer.sandbox) == ["bob@example.net"]


def test_a_column_whose_words_show_late_is_obeyed_from_the_first_row(mailer: Connector, tmp_path: Path) -> None:
    """No header says it, only a word far down."""
    people = [f"p{number}@example.net,P,1,{'inactive' if number == 0 else 'open'}" for number in range(35_000)]
    write_csv(tmp_path / "people.csv", "email,first,order,state", *people, "last@example.net,L,1,unsubscribed")
    ended = mailer.run_json("mail", "mail.yaml", "--preview", "1")
    assert ended.rows["suppressed"] == 2, ended.stderr


def test_a_campaign_from_a_source_with_63_unsubscribed_people_reaches_the_566_others(
    mailer: Connector, tmp_path: Path
) -> None:
    people = [f"p{each}@example.net,Pat,{each},{'ja' if each % 10 == 3 else ''}" for each in range(629)]
    write_csv(tmp_path / "people.csv", "email,first,order,unsubscribed", *people)
    expected = {"read": 629, "suppressed": 63, "sent": 566}
    assert mailer.run_json("mail", "mail.yaml", "--preview", "2").rows == expected
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, expected), ended.stderr
    recipients = list_recipients(mailer.sandbox)
    assert sorted(recipients) == sorted(f"p{each}@example.net" for each in range(629) if each % 10 != 3)


@pytest.mark.parametrize("has_list", [True, False], ids=["the list is read", "by the column alone"])
def test_a_campaign_from_an_export_of_ours_reaches_no_inactive_subscriber(
    mailer: Connector, tmp_path: Path, has_list: bool
) -> None:
    rows = [f"p{each}@example.net,Pat,{'false' if each < 20 else 'true'}" for each in range(120)]
    people = write_csv(tmp_path / "base.csv", "email,first_name,is_active", *rows)
    assert mailer.run_json("import", people, "--base-id", "7").rows == {"read": 120, "created": 120}
    exported = mailer.run_json("export", "exported.csv")
    assert exported.rows == {"read": 120, "written": 120}, exported.stderr
    write_job(
        tmp_path,
        {"to": {"email": "email", "name": "first_name"}, "subject": "Hello {{ first_name }}", "html": "plain.html"},
        source={"file": {"path": "exported.csv"}},
        skip_inactive=has_list,
    )
    (tmp_path / "plain.html").write_text("<p>Hello {{ first_name }}</p>", encoding="utf-8")
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, {"read": 120, "suppressed": 20, "sent": 100}), ended.stderr
    assert sorted(list_recipients(mailer.sandbox)) == sorted(f"p{each}@example.net" for each in range(20, 120))


@pytest.mark.parametrize("seeded", [0, 20], ids=["alone", "among active ones"])
@pytest.mark.parametrize("activity", ["number", "text", "omit_false"])
def test_inactive_subscribers_get_no_email_however_the_list_writes_is_active(
    mailer: Connector, tmp_path: Path, activity: str, seeded: int
) -> None:
    if seeded:
        mailer.sandbox.seed(seeded, base_name="Others")
    unsubscribe(mailer, tmp_path, "bob@example.net")
    mailer.sandbox.switch(activity=activity)
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, ended.rows) == (0, {"read": 3, "suppressed": 1, "sent": 2}), ended.stderr


@pytest.mark.parametrize("habit", [{"rows_omit": "Email"}, {"emails_in_rows": "masked"}], ids=["none", "masked"])
def test_nothing_is_sent_while_the_list_shows_no_email_of_inactive_subscribers(
    mailer: Connector, tmp_path: Path, habit: dict[str, str]
) -> None:
    unsubscribe(mailer, tmp_path, "bob@example.net")
    mailer.sandbox.switch(**habit)
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, list_recipients(mailer.sandbox)) == (3, [])
    assert "skip_inactive: false" in ended.stderr


@pytest.mark.parametrize("filters", ["exact", "ignored"])
@pytest.mark.parametrize("activity", ["omit", "letter"])
def test_a_list_that_shows_nobody_as_active_or_inactive_ends_a_campaign_before_its_first_email(
    mailer: Connector, tmp_path: Path, activity: str, filters: str
) -> None:
    mailer.sandbox.seed(20, base_name="Others")
    unsubscribe(mailer, tmp_path, "bob@example.net")
    mailer.sandbox.switch(activity=activity, filters=filters)
    ended = mailer.run_json("mail", "mail.yaml")
    assert (ended.code, list_recipients(mailer.sandbox)) == (2, []), ended.stderr
    assert "No row of the service's list shows an IsActive that can be read" in ended.stderr
    write_job(tmp_path, skip_inactive=False)
    assert mailer.run_json("mail", "mail.yaml").rows == {"read": 3, "sent": 3}


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_recipients_whose_activity_the_list_does_not_show_get_no_email_and_are_counted(
    mailer: Connector, tmp_path: Path, filters: str
) -> None:
    people = [f"p{each}@example.net,{'true' if each else 'false'}" for each in range(9)]
    write_csv(tmp_path / "base.csv", "email,is_active", *people)
    other = {"CONNECTOR_STATE_DIR": str(tmp_path / "elsewhere")}
    assert mailer.run_json("import", tmp_path / "base.csv", "--base-id", "7", environ=other).code == 0
    mailer.sandbox.switch(activity="omit_some", filters=filters)
    write_csv(tmp_path / "people.csv", "email,first,order", *(f"p{each}@example.net,P,1" for each in range(9)))
    ended = mailer.run_json("mail", "mail.yaml")
    assert ended.code == 1, ended.stderr
    events = [each for each in mailer.sandbox.truth()["events"] if each["kind"] == "created"]
    unclear = {each["subscriber"]["Email"] for each in events if each["id"] % 3 == 0}
    kept_back = unclear | {"p0@example.net"}
    assert ended.rows == {"read": 9, "suppressed": len(kept_back), "sent": 9 - len(kept_back)}
    assert kept_back.isdisjoint(list_recipients(mailer.sandbox))
    assert f"{len(unclear - {'p0@example.net'})} recipients got no email" in ended.stderr or "p0@example.net" in unclear
