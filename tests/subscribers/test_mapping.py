"""The field that is guessed for each column, and corrections of the guess with `--map`."""

import pandas as pd
import pytest

from connector.errors import ConfigurationError
from connector.fields import FIELD_NAMES, FIELDS, find_wire_name
from connector.subscribers.headers import (
    GOOGLE_HEADERS,
    HEADERS_BY_FIELD,
    MAILCHIMP_HEADERS,
    MAILCHIMP_IGNORED_HEADERS,
    WHOLE_NAME_HEADERS,
    find_name_column,
    guess_mapping,
    override_mapping,
)
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import MAPPABLE_FIELDS, ColumnRule, FieldMapping, normalise_header, require_columns


def list_columns(mapping: FieldMapping) -> dict[str, str | None]:
    return {name: rule.column for name, rule in mapping.rules.items()}


def test_the_field_names_of_the_connector_are_recognised_except_the_fields_of_the_base() -> None:
    assert list_columns(guess_mapping(FIELD_NAMES)) == {name: name for name in MAPPABLE_FIELDS}


def test_headers_with_the_field_names_of_the_service_are_recognised() -> None:
    columns = [find_wire_name(field) for field in FIELDS]
    assert list_columns(guess_mapping(columns)) == {
        field.name: find_wire_name(field) for field in FIELDS if field.name in MAPPABLE_FIELDS
    }


def test_the_most_exact_header_is_mapped_in_any_order_of_columns() -> None:
    assert list_columns(guess_mapping(["billing_email", "Email Address", "E-Mail", "Email (2)"])) == {"email": "E-Mail"}


def test_unknown_headers_are_not_mapped() -> None:
    assert list_columns(guess_mapping([])) == {}
    assert list_columns(guess_mapping(["Größe", "会社", ""])) == {}


COMMON_FIELDS = "first_name last_name email phone address_zip address_city"


def test_headers_in_eight_languages_are_recognised() -> None:
    headers_and_fields: list[tuple[str, str]] = [
        ("fname lname email opted_in", "first_name last_name email is_active"),
        ("Vorname Nachname E-Mail-Adresse Telefonnummer PLZ Wohnort Straße", f"{COMMON_FIELDS} address_line1"),
        ("Prénom Nom_de_famille Courriel Téléphone Code_postal Ville", COMMON_FIELDS),
        ("Primer_nombre Apellidos Correo_electrónico Móvil Código_postal Ciudad", COMMON_FIELDS),
        ("Nome_proprio Cognome Indirizzo_email Cellulare CAP Città", COMMON_FIELDS),
        ("Primeiro_nome Sobrenome Endereço_de_email Celular CEP Cidade", COMMON_FIELDS),
        ("Voornaam Achternaam E-mailadres Telefoonnummer Postcode Woonplaats", COMMON_FIELDS),
        ("Imię Nazwisko Adres_e-mail Numer_telefonu Kod_pocztowy Miasto", COMMON_FIELDS),
    ]
    for headers, fields in headers_and_fields:
        assert list_columns(guess_mapping(headers.split())) == dict(zip(fields.split(), headers.split(), strict=True))


def test_a_column_of_whole_names_is_mapped_to_the_first_name() -> None:
    for header in [
        "Name", "Full name", "Nome completo", "Vollständiger Name", "Kontaktname", "Nom complet", "Nom & prénom",
        "Nombre y apellidos", "Volledige naam", "Imię i nazwisko", "Vor- und Nachname", "Contact Name",
    ]:  # fmt: skip
        mapping = guess_mapping(["email", header])
        assert list_columns(mapping) == {"email": "email", "first_name": header}
        assert mapping.whole_name_column == header
        assert override_mapping(mapping, {"phone": "email"}, ["email", header]).whole_name_column == header
        assert override_mapping(mapping, {"first_name": ""}, ["email", header]).whole_name_column is None


def test_a_column_of_names_among_other_name_columns_is_mapped_only_if_its_field_is_clear() -> None:
    headers_and_fields: list[tuple[list[str], dict[str, str], str | None, str | None]] = [
        (["Nome", "Cognome"], {"first_name": "Nome", "last_name": "Cognome"}, None, None),
        (["Nombre", "Apellidos"], {"first_name": "Nombre", "last_name": "Apellidos"}, None, None),
        (["Prénom", "Nom"], {"first_name": "Prénom", "last_name": "Nom"}, None, None),
        (["Nom", "Ville"], {"last_name": "Nom", "address_city": "Ville"}, "Nom", None),
        (["Name", "Vorname"], {"first_name": "Vorname"}, None, "Name"),
        (["Name", "Surname"], {"last_name": "Surname"}, None, "Name"),
        (["Full Name", "First Name", "Last Name"], {"first_name": "First Name", "last_name": "Last Name"}, None,
         "Full Name"),
    ]  # fmt: skip
    for headers, fields, whole_name_column, unused_columns in headers_and_fields:
        mapping = guess_mapping(headers)
        assert list_columns(mapping) == fields
        assert mapping.whole_name_column == whole_name_column
        assert find_name_column([header for header in headers if header not in mapping.columns]) == unused_columns


def test_the_number_and_the_tags_of_a_shopify_order_are_not_mapped() -> None:
    headers = ["Name", "Email", "Financial Status", "Lineitem name", "Billing Name", "Phone", "Tags"]
    mapping = guess_mapping(headers)
    assert list_columns(mapping) == {"email": "Email", "first_name": "Billing Name", "phone": "Phone"}
    assert mapping.whole_name_column == "Billing Name"


def test_each_header_belongs_to_only_one_field_and_each_field_has_headers() -> None:
    normalised_headers = [normalise_header(header) for headers in HEADERS_BY_FIELD.values() for header in headers]
    assert len(normalised_headers) == len(set(normalised_headers))
    assert tuple(HEADERS_BY_FIELD) == MAPPABLE_FIELDS
    assert set(normalised_headers) >= {*GOOGLE_HEADERS, *MAILCHIMP_IGNORED_HEADERS}
    known_headers = {*WHOLE_NAME_HEADERS, *GOOGLE_HEADERS, *MAILCHIMP_HEADERS, *MAILCHIMP_IGNORED_HEADERS}
    assert {normalise_header(header) for header in known_headers} == known_headers


COLUMNS = ["Email", "Phone", "Mail", "Labels"]


def test_an_override_changes_only_its_field() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"email": "Mail", "custom_field1": "Phone"}, COLUMNS)
    assert {name: rule.column for name, rule in mapping.rules.items()} == {
        "email": "Mail", "phone": "Phone", "tags": "Labels", "custom_field1": "Phone",
    }  # fmt: skip


def test_a_state_column_used_for_is_active_does_not_also_fill_address_state() -> None:
    columns = ["Email", "State", "City"]
    mapping = override_mapping(guess_mapping(columns), {"is_active": "State"}, columns)
    assert list_columns(mapping) == {"is_active": "State", "email": "Email", "address_city": "City"}
    mapping = override_mapping(guess_mapping(columns), {"is_active": "State", "address_state": "State"}, columns)
    assert mapping.rules["address_state"].column == "State"


def test_only_an_export_of_google_separates_labels_by_three_colons() -> None:
    google_headers = ["First Name", "Labels", "E-mail 1 - Value", "Phone 1 - Value"]
    assert guess_mapping(["email", "labels"]).rules["tags"].split is None
    assert guess_mapping(google_headers).rules["tags"].split == ":::"
    assert (
        override_mapping(guess_mapping(google_headers), {"tags": "Labels"}, google_headers).rules["tags"].split == ":::"
    )
    row = ["Ann", "* myContacts ::: VIP, gold", "a@x.com ::: b@x.com", "+49 151 1 ::: +49 30 2"]
    mapped_frame = apply_mapping(
        pd.DataFrame([row], columns=google_headers, dtype="str"), guess_mapping(google_headers)
    ).frame
    assert (mapped_frame["email"][0], mapped_frame["phone"][0], list(mapped_frame["tags"][0])) == (
        "a@x.com", "+49 151 1", ["* myContacts", "VIP, gold"],
    )  # fmt: skip


def test_an_override_with_an_empty_column_name_removes_its_field() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"phone": ""}, COLUMNS)
    assert "phone" not in mapping.rules


def test_the_error_of_an_unknown_column_shows_the_known_names() -> None:
    overrides_and_errors: list[tuple[dict[str, str], list[str]]] = [
        ({"email": "mial"}, ["column 'mial'", "Did you mean", "Mail", "Email, Phone, Mail, Labels"]),
        ({"email": "mail"}, ["Did you mean Mail"]),
    ]
    for overrides, expected_texts in overrides_and_errors:
        with pytest.raises(ConfigurationError) as error_info:
            override_mapping(guess_mapping(COLUMNS), overrides, COLUMNS)
        assert all(text in str(error_info.value) for text in expected_texts)


def test_one_error_shows_all_missing_columns() -> None:
    mapping = FieldMapping({"email": ColumnRule(column="A"), "phone": ColumnRule(column="B")})
    with pytest.raises(ConfigurationError, match=r"'A'.*'B'"):
        require_columns(mapping, COLUMNS)


def test_a_rule_without_a_source_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        ColumnRule()


def test_a_mapping_has_its_own_copies_of_its_dicts() -> None:
    values = {"M": "male"}
    rules = {"gender": ColumnRule(column="sex", values=values)}
    mapping = FieldMapping(rules)
    values["M"] = "female"
    rules.clear()
    assert dict(mapping.rules["gender"].values or {}) == {"M": "male"}
