"""Columns that contain the consent of a person: the names that the connector recognises, and the effect on
is_active."""

import pandas as pd

from connector.subscribers.consent import (
    build_consent_rule,
    find_consent_columns,
    find_inactive_rows,
    is_unsubscribed_header,
)
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows
from tests.subscribers.test_rows import TODAY

CELLS_BY_CONSENT_HEADER = {
    "unsubscribed": ["ja", "", "nein"],
    "Unsubscribed?": ["TRUE", "FALSE", "false"],
    "opt-out": ["1", "0", ""],
    "Email Opt-Out": ["true", "false", ""],
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
    "Bloqueado": ["sí", "no", ""],
    "is_blocked": ["1", "0", "0"],
    "Gesperrt": ["ja", "nein", ""],
    "Bounced": ["yes", "no", "no"],
    "Statut": ["désabonnée", "abonnée", "abonnée"],
    "Estado": ["baja", "alta", "alta"],
    "Newsletter ": ["inaktiv", "aktiv", "aktiv"],
    "Marketing status": ["No consent", "subscribed", "subscribed"],
    "GDPR": ["no", "yes", "yes"],
    "Mag gemaild worden": ["nee", "ja", "ja"],
    "Quiere recibir correos": ["no", "sí", "sí"],
    "Accetta email": ["no", "sì", "sì"],
    "Aceita receber emails": ["não", "sim", "sim"],
    "Souhaite recevoir nos emails": ["non", "oui", "oui"],
    "Möchte E-Mails": ["nein", "ja", "ja"],
    "Chce otrzymywać e-maile": ["nie", "tak", "tak"],
    "can_email": ["0", "1", "1"],
    "email_allowed": ["false", "true", "true"],
    "active": ["no", "yes", "yes"],
    "Aktiv": ["nein", "ja", "ja"],
    "E-Mail-Werbung": ["nein", "ja", "ja"],
    "Werbung erlaubt": ["nein", "ja", "ja"],
    "Acepta publicidad": ["no", "sí", "sí"],
    "emailable": ["no", "yes", "yes"],
    "inactive": ["1", "0", ""],
    "Is Inactive": ["TRUE", "FALSE", "FALSE"],
    "Inaktiv": ["x", "", "nein"],
    "Inactif": ["oui", "non", "non"],
    "Inattiva": ["sì", "no", ""],
    "Nieaktywny": ["tak", "nie", ""],
    "Kontaktsperre": ["x", "", ""],
    "deleted_at": ["2024-01-01", "", "NULL"],
    "IsDeleted": ["1", "0", "0"],
    "Gelöscht am": ["01.02.2024", "", ""],
    "Supprimé": ["oui", "non", ""],
    "Date removed": ["2024-01-01", "", ""],
    "Contact Archived": ["true", "false", ""],
    "banned_at": ["2024-01-01", "", ""],
    "Sperrvermerk": ["X", "", ""],
    "Deactivated at": ["2024-01-01", "", ""],
    "Inactive since": ["01.02.2024", "", ""],
    "Verstorben": ["ja", "nein", ""],
    "is_deceased": ["1", "0", "0"],
    "IsEmailBounced": ["true", "false", "false"],
    "Opposition": ["oui", "non", ""],
    "Email Suppressions": ['["HARD_BOUNCE"]', "[]", ""],
    "Subscription": ["no", "yes", "yes"],
    "Email subscriber": ["no", "yes", "yes"],
    "Do you want to receive emails?": ["No", "Yes", "Yes"],
    "I would like to receive news and offers": ["No", "Yes", "Yes"],
    "Send me emails": ["false", "true", "true"],
    "Rundbrief": ["nein", "ja", "ja"],
    "email_notifications": ["0", "1", "1"],
    "Zustimmung": ["nein", "ja", "ja"],
    "Toestemming": ["nee", "ja", "ja"],
    "hs_marketable_status": ["false", "true", "true"],
    "Marketing contact status": ["Non-marketing contact", "Marketing contact", "Marketing contact"],
    "state": ["disabled", "enabled", "enabled"],
    "IsExcludedFromCampaigns": ["true", "false", "false"],
    "Marked as spam": ["2024-01-01", "", ""],
    "status  ": ["cancelled", "active", "active"],
    " status": ["0", "1", "1"],
    "enabled": ["false", "true", "true"],
    "Email status": ["Removed", "Active", "Active"],
    "CLEAN_TIME": ["2024-01-01 10:00:00", "", ""],
    "Do not allow Bulk Emails": ["Do Not Allow", "Allow", "Allow"],
    "Email permission": ["Withdrawn", "Granted", "Granted"],
    "GDPR consent": ["denied", "granted", "granted"],
    "Subscribed/Unsubscribed": ["Unsubscribed", "Subscribed", "subscribed"],
    "Email Opt Out": ["Opted Out", "Opted In", "opt-in"],
}

UNSUBSCRIBED_HEADERS = (
    "no_newsletter", "Refus newsletter", "geen nieuwsbrief", "Keine E-Mail", "Keine Werbung", "Baja", "do_not_email",
    "email_opt_out", "No quiero correo", "Kein Newsletter", "keine weiteren Werbemails", "Ohne Newsletter",
    "Nicht anschreiben", "nicht per E-Mail kontaktieren", "Newsletter abgelehnt", "Werbewiderspruch", "Mailsperre",
    "E-Mail-Sperre", "Werbeverbot", "Wünscht keinen Newsletter", "NoMarketingEmails", "doNotEmail",
    "Do not allow bulk emails", "donotbulkemail", "does not want emails", "not_subscribed", "without newsletter",
    "newsletter_cancelled", "consent_withdrawn_at", "exclude_from_marketing", "emails_disabled",
    "newsletter_declined", "Pas de newsletter", "Ne plus envoyer", "Ne pas contacter",
    "Ne souhaite pas recevoir d'e-mails", "Sans newsletter", "Newsletter refusée", "Opposition marketing",
    "Non abonné", "Non inscrit", "Sin boletín", "No enviar", "No desea publicidad", "No contactar", "No suscrito",
    "Rechaza newsletter", "Cliente no quiere correos", "Non inviare", "Niente newsletter", "Senza newsletter",
    "Non vuole email", "Rifiuta newsletter", "Non iscritto", "Não enviar", "Não quero email", "Sem newsletter",
    "Recusa newsletter", "Geen mail", "Geen e-mail", "Wil geen nieuwsbrief", "Niet mailen", "Geen reclame",
    "Nie wysyłać", "Nie chcę newslettera", "Bez newslettera", "Brak zgody", "Odmowa zgody", "Sprzeciw marketing",
    "Stop newsletter", "STOP e-mail", "Newsletter stop", "Consent revoked", "Não receber", "nicht angemeldet",
    "Newsletter annulé", "no_emails", "No Email", "Email refused", "Désabonnement newsletter", "No e-mail",
    "Email/SMS opt-out", "emailstop", "on_hold", "Email On Hold", "email_blocked", "E-Mail gesperrt", "Unmailable",
    "DNC",
)  # fmt: skip
"""Headers of columns in which "yes" means that the person wants no emails."""

NOT_UNSUBSCRIBED_HEADERS = (
    "status", "newsletter_name", "order_status", "Newsletter", "Newsletter ja/nein", "Newsletter yes/no by email",
    "¿Enviar email? sí/no", "Mailing (tak/nie) e-mail", "Telefono/Email", "Contact No", "Mail No", "Email No",
    "No of emails sent", "No. of newsletters", "No abonné", "No contact", "N° client", "No de courriel", "Nombre",
    "Nota", "Notes", "Bewerber", "Bewerbung abgelehnt", "Gewerbe", "cancelled_orders", "Cancellation email sent",
    "order cancelled", "cancelled_at", "subscription_cancelled_at", "Mail Stop", "Bus stop", "Planta baja",
    "Exclusive offers", "marketing_source", "Opportunity", "email", "E-Mail", "Email Address", "is_active",
    "Nonprofit", "Nome no email", "Noms", "Sinistro", "Sans", "Non-profit email", "Region", "Notification email",
    "Nordic newsletter", "North Mailing", "Country", "Pasaporte", "Senior", "unsubscribe_url", "sms_optout",
    "Deleted orders", "deleted_by", "Removal company", "Blocked seats", "Disabled", "Suspended ceiling",
    "Kennzeichen", "Keine Ahnung", "Geen idee", "Nie", "Do not call", "Refund", "Refused orders", "Mailing Street",
    "Mailing City", "Annual marketing budget", "marketing_channel", "consent", "Rejection reason",
    "Non-residential mailing address", "email_status", "last_email_sent", "Nie wieder", "No", "Note marketing",
    "Contact (no calls)", "Notices by mail", "Interactive", "Inactivity days", "Werbung", "radioactive",
    "(Do Not Modify) Contact", "(Do Not Modify) Marketing List Member", "holding", "Orders on hold", "Email stops",
)  # fmt: skip


def check_consent_column(header: str, cells: list[str], expected_flags: list[bool]) -> None:
    frame = pd.DataFrame({"email": [f"p{index}@x.com" for index in range(len(cells))], header: cells}, dtype="str")
    assert find_consent_columns(frame, guess_mapping(["email", header]), ()) == [header]
    mapping = FieldMapping({"email": ColumnRule(column="email"), "is_active": build_consent_rule(header)})
    assert find_consent_columns(frame, mapping, ()) == []
    validated_rows = validate_rows(apply_mapping(frame, mapping).frame, ValidationRules(), today=TODAY)
    assert validated_rows.subscribers["is_active"].tolist() == expected_flags, header


def test_people_are_inactive_if_a_column_marks_them_as_unsubscribed() -> None:
    for header in UNSUBSCRIBED_HEADERS:
        check_consent_column(header, ["x", ""], [False, True])
    assert [header for header in NOT_UNSUBSCRIBED_HEADERS if is_unsubscribed_header(header)] == []


def test_a_word_for_a_missing_value_in_a_column_of_unsubscribed_people_means_active() -> None:
    for word in ("NULL", "\\N", "None", "NaT", "0000-00-00 00:00:00", "<NA>", "(null)", "NA", "-", "—"):
        check_consent_column("unsubscribed_at", ["2024-01-01", word, ""], [False, True, True])
        frame = pd.DataFrame({"unsubscribed_at": ["2024-01-01", word, ""]}, dtype="str")
        inactive_mask, unclear_mask = find_inactive_rows(frame, ["unsubscribed_at"])
        assert inactive_mask.tolist() == [True, False, False], word
        assert unclear_mask.tolist() == [False, False, False], word


def test_the_word_none_as_the_reason_for_unsubscribing_means_inactive() -> None:
    for header in ("UNSUB_REASON", "Unsubscribe reason", "Grund der Abmeldung"):
        check_consent_column(header, ["N/A", "None", "", "0"], [False, False, True, True])


def test_a_column_named_inactive_is_ignored_if_another_column_fills_is_active() -> None:
    frame = pd.DataFrame({"email": ["a@x.com"], "active": ["1"], "inactive": ["0"]}, dtype="str")
    rules = {"email": ColumnRule(column="email"), "is_active": ColumnRule(column="active")}
    assert find_consent_columns(frame, FieldMapping(rules), ()) == []


def test_consent_to_advertising_by_post_or_phone_is_not_a_consent_to_emails() -> None:
    for header in ("Werbung per Post", "Telefonwerbung", "Werbung per Telefon", "Mitgliederwerbung", "Werbungskosten"):
        frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], header: ["ja", "nein"]}, dtype="str")
        assert find_consent_columns(frame, FieldMapping({"is_active": ColumnRule(value="true")}), ()) == [], header


def test_a_column_of_unsubscribed_people_is_recognised_and_makes_them_inactive() -> None:
    for header, cells in CELLS_BY_CONSENT_HEADER.items():
        check_consent_column(header, cells, [False, True, True])
    frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], "opt-out": ["1", ""]}, dtype="str")
    assert find_consent_columns(frame, FieldMapping({"is_active": ColumnRule(value="true")}), ()) == ["opt-out"]
    assert find_consent_columns(frame, FieldMapping({"is_active": ColumnRule(value="false")}), ()) == []
    assert find_consent_columns(frame, FieldMapping({"email": ColumnRule(column="opt-out")}), ()) == []
    assert find_consent_columns(frame, FieldMapping({}), ["opt-out"]) == []


def test_a_consent_column_is_recognised_if_the_job_makes_every_row_active() -> None:
    mapping_with_everybody_active = FieldMapping({"is_active": ColumnRule(value="true")})
    for header in ("is_active", "active", "Aktiv", "opted_in", "Angemeldet", "Zapisany", "Accepts Email Marketing"):
        frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], header: ["yes", "no"]}, dtype="str")
        assert find_consent_columns(frame, mapping_with_everybody_active, ()) == [header]
        mapping_of_other_column = FieldMapping({"is_active": ColumnRule(column="newsletter")})
        assert find_consent_columns(frame, mapping_of_other_column, ()) == [], header
    frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], "is_active": ["yes", "yes"]}, dtype="str")
    assert find_consent_columns(frame, mapping_with_everybody_active, ()) == []


def test_a_consent_column_with_other_words_than_yes_and_no_is_recognised() -> None:
    headers_and_cells: list[tuple[str, list[str]]] = [
        ("Newsletter", ["Ja", "nein", "k.A."]),
        ("Newsletter", ["ja", "Nein, danke"]),
        ("Email permission status", ["Opted out (by contact)", "Explicit"]),
        ("E-Mail-Status", ["Unsubscribed by customer", "Subscribed"]),
    ]
    for header, cells in headers_and_cells:
        frame = pd.DataFrame({"email": "a@x.com", header: cells}, dtype="str")
        assert find_consent_columns(frame, guess_mapping(["email", header]), ()) == [header]


COLUMNS_WITHOUT_EMAIL_CONSENT = [
    ("email_verified", ["no", "yes"]), ("has_email", ["0", "1"]), ("Email sent", ["no", "yes"]),
    ("bounce_count", ["3", "0"]), ("Prioridad", ["alta", "baja"]), ("order_status", ["cancelled", "paid"]),
    ("Newsletter", ["Weekly", "Monthly"]), ("status", ["paid", "open"]), ("status", ["paid", "cancelled"]),
    ("newsletter_name", ["Weekly", "no"]), ("unsubscribe_url", ["https://example.com/1", "https://example.com/2"]),
    ("Accepts SMS Marketing", ["yes", "no"]), ("OPTIN_TIME", ["2024-01-01", ""]),
    ("notes", ["unsubscribed her sister", ""]), ("state", ["CA", "blocked"]), ("marketing_source", ["web", "fair"]),
    ("subscribed_at", ["2024-01-01", "2024-01-02"]), ("Financial Status", ["pending", "paid"]),
    ("Order Status", ["archived", "open"]), ("paymentStatus", ["pending", "paid"]),
    ("Bestellstatus", ["pending", "ok"]), ("deleted_at", ["", "NULL"]), ("is_blocked", ["0", "0"]),
    ("status", ["1", "1"]), ("status", ["1", "2"]), ("Mobile opt-in", ["yes", "no"]),
    ("Inactive", ["no", ""]), ("Subscription", ["Premium", "Basic"]), ("Received email", ["yes", "no"]),
    ("Acceptance email sent", ["yes", "no"]), ("State", ["ON", "QC"]), ("Offer accepted", ["yes", "no"]),
    ("user_status", ["0", "0"]), ("Membership status", ["active", "cancelled"]), ("user_state", ["active", "active"]),
    ("deleted_at", ["-", "NA"]),
]  # fmt: skip


def test_a_column_that_is_not_about_consent_to_emails_is_not_recognised() -> None:
    for header, cells in COLUMNS_WITHOUT_EMAIL_CONSENT:
        frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], header: cells}, dtype="str")
        assert find_consent_columns(frame, guess_mapping(["email", header]), ()) == [], header


def test_a_column_of_unsubscribed_people_is_recognised_beside_a_mapped_consent_column() -> None:
    frame = pd.DataFrame({"opted_in": ["yes"], "newsletter": ["no"], "unsubscribed": ["yes"]}, dtype="str")
    mapping = FieldMapping({"is_active": ColumnRule(column="opted_in")})
    assert find_consent_columns(frame, mapping, ()) == ["unsubscribed"]


def test_a_newsletter_column_is_recognised_beside_a_mapped_column_of_unsubscribed_people() -> None:
    frame = pd.DataFrame({"unsubscribed": ["", "yes"], "newsletter": ["no", "yes"]}, dtype="str")
    mapping = FieldMapping({"is_active": build_consent_rule("unsubscribed")})
    assert find_consent_columns(frame, mapping, ()) == ["newsletter"]
    mapping = FieldMapping({"is_active": build_consent_rule("unsubscribed", "newsletter")})
    assert find_consent_columns(frame, mapping, ()) == []


def test_a_column_named_state_without_regions_is_a_consent_column() -> None:
    for cells, is_consent in ((["Active", "Active"], True), (["Active", "Bayern"], False), (["ON", "ON"], False)):
        frame = pd.DataFrame({"email": ["a@x.com", "b@x.com"], "State": cells}, dtype="str")
        assert find_consent_columns(frame, guess_mapping(["email", "State"]), ()) == (["State"] if is_consent else [])


def test_several_consent_columns_are_read_by_one_rule() -> None:
    frame = pd.DataFrame(
        {
            "Subscribed": ["yes", "no", "yes", "yes"],
            "deleted_at": ["", "", "2024-01-01", ""],
            "Bounced reason": ["", "", "", "N/A"],
        },
        dtype="str",
    )
    rule = build_consent_rule(*frame.columns)
    mapping = FieldMapping({"is_active": rule})
    assert find_consent_columns(frame, mapping, ()) == []
    assert apply_mapping(frame, mapping).frame["is_active"].tolist() == ["true", "no", "false", "false"]
    mapping = FieldMapping({"is_active": build_consent_rule("deleted_at", "Bounced reason")})
    assert apply_mapping(frame, mapping).frame["is_active"].tolist() == ["true", "true", "false", "false"]


def test_a_person_is_active_only_if_all_consent_columns_mean_active() -> None:
    frame = pd.DataFrame(
        {"status": ["active", "unsubscribed", "active", "active"], "Newsletter": ["yes", "yes", "no", "perhaps"]},
        dtype="str",
    )
    for columns in (["status", "Newsletter"], ["Newsletter", "status"]):
        mapping = FieldMapping({"is_active": build_consent_rule(*columns)})
        assert find_consent_columns(frame, mapping, ()) == []
        assert apply_mapping(frame, mapping).frame["is_active"].tolist() == ["true", "unsubscribed", "no", "perhaps"]


def test_fifty_consent_columns_fit_into_one_template() -> None:
    columns = [f"Opted out of email: {number}" for number in range(50)]
    frame = pd.DataFrame({column: ["", "true"] for column in columns}, dtype="str")
    mapping = FieldMapping({"is_active": build_consent_rule(*columns)})
    assert apply_mapping(frame, mapping).frame["is_active"].tolist() == ["true", "false"]
