"""Which column becomes which field: guesses on the headers that programs really export, and `--map` above them."""

import re
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.fields import FIELDS, NAMES, wire_name
from connector.subscribers.headers import (
    HEADERS,
    MAILCHIMP_IGNORED,
    MAILCHIMP_ONLY,
    SHOPIFY_APOSTROPHES,
    SHOPIFY_ONLY,
    SPLITS,
    WHOLE_NAMES,
    find_whole_name,
    guess_mapping,
    normalise_header,
    override_mapping,
)
from connector.subscribers.rules import MAPPABLE, ColumnRule, FieldMapping, require_columns

SAMPLES = Path(__file__).parent / "samples"


def show(mapping: FieldMapping) -> dict[str, str | None]:
    return {name: rule.column for name, rule in mapping.rules.items()}


def read_header(program: str) -> list[str]:
    return (SAMPLES / f"{program}.csv").read_text(encoding="utf-8").splitlines()[0].split(",")


HEADERS_OF = {  # of each program: field, colon, header
    "mailchimp": """
        email: Email Address | first_name: First Name | last_name: Last Name | phone: Phone Number | tags: TAGS
        address_line1: Address""",
    "hubspot": """
        email: Email | first_name: First Name | last_name: Last Name | phone: Phone Number
        client_user_id: Record ID | address_country: Country/Region | address_city: City
        address_state: State/Region | address_zip: Postal Code | address_line1: Street Address
        birthday: Date of birth""",
    "klaviyo": """
        email: Email | first_name: First Name | last_name: Last Name | phone: Phone Number
        client_user_id: External ID | address_country: Country | address_city: City
        address_state: State / Region | address_zip: Zip Code | address_line1: Address
        address_line2: Address 2""",
    "brevo": """
        email: EMAIL | first_name: FIRSTNAME | last_name: LASTNAME | phone: SMS | client_user_id: EXT_ID
        birthday: DATE_OF_BIRTH""",
    "shopify": """
        is_active: Accepts Email Marketing | email: Email | first_name: First Name | last_name: Last Name
        phone: Phone | tags: Tags | client_user_id: Customer ID | address_country: Default Address Country Code
        address_city: Default Address City | address_state: Default Address Province Code
        address_zip: Default Address Zip | address_line1: Default Address Address1
        address_line2: Default Address Address2""",
    "shopify_old": """
        is_active: Accepts Marketing | email: Email | first_name: First Name | last_name: Last Name
        phone: Phone | tags: Tags | address_country: Country Code | address_city: City | address_state: Province
        address_zip: Zip | address_line1: Address1 | address_line2: Address2""",
    "google_contacts": """
        email: E-mail 1 - Value | first_name: First Name | last_name: Last Name | phone: Phone 1 - Value
        tags: Labels | address_country: Address 1 - Country | address_city: Address 1 - City
        address_state: Address 1 - Region | address_zip: Address 1 - Postal Code
        address_line1: Address 1 - Street | address_line2: Address 1 - Extended Address | birthday: Birthday""",
    "google_contacts_old": """
        email: E-mail 1 - Value | first_name: Given Name | last_name: Family Name | gender: Gender
        phone: Phone 1 - Value | tags: Group Membership | address_country: Address 1 - Country
        address_city: Address 1 - City | address_state: Address 1 - Region
        address_zip: Address 1 - Postal Code | address_line1: Address 1 - Street | birthday: Birthday""",
    "woocommerce_analytics": """
        email: Email | address_country: Country / Region | address_city: City | address_state: Region
        address_zip: Postal Code""",
    "woocommerce_export": """
        email: email | first_name: first_name | last_name: last_name | phone: billing_phone
        client_user_id: customer_id | address_country: billing_country | address_city: billing_city
        address_state: billing_state | address_zip: billing_postcode | address_line1: billing_address_1
        address_line2: billing_address_2""",
    "salesforce_report": """
        email: Email | first_name: First Name | last_name: Last Name | phone: Phone | client_user_id: Contact ID
        address_country: Mailing Country | address_city: Mailing City | address_state: Mailing State/Province
        address_zip: Mailing Zip/Postal Code | address_line1: Mailing Street | birthday: Birthdate""",
    "salesforce_data_loader": """
        email: Email | first_name: FirstName | last_name: LastName | phone: Phone
        address_country: MailingCountry | address_city: MailingCity | address_state: MailingState
        address_zip: MailingPostalCode | address_line1: MailingStreet | birthday: Birthdate""",
}


@pytest.mark.parametrize("program", HEADERS_OF)
def test_the_exports_of_other_programs_are_recognised(program: str) -> None:
    pairs = re.split(r"\s*[|\n]\s*", HEADERS_OF[program].strip())
    assert show(guess_mapping(read_header(program))) == dict(pair.split(": ", 1) for pair in pairs)


def test_our_own_names_are_recognised_and_the_base_is_not_taken_from_a_file() -> None:
    assert show(guess_mapping(NAMES)) == {name: name for name in MAPPABLE}


def test_the_names_of_the_api_are_recognised() -> None:
    columns = [wire_name(field) for field in FIELDS]
    assert show(guess_mapping(columns)) == {field.name: wire_name(field) for field in FIELDS if field.name in MAPPABLE}


def test_the_best_header_wins_wherever_it_stands_and_the_rest_is_unmapped() -> None:
    assert show(guess_mapping(["billing_email", "Email Address", "E-Mail", "Email (2)"])) == {"email": "E-Mail"}


def test_a_mailchimp_birthday_has_no_year_and_its_region_is_that_of_an_ip_address() -> None:
    assert not {"Birthday", "REGION"} & set(guess_mapping(read_header("mailchimp")).columns)
    assert {"birthday", "address_state"} <= set(guess_mapping(["Email Address", "Birthday", "Region"]).rules)


def test_googles_labels_are_separated_by_colons() -> None:
    assert guess_mapping(["Labels"]).rules["tags"].split == ":::"
    assert guess_mapping(["Tags"]).rules["tags"].split is None


@pytest.mark.parametrize(
    ("program", "fields"),
    [
        ("shopify", {"client_user_id", "phone", "address_zip"}),
        ("shopify_old", {"phone", "address_zip"}),
        ("klaviyo", set()),
        ("woocommerce_export", set()),
    ],
)
def test_only_shopifys_numbers_lose_the_apostrophe_before_them(program: str, fields: set[str]) -> None:
    rules = guess_mapping(read_header(program)).rules
    assert {name for name, rule in rules.items() if rule.is_apostrophe_dropped} == fields


def test_no_header_and_foreign_headers_map_to_nothing() -> None:
    assert show(guess_mapping([])) == {}
    assert show(guess_mapping(["Größe", "会社", ""])) == {}


PLAIN = "first_name last_name email phone address_zip address_city"


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ("fname lname email opted_in", "first_name last_name email is_active"),
        ("Vorname Nachname E-Mail-Adresse Telefonnummer PLZ Wohnort Straße", f"{PLAIN} address_line1"),
        ("Prénom Nom_de_famille Courriel Téléphone Code_postal Ville", PLAIN),
        ("Primer_nombre Apellidos Correo_electrónico Móvil Código_postal Ciudad", PLAIN),
        ("Nome_proprio Cognome Indirizzo_email Cellulare CAP Città", PLAIN),
        ("Primeiro_nome Sobrenome Endereço_de_email Celular CEP Cidade", PLAIN),
        ("Voornaam Achternaam E-mailadres Telefoonnummer Postcode Woonplaats", PLAIN),
        ("Imię Nazwisko Adres_e-mail Numer_telefonu Kod_pocztowy Miasto", PLAIN),
    ],
)
def test_the_words_of_eight_languages_are_recognised(headers: str, fields: str) -> None:
    assert show(guess_mapping(headers.split())) == dict(zip(fields.split(), headers.split(), strict=True))


@pytest.mark.parametrize("header", ["Name", "Full name", "Nome completo", "Vollständiger Name"])
def test_a_column_of_whole_names_is_found_where_no_name_is_mapped(header: str) -> None:
    found = find_whole_name(guess_mapping(["email", header]), ["email", header])
    assert found == (None if header.startswith("Voll") else header)
    assert find_whole_name(guess_mapping(["fname", header]), ["fname", header]) is None


def test_no_header_means_two_fields_and_every_field_has_some() -> None:
    keys = [normalise_header(header) for headers in HEADERS.values() for header in headers]
    assert len(keys) == len(set(keys))
    assert tuple(HEADERS) == MAPPABLE
    assert set(MAPPABLE) >= SHOPIFY_APOSTROPHES
    assert set(keys) >= {*SPLITS, *MAILCHIMP_IGNORED}
    normalised = {*WHOLE_NAMES, *SPLITS, *MAILCHIMP_ONLY, *MAILCHIMP_IGNORED, *SHOPIFY_ONLY}
    assert {normalise_header(header) for header in normalised} == normalised


COLUMNS = ["Email", "Phone", "Mail", "Labels"]


def test_an_override_changes_its_field_and_no_other() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"email": "Mail", "custom_field1": "Phone"}, COLUMNS)
    assert {name: rule.column for name, rule in mapping.rules.items()} == {
        "email": "Mail", "phone": "Phone", "tags": "Labels", "custom_field1": "Phone",
    }  # fmt: skip


def test_an_override_keeps_what_the_headers_tell_of_apostrophes() -> None:
    columns = ["Email", "Customer ID", "Accepts Email Marketing"]
    mapping = override_mapping(guess_mapping(columns), {"phone": "Customer ID"}, columns)
    assert mapping.rules["phone"].is_apostrophe_dropped
    assert not mapping.rules["email"].is_apostrophe_dropped


def test_an_empty_column_unmaps_a_field() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"phone": ""}, COLUMNS)
    assert "phone" not in mapping.rules


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"emial": "Mail"}, ["field 'emial'", "Did you mean email?", "client_user_id"]),
        ({"base_id": "Mail"}, ["field 'base_id'"]),
        ({"email": "mial"}, ["column 'mial'", "Did you mean", "Mail", "Email, Phone, Mail, Labels"]),
        ({"email": "mail"}, ["Did you mean Mail"]),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        override_mapping(guess_mapping(COLUMNS), overrides, COLUMNS)
    assert all(word in str(caught.value) for word in words)


def test_every_missing_column_is_told_at_once() -> None:
    mapping = FieldMapping({"email": ColumnRule(column="A"), "phone": ColumnRule(column="B")})
    with pytest.raises(ConfigurationError, match=r"'A'.*'B'"):
        require_columns(mapping, COLUMNS)


@pytest.mark.parametrize(
    "given",
    [{}, {"column": "a", "split": ""}, {"column": "a", "default": ""}, {"column": "a", "case": "Title"}],
    ids=str,
)
def test_a_rule_that_no_job_file_could_hold_cannot_be_made(given: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        ColumnRule(**given)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    ("name", "rule"),
    [("id", ColumnRule(column="a")), ("nothing", ColumnRule(column="a")), ("email", ColumnRule(column="a", split="|"))],
)
def test_a_rule_that_does_not_fit_its_field_is_refused(name: str, rule: ColumnRule) -> None:
    with pytest.raises(ConfigurationError, match=name):
        FieldMapping({name: rule})


def test_a_mapping_stays_as_it_was_made() -> None:
    values = {"M": "male"}
    rules = {"gender": ColumnRule(column="sex", values=values)}
    mapping = FieldMapping(rules)
    values["M"] = "female"
    rules.clear()
    assert dict(mapping.rules["gender"].values or {}) == {"M": "male"}
