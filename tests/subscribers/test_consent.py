"""Columns that say who wants no email: which are noticed, and what is_active is made of them."""

import pandas as pd
import pytest

from connector.subscribers.consent import build_consent_rule, find_consent
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
