"""What other programs call the columns of their exports: for each field its headers, the best first.

A header is compared by its letters and digits alone (`normalise_header`), so that `First Name`, `FIRSTNAME` and
`first_name` are one. The words of eight languages (English, German, French, Spanish, Italian, Portuguese, Dutch and
Polish) are in `WORDS`. Only a header that says yes or no to emails makes subscribers active (`opted_in`, Shopify's
`Accepts Email Marketing`); an opt-out or a list's name does not.
"""

import unicodedata
from collections.abc import Mapping, Sequence

from connector.errors import ConfigurationError
from connector.subscribers.rules import MAPPABLE, ColumnRule, FieldMapping, explain_missing

# Each line: our own name and the API's (they are one after normalising), then those of the exports.
HEADERS: dict[str, tuple[str, ...]] = {
    "is_active": ("is_active", "Accepts Email Marketing", "Accepts Marketing"),  # Shopify, new and old
    "email": (
        "email",
        "Email Address",  # Mailchimp
        "E-mail 1 - Value",  # Google Contacts
        "billing_email",  # WooCommerce
        "Primary Email",
    ),
    "first_name": (
        "first_name",
        "Given Name",  # Google Contacts, old
        "billing_first_name",  # WooCommerce
        "PRENOM",  # Brevo in French
    ),
    "last_name": ("last_name", "Family Name", "billing_last_name", "NOM", "Surname"),  # the same, in that order
    "gender": ("gender",),
    "phone": (
        "phone",
        "Phone Number",  # Mailchimp, HubSpot, Klaviyo
        "Phone 1 - Value",  # Google Contacts
        "billing_phone",  # WooCommerce
        "SMS",  # Brevo
        "Mobile Phone",  # Salesforce
        "Mobile Phone Number",  # HubSpot
        "Default Address Phone",  # Shopify
    ),
    "tags": (
        "tags",  # Mailchimp, Shopify
        "Labels",  # Google Contacts, new
        "Group Membership",  # and old
    ),
    "client_user_id": (
        "client_user_id",
        "External ID",  # Klaviyo
        "EXT_ID",  # Brevo
        "Customer ID",  # Shopify, WooCommerce
        "Record ID",  # HubSpot
        "Contact ID",  # Salesforce
        "User ID",
    ),
    "custom_field1": ("custom_field1",),
    "custom_field2": ("custom_field2",),
    "custom_field3": ("custom_field3",),
    "address_country": (
        "address_country",
        "Country Code",  # Shopify, old: beside the country's name
        "Default Address Country Code",
        "Country",
        "Country/Region",  # HubSpot, WooCommerce
        "Address 1 - Country",  # Google Contacts
        "billing_country",  # WooCommerce
        "Mailing Country",  # Salesforce
    ),
    "address_city": (
        "address_city",
        "City",
        "Default Address City",
        "Address 1 - City",
        "billing_city",
        "Mailing City",
    ),
    "address_state": (
        "address_state",
        "State",
        "State/Region",  # HubSpot, Klaviyo
        "Province",  # Shopify, old
        "Province Code",
        "Default Address Province Code",
        "Address 1 - Region",
        "Region",  # WooCommerce
        "billing_state",
        "Mailing State",
        "Mailing State/Province",
    ),
    "address_zip": (
        "address_zip",
        "Zip",
        "Zip Code",  # Klaviyo
        "Postal Code",  # HubSpot, WooCommerce
        "Default Address Zip",
        "Address 1 - Postal Code",
        "billing_postcode",
        "Mailing Postal Code",
        "Mailing Zip/Postal Code",
        "Postcode",
    ),
    "address_line1": (
        "address_line1",
        "Address 1",  # Shopify, old
        "Street Address",  # HubSpot
        "Default Address Address1",
        "Address 1 - Street",
        "billing_address_1",
        "Mailing Street",
        "Address",  # Klaviyo; Mailchimp, with the whole address in it
    ),
    "address_line2": (
        "address_line2",
        "Address 2",  # Shopify, old; Klaviyo
        "Default Address Address2",
        "Address 1 - Extended Address",
        "billing_address_2",
    ),
    "address_line3": ("address_line3",),
    "birthday": (
        "birthday",  # Google Contacts
        "Date of birth",  # HubSpot, Brevo
        "Birthdate",  # Salesforce
    ),
}

# The words of files that no program wrote, after those of programs: English, German, French, Spanish, Italian,
# Portuguese, Dutch, Polish. Where cells must be looked at, `connector init` decides: a header of two meanings
# (`Nombre`), and birthdays, genders and countries, which are written in many ways.
WORDS: dict[str, tuple[str, ...]] = {
    "is_active": (
        "opted_in", "is_subscribed", "Subscribed", "accepts_emails", "email_opt_in", "email_consent",
        "newsletter_opt_in", "Newsletter_Einwilligung", "Angemeldet", "Inscrit", "Abonné", "Suscrito",
        "Iscritto", "Inscrito", "Ingeschreven", "Zapisany",
    ),
    "email": (
        "Mail", "email_addr", "EmailID", "E-Mail-Adresse", "Adresse e-mail", "Courriel", "Adresse mail",
        "Correo electrónico", "Correo", "Indirizzo email", "Posta elettronica", "Endereço de email",
        "Correio eletrónico", "E-mailadres", "Mailadres", "Adres e-mail",
    ),
    "first_name": (
        "fname", "firstnm", "forename", "Vorname", "Rufname", "Prénoms", "Primer nombre", "Nombre de pila",
        "Nome proprio", "Primeiro nome", "Voornaam", "Roepnaam", "Imię", "Imiona",
    ),
    "last_name": (
        "lname", "lastnm", "Nachname", "Familienname", "Zuname", "Nom de famille", "Apellido", "Apellidos",
        "Primer apellido", "Cognome", "Sobrenome", "Apelido", "Último nome", "Achternaam", "Familienaam",
        "Nazwisko",
    ),
    "phone": (
        "Telephone", "Tel", "Mobile", "Cell phone", "Cell", "Telefon", "Telefonnummer", "Handy", "Mobiltelefon",
        "Handynummer", "Portable", "Numéro de téléphone", "Teléfono", "Móvil", "Celular", "Cellulare",
        "Telefone", "Telemóvel", "Telefoon", "Telefoonnummer", "Mobiel", "Numer telefonu", "Komórka",
    ),
    "tags": ("Segments", "Schlagwörter", "Étiquettes", "Etiquetas", "Etichette", "Etykiety"),
    "client_user_id": (
        "Customer number", "Kundennummer", "Kunden-ID", "Numéro client", "ID client", "Número de cliente",
        "ID cliente", "Codice cliente", "Klantnummer", "Klant-ID", "Numer klienta",
    ),
    "address_city": (
        "Town", "Stadt", "Ort", "Wohnort", "Ville", "Ciudad", "Città", "Cidade", "Stad", "Woonplaats", "Miasto",
    ),
    "address_state": ("Bundesland", "Provincia", "Regione", "Provincie", "Województwo"),
    "address_zip": (
        "PLZ", "Postleitzahl", "Code postal", "CP", "Código postal", "CAP", "Codice postale", "CEP",
        "Kod pocztowy",
    ),
    "address_line1": (
        "Street", "Straße", "Anschrift", "Rue", "Dirección", "Calle", "Indirizzo", "Via", "Endereço", "Rua",
        "Morada", "Straat", "Adres", "Ulica",
    ),
}  # fmt: skip

WHOLE_NAMES: frozenset[str] = frozenset(
    ["name", "fullname", "displayname", "contactname", "customername", "naam", "volledigenaam", "nom", "nomcomplet",
     "nombre", "nombrecompleto", "nome", "nomecompleto", "nomecognome", "vollername", "ganzername", "imieinazwisko"]
)  # fmt: skip
"""Headers, normalised, of a column that may hold whole names."""

SPLITS: dict[str, str] = {"Labels": ":::", "Group Membership": ":::"}
"""What separates the tags under a header, where it is no comma."""

MAILCHIMP_ONLY: tuple[str, ...] = ("MEMBER_RATING", "LEID", "EUID")
"""Headers by which a Mailchimp export is known."""

MAILCHIMP_LEFT: tuple[str, ...] = ("Birthday", "REGION")
"""What is left alone there: a birthday is MM/DD, no date, and would make its row invalid; the region is an IP's."""

SHOPIFY_ONLY: tuple[str, ...] = ("Accepts Email Marketing", "Accepts Marketing", "Default Address Zip")
"""Headers by which a Shopify customer export is known."""

SHOPIFY_APOSTROPHES: tuple[str, ...] = ("client_user_id", "phone", "address_zip")
"""The fields that Shopify prefixes an apostrophe to ('62, '+316…), lest a spreadsheet make numbers of them."""


def normalise_header(header: str) -> str:
    """Return the header's letters and digits alone, in lower case, without accents."""
    plain = unicodedata.normalize("NFKD", header).casefold().replace("ł", "l")
    return "".join(sign for sign in plain if sign.isalnum())


# The guess, and what overrides it


_MEANINGS = {  # field, and rank: 0 is the best header of its field
    normalise_header(header): (field, rank)
    for field, headers in HEADERS.items()
    for rank, header in enumerate((*headers, *WORDS.get(field, ())))
}
_SPLITS = {normalise_header(header): split for header, split in SPLITS.items()}
_MAILCHIMP_LEFT = {normalise_header(header) for header in MAILCHIMP_LEFT}
_MAILCHIMP_ONLY = {normalise_header(header) for header in MAILCHIMP_ONLY}
_SHOPIFY_ONLY = {normalise_header(header) for header in SHOPIFY_ONLY}


def guess_mapping(columns: Sequence[str]) -> FieldMapping:
    """Map each field to the best of its known headers among `columns`, the first of equals.

    The base and the service's id are never taken from a column: the base is the job's to say.
    """
    best: dict[str, tuple[int, str]] = {}
    is_mailchimp = _is_known(columns, _MAILCHIMP_ONLY)
    for column in columns:
        key = normalise_header(column)
        if key in _MEANINGS and not (is_mailchimp and key in _MAILCHIMP_LEFT):
            field, rank = _MEANINGS[key]
            if field not in best or rank < best[field][0]:
                best[field] = (rank, column)
    return FieldMapping({field: build_column_rule(field, column, columns) for field, (_, column) in best.items()})


def build_column_rule(field: str, column: str, columns: Sequence[str]) -> ColumnRule:
    """Return the rule for a column, with what its header and all the `columns` tell of the way its cells are
    written."""
    split = _SPLITS.get(normalise_header(column)) if field == "tags" else None
    is_prefixed = field in SHOPIFY_APOSTROPHES and _is_known(columns, _SHOPIFY_ONLY)
    return ColumnRule(column=column, split=split, is_apostrophe_dropped=is_prefixed)


def find_whole_name(mapping: FieldMapping, columns: Sequence[str]) -> str | None:
    """Return the column that seems to hold whole names, where no column is mapped to a first or a last name."""
    if {"first_name", "last_name"} & set(mapping.rules):
        return None
    return next((column for column in columns if normalise_header(column) in WHOLE_NAMES), None)


def _is_known(columns: Sequence[str], marks: set[str]) -> bool:
    """Return whether any of the headers is one that a single program alone writes."""
    return not marks.isdisjoint(normalise_header(column) for column in columns)


def override_mapping(mapping: FieldMapping, overrides: Mapping[str, str], columns: Sequence[str]) -> FieldMapping:
    """Put `overrides` (field name to column, as `--map` has them) in place of what was guessed for these fields.

    An empty column leaves its field unmapped. Other fields stay as they were, so that one column may fill two.
    Raises ConfigurationError for a field or a column that does not exist.
    """
    rules = dict(mapping.rules)
    for field, column in overrides.items():
        if field not in MAPPABLE:
            raise ConfigurationError(explain_missing("field", field, MAPPABLE))
        if not column:
            rules.pop(field, None)
            continue
        if column not in columns:
            raise ConfigurationError(explain_missing("column", column, columns))
        rules[field] = build_column_rule(field, column, columns)
    return FieldMapping(rules)
