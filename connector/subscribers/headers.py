"""Guesses the field of each column from its header.

Headers are compared by their letters and digits (`normalise_header`), so `First Name`, `FIRSTNAME` and `first_name` are
equal. The known headers are in English, German, French, Spanish, Italian, Portuguese, Dutch and Polish.
"""

import json
import re
from collections.abc import Mapping, Sequence

from connector.errors import ConfigurationError
from connector.subscribers.consent import ACTIVE_HEADERS
from connector.subscribers.rules import (
    ColumnRule,
    FieldMapping,
    explain_missing_column,
    normalise_header,
    separate_words,
)

# The comment at the end of a line names the programs whose exports have the headers of this line.
HEADERS_BY_FIELD: dict[str, tuple[str, ...]] = {
    "is_active": ACTIVE_HEADERS,
    "email": (
        "email", "Email Address",  # Mailchimp
        "E-mail 1 - Value",  # Google Contacts
        "billing_email", "Primary Email",  # WooCommerce
        "Mail", "email_addr", "EmailID", "E-Mail-Adresse", "Adresse e-mail", "Courriel", "Adresse mail",
        "Correo electrónico", "Correo", "Indirizzo email", "Posta elettronica", "Endereço de email",
        "Correio eletrónico", "E-mailadres", "Mailadres", "Adres e-mail",
    ),
    "first_name": (
        "first_name", "Given Name",  # older exports of Google Contacts
        "billing_first_name", "PRENOM",  # WooCommerce, Brevo in French
        "fname", "firstnm", "forename", "Vorname", "Rufname", "Prénoms", "Primer nombre", "Nombre de pila",
        "Nome proprio", "Primeiro nome", "Voornaam", "Roepnaam", "Imię", "Imiona",
    ),
    "last_name": (
        "last_name", "Family Name", "billing_last_name", "NOM", "Surname",  # the same programs as for first_name
        "lname", "lastnm", "Nachname", "Familienname", "Zuname", "Nom de famille", "Apellido", "Apellidos",
        "Primer apellido", "Cognome", "Sobrenome", "Apelido", "Último nome", "Achternaam", "Familienaam", "Nazwisko",
    ),
    "gender": ("gender",),
    "phone": (
        "phone", "Phone Number",  # Mailchimp, HubSpot, Klaviyo
        "Phone 1 - Value", "billing_phone", "SMS",  # Google Contacts, WooCommerce, Brevo
        "Mobile Phone", "Mobile Phone Number", "Default Address Phone",  # Salesforce, HubSpot, Shopify
        "Telephone", "Tel", "Mobile", "Cell phone", "Cell", "Telefon", "Telefonnummer", "Handy", "Mobiltelefon",
        "Handynummer", "Portable", "Numéro de téléphone", "Teléfono", "Móvil", "Celular", "Cellulare",
        "Telefone", "Telemóvel", "Telefoon", "Telefoonnummer", "Mobiel", "Numer telefonu", "Komórka",
    ),
    "tags": (
        "tags", "Labels", "Group Membership",  # Mailchimp and Shopify; Google Contacts, new and old
        "Segments", "Schlagwörter", "Étiquettes", "Etiquetas", "Etichette", "Etykiety",
    ),
    "client_user_id": (
        "client_user_id", "External ID", "EXT_ID", "Customer ID",  # Klaviyo; Brevo; Shopify and WooCommerce
        "Record ID", "Contact ID", "User ID",  # HubSpot, Salesforce
        "Customer number", "Kundennummer", "Kunden-ID", "Numéro client", "ID client", "Número de cliente",
        "ID cliente", "Codice cliente", "Klantnummer", "Klant-ID", "Numer klienta",
    ),
    "custom_field1": ("custom_field1",),
    "custom_field2": ("custom_field2",),
    "custom_field3": ("custom_field3",),
    "address_country": (
        "address_country", "Country Code", "Default Address Country Code",  # Shopify
        "Country", "Country/Region", "Address 1 - Country",  # Klaviyo; HubSpot and WooCommerce; Google Contacts
        "billing_country", "Mailing Country",  # WooCommerce, Salesforce
    ),
    "address_city": (
        "address_city", "City", "Default Address City", "Address 1 - City", "billing_city", "Mailing City",
        "Town", "Stadt", "Ort", "Wohnort", "Ville", "Ciudad", "Città", "Cidade", "Stad", "Woonplaats", "Miasto",
    ),
    "address_state": (
        "address_state", "State",
        "State/Region", "Province",  # HubSpot and Klaviyo; Shopify
        "Province Code", "Default Address Province Code", "Address 1 - Region", "Region",  # WooCommerce
        "billing_state", "Mailing State", "Mailing State/Province",
        "Bundesland", "Provincia", "Regione", "Provincie", "Województwo",
    ),
    "address_zip": (
        "address_zip", "Zip", "Zip Code", "Postal Code",  # Shopify; Klaviyo; HubSpot and WooCommerce
        "Default Address Zip", "Address 1 - Postal Code", "billing_postcode", "Mailing Postal Code",
        "Mailing Zip/Postal Code", "Postcode",
        "PLZ", "Postleitzahl", "Code postal", "CP", "Código postal", "CAP", "Codice postale", "CEP", "Kod pocztowy",
    ),
    "address_line1": (
        "address_line1", "Address 1", "Street Address", "Default Address Address1",  # Shopify (two forms), HubSpot
        "Address 1 - Street", "billing_address_1", "Mailing Street",
        "Address",  # Klaviyo; Mailchimp, whose cells have the whole address
        "Street", "Straße", "Anschrift", "Rue", "Dirección", "Calle", "Indirizzo", "Via", "Endereço", "Rua",
        "Morada", "Straat", "Adres", "Ulica",
    ),
    "address_line2": (
        "address_line2", "Address 2", "Default Address Address2",  # Shopify (two forms), Klaviyo
        "Address 1 - Extended Address", "billing_address_2",
    ),
    "address_line3": ("address_line3",),
    "birthday": ("birthday", "Date of birth", "Birthdate"),  # Google Contacts; HubSpot and Brevo; Salesforce
}  # fmt: skip
"""The known headers of each field, the best header first: the connector's own name, names in exports of other programs,
and words of eight languages.

Some columns cannot be guessed from the header alone: a header may have two meanings (`Nombre`), and birthdays, genders
and countries have many forms. Only `connector init`, which reads the cells, maps these columns.
"""

# The sets below contain headers as `normalise_header` writes them.

WHOLE_NAME_HEADERS = frozenset({
    "name", "fullname", "wholename", "displayname", "firstandlastname", "firstnamelastname", "lastnamefirstname",
    "personname", "contactname", "contactperson", "customername", "clientname", "subscribername",
    "recipientname", "membername", "attendeename", "nameofcontact", "yourname", "billingname", "shippingname",
    "vollername", "ganzername", "vollstandigername", "kontaktname", "kontaktperson",
    "ansprechpartner", "ansprechpartnerin", "kundenname", "empfangername", "vorundnachname", "vornachname",
    "vornameundnachname", "vornamenachname", "nachnamevorname", "namevorname", "vorundzuname",
    "nom", "nomcomplet", "nometprenom", "nomprenom", "prenometnom", "prenomnom", "nomducontact", "nomduclient",
    "nomclient",
    "nombre", "nombrecompleto", "nombreyapellido", "nombreyapellidos", "apellidosynombre", "nombredelcliente",
    "nombredecontacto",
    "nome", "nomecompleto", "nomecognome", "nomeecognome", "cognomenome", "cognomeenome", "nominativo",
    "nomeesobrenome", "nomeeapelido", "nomedocliente", "nomecliente", "nomecontatto", "nomedocontato",
    "naam", "volledigenaam", "voorenachternaam", "contactpersoon", "naamcontactpersoon", "klantnaam",
    "imieinazwisko", "nazwiskoiimie", "pelnenazwisko", "nazwaklienta",
})  # fmt: skip
"""Headers of columns that may contain whole names."""

_FIRST_NAME_HEADERS_BESIDE_LAST_NAME = frozenset({"nombre", "nome"})
"""Headers that mean the first name if another column has the last name. Otherwise, they mean the whole name."""

GOOGLE_HEADERS = frozenset({"email1value", "phone1value", "address1street", "groupmembership"})
"""Headers that only exports of Google Contacts have."""

_GOOGLE_SEPARATOR = ":::"
"""The separator of Google Contacts between several values in a cell: `+49 151 1 ::: +49 30 2`."""

HEADERS_OF_EVERY_EXPORT = frozenset({"id", "_invalid"})
"""Headers that each export of the connector has."""

_EXPORT_SEPARATOR = "|"
"""The connector's separator of tags in workbooks, and in CSV for Excel."""

MAILCHIMP_HEADERS = frozenset({"memberrating", "leid", "euid"})
"""Headers that only exports of Mailchimp have."""

MAILCHIMP_IGNORED_HEADERS = frozenset({"birthday", "region"})
"""Headers of Mailchimp that are not mapped: its birthday (MM/DD) has no year, and its region is the region of an IP
address."""

SHOPIFY_ORDER_HEADERS = frozenset({"financialstatus", "lineitemname"})
"""Headers that only exports of Shopify's orders have."""

SHOPIFY_ORDER_IGNORED_HEADERS = frozenset({"name", "tags"})
"""Headers of Shopify's orders that are not mapped, because their cells are the number (`#1001`) and the tags of the
order."""


_FIELD_AND_RANK_BY_HEADER = {  # the field, and the rank of the header among the headers of this field (0 is the best)
    normalise_header(header): (field, rank)
    for field, headers in HEADERS_BY_FIELD.items()
    for rank, header in enumerate(headers)
}


def guess_mapping(columns: Sequence[str]) -> FieldMapping:
    """Return a mapping of each field to the column with the best header. If columns have the same header, use the first
    column.

    A column of whole names is mapped to one field, because nobody has checked how the names would be split. The id and
    the base are not mapped. The job names the base.
    """
    best_rank_and_column_by_field: dict[str, tuple[int, str]] = {}
    ignored_headers = frozenset[str]()
    if _has_header(columns, MAILCHIMP_HEADERS):
        ignored_headers |= MAILCHIMP_IGNORED_HEADERS
    if _has_header(columns, SHOPIFY_ORDER_HEADERS):
        ignored_headers |= SHOPIFY_ORDER_IGNORED_HEADERS
    columns = [column for column in columns if normalise_header(column) not in ignored_headers]
    for column in columns:
        normal_header = normalise_header(column)
        if normal_header in _FIELD_AND_RANK_BY_HEADER:
            field, rank = _FIELD_AND_RANK_BY_HEADER[normal_header]
            if field not in best_rank_and_column_by_field or rank < best_rank_and_column_by_field[field][0]:
                best_rank_and_column_by_field[field] = (rank, column)
    whole_name_column = None
    if "first_name" not in best_rank_and_column_by_field:
        if "last_name" in best_rank_and_column_by_field:
            whole_name_column = _find_header([best_rank_and_column_by_field["last_name"][1]], WHOLE_NAME_HEADERS)
            column_for_first_name = _find_header(columns, _FIRST_NAME_HEADERS_BESIDE_LAST_NAME)
        else:
            whole_name_column = column_for_first_name = _find_header(columns, WHOLE_NAME_HEADERS)
        if column_for_first_name is not None:
            best_rank_and_column_by_field["first_name"] = (0, column_for_first_name)
    rules = {
        field: build_column_rule(field, column, columns) for field, (_, column) in best_rank_and_column_by_field.items()
    }
    return FieldMapping(rules, whole_name_column)


def build_column_rule(field: str, column: str, columns: Sequence[str]) -> ColumnRule:
    """Return the rule for a column. The headers of all `columns` show which program wrote the file. The program decides
    how the cells must be read."""
    if field == "tags" and set(columns) >= HEADERS_OF_EVERY_EXPORT:
        # Workbooks and CSV for Excel separate tags by this separator. Other files of the connector have JSON lists,
        # which are read as lists in any case.
        return ColumnRule(column=column, split=_EXPORT_SEPARATOR)
    if not _has_header(columns, GOOGLE_HEADERS):
        return ColumnRule(column=column)
    if field == "tags":
        return ColumnRule(column=column, split=_GOOGLE_SEPARATOR)
    if normalise_header(column).endswith("1value"):  # the first of several emails or phone numbers
        return ColumnRule(template=f"{{{{ row[{json.dumps(column)}].split({json.dumps(_GOOGLE_SEPARATOR)})[0] }}}}")
    return ColumnRule(column=column)


_MIN_WORD_LENGTH = 4  # shorter words of headers (`via`, `cap`, `nom`) have too many other meanings
_WORD_PATTERN = re.compile(r"[^\W\d_]+")
_CAMEL_CASE_BOUNDARY_PATTERN = re.compile(r"(?<=[a-z])(?=[A-Z])")


def find_useful_columns(mapping: FieldMapping, unmapped_columns: Sequence[str]) -> dict[str, str]:
    """Return the field of each unmapped column that may belong to a field without a rule.

    The field is found by the whole header, by the header without its number (`Vorname2`), or by one of its words
    (`phone_mobile`).
    """
    field_by_column: dict[str, str] = {}
    for column in unmapped_columns:
        words = [
            word
            for word in _WORD_PATTERN.findall(_CAMEL_CASE_BOUNDARY_PATTERN.sub(" ", column))
            if len(word) >= _MIN_WORD_LENGTH
        ]
        candidate_headers = [column, column.rstrip("0123456789 _.-"), *words]
        fields = [
            _FIELD_AND_RANK_BY_HEADER[key][0]
            for key in map(normalise_header, candidate_headers)
            if key in _FIELD_AND_RANK_BY_HEADER
        ]
        # is_active is left out, because `find_consent_columns` finds its columns.
        field = next((field for field in fields if field != "is_active"), None)
        if "ip" in separate_words(column).split():  # a header such as `IP Address` does not mean a postal address
            continue
        if field is not None and field not in mapping.rules:
            field_by_column[column] = field
    return field_by_column


def find_name_column(columns: Sequence[str]) -> str | None:
    """Return the first of these unmapped columns whose header means that the column may contain whole names, or
    None."""
    return _find_header(columns, WHOLE_NAME_HEADERS)


def _find_header(columns: Sequence[str], headers: frozenset[str]) -> str | None:
    return next((column for column in columns if normalise_header(column) in headers), None)


def _has_header(columns: Sequence[str], headers: frozenset[str]) -> bool:
    return not headers.isdisjoint(normalise_header(column) for column in columns)


def override_mapping(
    mapping: FieldMapping, overrides: Mapping[str, str | ColumnRule], columns: Sequence[str]
) -> FieldMapping:
    """Return the mapping with other rules for some fields. `overrides` maps the name of a field to its new rule or to
    the name of a column. The text "" removes the rule of the field.

    All other fields keep their rules, so one column may be mapped to two fields. Exception: if `is_active` reads a
    column, this column is not mapped to `address_state` by its header. Raises ConfigurationError for an unknown column.
    """
    rules = dict(mapping.rules)
    whole_name_column = None if {"first_name", "last_name"} & overrides.keys() else mapping.whole_name_column
    for field, override in overrides.items():
        if not override:
            rules.pop(field, None)
            continue
        rule_columns = (override,) if isinstance(override, str) else override.columns
        missing_columns = [column for column in rule_columns if column not in columns]
        if missing_columns:
            raise ConfigurationError(explain_missing_column(missing_columns[0], columns))
        rules[field] = build_column_rule(field, override, columns) if isinstance(override, str) else override
    if "address_state" not in overrides:
        drop_misread_address_state(rules)
    return FieldMapping(rules, whole_name_column)


def drop_misread_address_state(rules: dict[str, ColumnRule]) -> None:
    """Delete the rule of address_state if is_active reads its column. `State` then means active or inactive, and not a
    region."""
    if {"is_active", "address_state"} <= rules.keys() and set(rules["address_state"].columns) & set(
        rules["is_active"].columns
    ):
        del rules["address_state"]
