"""Columns that say who wants no email: which are noticed, and what is_active is made of them."""

import pandas as pd
import pytest

from connector.subscribers.consent import build_consent_rule, find_consent, is_unsubscribed_header
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows
from tests.subscribers.test_rows import TODAY

NOTICED = {
    "unsubscribed": ["ja", "", "nein"],
    "Unsubscribed?": ["TRUE", "FALSE", "false"],
    "opt-out": ["1", "0", ""],
    "Email Opt Out": ["true", "false", ""],
    "HasOptedOutOfEmail": ["1", "0", "0"],
    "UNSUB_TIME": ["2024-01-01 10:00:00", "", ""],
    "Unsubscribed at": ["2024-01-01T10:00:00Z", "", ""],
    "do_not_email": ["x", "", "no"],
    "blacklisted": ["yes", "no", ""],
    "Abgemeldet": ["x", "", ""],
    "Abgemeldet am": ["01.02.2024", "", ""],
    "Werbesperre": ["ja", "nein", ""],
    "Désabonné": ["oui", "non", ""],
    "Date de désinscription": ["01/02/2024", "", ""],
    "Fecha de baja": ["2024-01-01", "", ""],
    "Disiscritto": ["sì", "no", "no"],
    "Descadastrado": ["sim", "não", ""],
    "Uitgeschreven": ["ja", "nee", ""],
    "Wypisany": ["tak", "nie", ""],
    "status": ["unsubscribed", "subscribed", "Subscribed"],
    "Status ": ["cleaned", "active", "active"],
    "email_status": ["bounced", "confirmed", "active"],
    "Email Marketing Consent": ["NEVER_SUBSCRIBED", "SUBSCRIBED", "SUBSCRIBED"],
    "list": ["unsubscribed", "subscribed", "subscribed"],
    "Newsletter": ["nein", "ja", "ja"],
    "Newsletter ja/nein": ["nein", "ja", "Ja"],
    "Infolettre": ["non", "oui", "oui"],
    "Consent": ["false", "true", "true"],
    "Zgoda na newsletter": ["nie", "tak", "tak"],
    "Boletín": ["no", "sí", "Sí"],
    "no_newsletter": ["yes", "no", "no"],
    "NoMarketingEmails": ["1", "0", ""],
    "Do not allow bulk emails": ["x", "", ""],
    "donotbulkemail": ["1", "0", "0"],
    "Keine E-Mail": ["x", "", ""],
    "keine weiteren Werbemails": ["ja", "nein", ""],
    "Geen nieuwsbrief": ["ja", "nee", "nee"],
    "Refus newsletter": ["oui", "non", "non"],
    "Ne plus envoyer": ["oui", "non", ""],
    "Sin boletín": ["sí", "no", ""],
    "Baja": ["sí", "no", ""],
    "Non inviare": ["sì", "no", ""],
    "Não enviar": ["sim", "não", ""],
    "Brak zgody": ["tak", "nie", ""],
    "newsletter_cancelled": ["true", "false", ""],
    "consent_withdrawn_at": ["2024-01-01", "", ""],
    "exclude_from_marketing": ["true", "false", ""],
    "Automatically unsubscribed": ["yes", "no", ""],
    "Email/SMS opt-out": ["yes", "no", ""],
    "Gesperrt": ["ja", "nein", ""],
    "deactivated": ["1700000000", "0", "0"],
    "is_blocked": ["1", "0", "0"],
    "active": ["0", "1", "1"],
    "DSGVO": ["nein", "ja", "ja"],
    "Newsletter ": ["inaktiv", "aktiv", "aktiv"],
    "Subscription status": ["cancelled", "active", "active"],
    "MailerLite status": ["junk", "active", "active"],
    "Marketing status": ["No consent", "subscribed", "subscribed"],
    "Statut": ["désabonnée", "abonnée", "abonnée"],
    "Estado": ["baja", "alta", "alta"],
}


@pytest.mark.parametrize("header", NOTICED)
def test_a_column_of_unsubscribed_people_is_noticed_and_makes_them_inactive(header: str) -> None:
    frame = pd.DataFrame({"email": ["a@x.com", "b@x.com", "c@x.com"], header: NOTICED[header]}, dtype="str")
    assert find_consent(frame, guess_mapping([str(column) for column in frame.columns]), ()) == [header]
    assert find_consent(frame, FieldMapping({"is_active": ColumnRule(value="true")}), ()) == [header]

    rule = build_consent_rule(header)
    mapping = FieldMapping({"email": ColumnRule(column="email"), "is_active": rule})
    valid = validate_rows(apply_mapping(frame, mapping).frame, ValidationRules(), today=TODAY)
    assert valid.subscribers["is_active"].tolist() == [False, True, True]
    assert find_consent(frame, mapping, ()) == []
    assert find_consent(frame, FieldMapping({}), [header]) == []
    assert find_consent(frame, FieldMapping({"is_active": ColumnRule(value="false")}), ()) == []


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("Newsletter", ["Ja", "nein", "k.A."]),
        ("Newsletter", ["ja", "Nein, danke"]),
        ("Email permission status", ["Opted out (by contact)", "Explicit"]),
        ("E-Mail-Status", ["Unsubscribed by customer", "Subscribed"]),
    ],
)
def test_a_column_with_words_beside_yes_and_no_is_noticed_too(header: str, cells: list[str]) -> None:
    frame = pd.DataFrame({"email": "a@x.com", header: cells}, dtype="str")
    assert find_consent(frame, guess_mapping(["email", header]), ()) == [header]


@pytest.mark.parametrize("header", ["Newsletter yes/no by email", "¿Enviar email? sí/no", "Mailing (tak/nie) e-mail"])
def test_a_header_that_names_both_answers_is_no_refusal(header: str) -> None:
    assert not is_unsubscribed_header(header)


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("Telefono/Email", ["1", "2"]),
        ("Contact No", ["+49 30 1", "+49 30 2"]),
        ("Bewerber", ["ja", "nein"]),
        ("Bewerbung abgelehnt", ["ja", "nein"]),
        ("Newsletter", ["Weekly", "Monthly"]),
        ("status", ["paid", "open"]),
        ("unsubscribe_url", ["https://example.com/1", "https://example.com/2"]),
        ("Accepts SMS Marketing", ["yes", "no"]),
        ("OPTIN_TIME", ["2024-01-01", ""]),
        ("notes", ["unsubscribed her sister", ""]),
        ("state", ["CA", "blocked"]),
        ("marketing_source", ["web", "fair"]),
        ("subscribed_at", ["2024-01-01", "2024-01-02"]),
    ],
)
def test_a_column_that_says_something_else_is_not_noticed(header: str, cells: list[str]) -> None:
    frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], header: cells}, dtype="str")
    assert find_consent(frame, guess_mapping(["email", header]), ()) == []


def test_a_second_column_of_subscribed_people_is_not_noticed_but_one_of_unsubscribed_people_is() -> None:
    frame = pd.DataFrame({"opted_in": ["yes"], "newsletter": ["no"], "unsubscribed": ["yes"]}, dtype="str")
    mapping = FieldMapping({"is_active": ColumnRule(column="opted_in")})
    assert find_consent(frame, mapping, ()) == ["unsubscribed"]
