"""Guesses the field of each column from its header, and finds consent columns, which show whether a person wants email.

Headers are compared by their letters and digits (`normalise_header`), so `First Name`, `FIRSTNAME` and `first_name` are
equal. The known headers are in English, German, French, Spanish, Italian, Portuguese, Dutch and Polish.

A column is mapped to is_active only if its header asks whether the person wants emails (`opted_in`, Shopify's `Accepts
Email Marketing`). A header that means an opt-out, or the name of a list, is not mapped.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConfigurationError
from connector.subscribers.checks import (
    FLAGS,
    INACTIVE_WORDS,
    UNSUBSCRIBED_WORDS,
    YES_OR_NO,
    read_cells,
    translate_cells,
)
from connector.subscribers.identity import Mask
from connector.subscribers.rules import (
    ColumnRule,
    FieldMapping,
    explain_missing,
    normalise_header,
    split_header,
)

HEADERS: dict[str, tuple[str, ...]] = {
    "is_active": (
        "is_active", "Accepts Email Marketing", "Accepts Marketing",  # Shopify, new and old
        "opted_in", "is_subscribed", "Subscribed", "accepts_emails", "email_opt_in", "email_consent",
        "newsletter_opt_in", "Newsletter_Einwilligung", "Angemeldet", "Inscrit", "Abonné", "Suscrito", "Iscritto",
        "Inscrito", "Ingeschreven", "Zapisany",
    ),
    "email": (
        "email", "Email Address",  # Mailchimp
        "E-mail 1 - Value",  # Google Contacts
        "billing_email", "Primary Email",  # WooCommerce
        "Mail", "email_addr", "EmailID", "E-Mail-Adresse", "Adresse e-mail", "Courriel", "Adresse mail",
        "Correo electrónico", "Correo", "Indirizzo email", "Posta elettronica", "Endereço de email",
        "Correio eletrónico", "E-mailadres", "Mailadres", "Adres e-mail",
    ),
    "first_name": (
        "first_name", "Given Name",  # Google Contacts, old
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
        "address_country", "Country Code", "Default Address Country Code",  # Shopify, old; next to the name
        "Country", "Country/Region", "Address 1 - Country",  # HubSpot and WooCommerce; Google Contacts
        "billing_country", "Mailing Country",  # WooCommerce, Salesforce
    ),
    "address_city": (
        "address_city", "City", "Default Address City", "Address 1 - City", "billing_city", "Mailing City",
        "Town", "Stadt", "Ort", "Wohnort", "Ville", "Ciudad", "Città", "Cidade", "Stad", "Woonplaats", "Miasto",
    ),
    "address_state": (
        "address_state", "State", "State/Region", "Province",  # HubSpot and Klaviyo; Shopify, old
        "Province Code", "Default Address Province Code", "Address 1 - Region", "Region",  # WooCommerce
        "billing_state", "Mailing State", "Mailing State/Province",
        "Bundesland", "Provincia", "Regione", "Provincie", "Województwo",
    ),
    "address_zip": (
        "address_zip", "Zip", "Zip Code", "Postal Code",  # Klaviyo; HubSpot and WooCommerce
        "Default Address Zip", "Address 1 - Postal Code", "billing_postcode", "Mailing Postal Code",
        "Mailing Zip/Postal Code", "Postcode",
        "PLZ", "Postleitzahl", "Code postal", "CP", "Código postal", "CAP", "Codice postale", "CEP", "Kod pocztowy",
    ),
    "address_line1": (
        "address_line1", "Address 1", "Street Address", "Default Address Address1",  # Shopify, old; HubSpot
        "Address 1 - Street", "billing_address_1", "Mailing Street",
        "Address",  # Klaviyo; Mailchimp, whose cells have the whole address
        "Street", "Straße", "Anschrift", "Rue", "Dirección", "Calle", "Indirizzo", "Via", "Endereço", "Rua",
        "Morada", "Straat", "Adres", "Ulica",
    ),
    "address_line2": (
        "address_line2", "Address 2", "Default Address Address2",  # Shopify, old, and Klaviyo; Shopify
        "Address 1 - Extended Address", "billing_address_2",
    ),
    "address_line3": ("address_line3",),
    "birthday": ("birthday", "Date of birth", "Birthdate"),  # Google Contacts; HubSpot and Brevo; Salesforce
}  # fmt: skip
"""The known headers of each field, the best first: the connector's own name, names in exports of other programs, and
words of eight languages.

Some columns cannot be guessed from the header alone: a header may have two meanings (`Nombre`), and birthdays, genders
and countries have many forms. Only `connector init`, which reads the cells, maps such a column.
"""

# The sets below contain headers as `normalise_header` writes them.

WHOLE_NAMES = frozenset({
    "name", "fullname", "wholename", "displayname", "firstandlastname", "firstnamelastname", "lastnamefirstname",
    "personname", "contactname", "contactperson", "customername", "clientname", "subscribername",
    "recipientname", "membername", "attendeename", "nameofcontact", "yourname",
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

_FIRST_NAMES_BESIDE_LAST_NAMES = frozenset({"nombre", "nome"})
"""Headers of whole names that mean the first name if another column has the last name."""

GOOGLE_HEADERS = frozenset({"email1value", "phone1value", "address1street", "groupmembership"})
"""Headers that only exports of Google Contacts have."""

_GOOGLE_SEPARATOR = ":::"
"""The separator of Google Contacts between values of a cell: `+49 151 1 ::: +49 30 2`."""

EXPORT_COLUMNS = frozenset({"id", "_invalid"})
"""Headers that each export of the connector has."""

_EXPORT_SEPARATOR = "|"
"""The connector's separator of tags in workbooks, and in CSV for Excel."""

MAILCHIMP_HEADERS = frozenset({"memberrating", "leid", "euid"})
"""Headers that only exports of Mailchimp have."""

MAILCHIMP_IGNORED_HEADERS = frozenset({"birthday", "region"})
"""Headers of Mailchimp that are not mapped: its birthday (MM/DD) has no year, and its region is the region of an IP
address."""


_FIELD_AND_RANK_BY_HEADER = {  # the field, and the rank of the header among the headers of this field (0 is the best)
    normalise_header(header): (field, rank) for field, headers in HEADERS.items() for rank, header in enumerate(headers)
}


def guess_mapping(columns: Sequence[str]) -> FieldMapping:
    """Return a mapping of each field to the column with the best header. If headers are equal, use the first column.

    A column of whole names is mapped to one field, because nobody has checked how the names would be split. The id and
    the base are not mapped. The job names the base.
    """
    best_columns: dict[str, tuple[int, str]] = {}
    is_mailchimp = _has_header(columns, MAILCHIMP_HEADERS)
    for column in columns:
        key = normalise_header(column)
        if key in _FIELD_AND_RANK_BY_HEADER and not (is_mailchimp and key in MAILCHIMP_IGNORED_HEADERS):
            field, rank = _FIELD_AND_RANK_BY_HEADER[key]
            if field not in best_columns or rank < best_columns[field][0]:
                best_columns[field] = (rank, column)
    whole_name_column = None
    if "first_name" not in best_columns:
        whole_name_column = _find_header(
            [best_columns["last_name"][1]] if "last_name" in best_columns else columns, WHOLE_NAMES
        )
        first_name_column = (
            whole_name_column
            if "last_name" not in best_columns
            else _find_header(columns, _FIRST_NAMES_BESIDE_LAST_NAMES)
        )
        if first_name_column is not None:
            best_columns["first_name"] = (0, first_name_column)
    rules = {field: build_column_rule(field, column, columns) for field, (_, column) in best_columns.items()}
    return FieldMapping(rules, whole_name_column)


def build_column_rule(field: str, column: str, columns: Sequence[str]) -> ColumnRule:
    """Return the rule for a column. The headers of all `columns` show which program wrote the file, and so how its
    cells must be read."""
    if field == "tags" and set(columns) >= EXPORT_COLUMNS:  # cells with tags in JSON are read as lists, not split
        return ColumnRule(column=column, split=_EXPORT_SEPARATOR)
    if not _has_header(columns, GOOGLE_HEADERS):
        return ColumnRule(column=column)
    if field == "tags":
        return ColumnRule(column=column, split=_GOOGLE_SEPARATOR)
    if normalise_header(column).endswith("1value"):  # the first of several emails or phone numbers
        return ColumnRule(template=f"{{{{ row[{json.dumps(column)}].split({json.dumps(_GOOGLE_SEPARATOR)})[0] }}}}")
    return ColumnRule(column=column)


_MIN_WORD_LENGTH = 4  # shorter words of headers (`via`, `cap`, `nom`) have too many other meanings
_WORDS = re.compile(r"[^\W\d_]+")
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")


def find_useful_columns(mapping: FieldMapping, unmapped_columns: Sequence[str]) -> dict[str, str]:
    """Return the field of each unmapped column that may belong to a field without a rule.

    The whole header decides, or the header without its number (`Vorname2`), or one word of the header (`phone_mobile`).
    """
    field_by_column: dict[str, str] = {}
    for column in unmapped_columns:
        words = [
            word for word in _WORDS.findall(_CAMEL_CASE_BOUNDARY.sub(" ", column)) if len(word) >= _MIN_WORD_LENGTH
        ]
        texts = [column, column.rstrip("0123456789 _.-"), *words]
        fields = [
            _FIELD_AND_RANK_BY_HEADER[key][0]
            for key in map(normalise_header, texts)
            if key in _FIELD_AND_RANK_BY_HEADER
        ]
        # `find_consent_columns` finds the columns for is_active.
        field = next((field for field in fields if field != "is_active"), None)
        if field is not None and field not in mapping.rules:
            field_by_column[column] = field
    return field_by_column


def find_name_column(columns: Sequence[str]) -> str | None:
    """Return the first of these unmapped columns that may contain whole names by its header, or None."""
    return _find_header(columns, WHOLE_NAMES)


def _find_header(columns: Sequence[str], headers: frozenset[str]) -> str | None:
    """Return the first column that has one of the headers, or None."""
    return next((column for column in columns if normalise_header(column) in headers), None)


def _has_header(columns: Sequence[str], headers: frozenset[str]) -> bool:
    """Return whether any column has one of the `headers`."""
    return not headers.isdisjoint(normalise_header(column) for column in columns)


def override_mapping(
    mapping: FieldMapping, overrides: Mapping[str, str | ColumnRule], columns: Sequence[str]
) -> FieldMapping:
    """Return the mapping with other rules for some fields. `overrides` has, by field, a rule, a column, or "" (no
    rule).

    Other fields keep their rules, so one column may be mapped to two fields. Raises ConfigurationError for an
    unknown column.
    """
    rules = dict(mapping.rules)
    whole_name_column = None if {"first_name", "last_name"} & overrides.keys() else mapping.whole_name_column
    for field, override in overrides.items():
        if not override:
            rules.pop(field, None)
            continue
        read_columns = (override,) if isinstance(override, str) else override.columns
        missing_columns = [column for column in read_columns if column not in columns]
        if missing_columns:
            raise ConfigurationError(explain_missing("column", missing_columns[0], columns))
        rules[field] = build_column_rule(field, override, columns) if isinstance(override, str) else override
    return FieldMapping(rules, whole_name_column)


# Consent columns, which show whether a person wants email


# Headers as `normalise_header` writes them.
_UNSUBSCRIBED_HEADER = re.compile(
    "unsub|optout|^(is|ist|esta)?(blocked|gesperrt|bloquead[oa]|bloccat[oa]|geblokkeerd|zablokowany)$|^bounced|complained|spamcomplaint|optedout|donotemail|donotmail|donotbulk|donotcontact|^(is|has)?noe?mail|blacklist|blocklist"
    "|suppress|hardbounce|abgemeldet|abmeld|abbestell|widerruf|werbesperre|keinewerbung|keinnewsletter|ausgetragen"
    "|desabonn|desinscri|dadodebaja|fechadebaja|fechabaja|desuscri|nomolestar|disiscri|descadastr|naoreceber"
    "|uitgeschreven|uitschrijf|afgemeld|wypisa|rezygnac|^baja$|werbeverbot|robinsonlist"
)
_NEWS_WORDS = (
    "newsletter|nieuwsbrie|infolettre|boletin|bollettin|mailing|marketing|(?<!be|ge|er)werb|consent|einwilligung|zgod"
    "|consens"
)
_MAIL_WORDS = re.compile("mail|correo|courriel")
_REFUSAL_WORDS = re.compile(  # only next to a word for news or mail: Refus newsletter, consent_withdrawn_at
    "refus|declin|revo[ck]|withdr[ae]w|exclud|ausgeschl|abgelehnt|abgewahlt|widerspr|oppos|disabl|deaktiv|desactiv"
    "|disattiv|sperre|rifiut|rechaz|recus|geweiger|odmow|sprzeciw|^stop"
)
# These words count only in a header with a word for news. Next to "mail", "cancel" may have another meaning.
_ENDING_WORDS = re.compile("cancel|gekundigt|denied|reject|resili|annul|opgezegd|stop$")

# Headers as `split_header` writes them.
_MAIL_NOUNS = (
    rf"(\w*mail\w*|correos?|courriels?|\w*({_NEWS_WORDS})\w*|reclame|publicidade?|publicite|pubblicita"
    r"|reklam\w*|promo\w*)\b"
)
_MAIL_VERBS = (
    r"(send\w*|subscri\w*|contact(|ed|able|ar|er)|kontakt\w*|anschreiben|angemeldet|abonn\w*|aangemeld|envoyer|recevoir"
    r"|inscri\w*|enviar|recibir|suscri\w*|inviare|ricevere|contattare|iscri\w*|receber|wysyla\w*|otrzymywa\w*|zapisan\w*"
    r"|versturen|ontvangen)\b"
)
_NEGATED_HEADER = re.compile(
    # These words are searched only at the beginning of a header: elsewhere, `no` may mean a number (Mail No), or "in
    # the" in Portuguese.
    rf"^no (?!of |de |du )(\w+ ){{0,2}}{_MAIL_NOUNS}"
    rf"|^(sin|sans|sem|senza|without|ohne|bez|brak|niente|pas|aucune?|nessuna?|zero) (\w+ )?{_MAIL_NOUNS}"
    rf"|^(not|non|nao|nie|ne pas|ne plus) ({_MAIL_NOUNS}|{_MAIL_VERBS})"
    rf"|\b(do not|does not|don t|doesn t|dont|kein\w*|nicht|geen|niet|ne \w+ (pas|plus)|nie chce"
    r"|no (quier|dese|acept)\w*|nao (quer|dese|aceit)\w*|non (vuole|voglio|desider|accett)\w*)"
    rf" (\w+ ){{0,3}}({_MAIL_NOUNS}|{_MAIL_VERBS})"
    r"|\bno (enviar|contactar|recibir|suscri\w*|subscri\w*)\b"
)
# A header such as Newsletter ja/nein names both answers, so it is not negated.
_YES_WORD = re.compile(r"\b(yes|ja|oui|si|sim|tak)\b")
_SUBSCRIBED_HEADER = re.compile(
    "^(accepts?|wants?|receives?|can|may|acepta|quiere|desea|accetta|vuole|aceita|quer|deseja|souhaite|accepte|mochte|will|wunscht|darf"
    "|wil|mag|chce).*(mail|correo|courriel|news|(?<!be|ge|er)werb)|^mailable$|mail(s|ing)?(allowed|erlaubt)|gdpr|dsgvo|rgpd|lgpd|"
    "newsletter|optin|optedin|consent|permission|marketing|mailing|subscribed|einwilligung|werbeerlaubnis|infolettre"
    "|boletin|suscri|bollettino|nieuwsbrief|zgoda|abonniert|abonne"
)
_ACTIVE_HEADERS = frozenset({
    *(normalise_header(header) for header in HEADERS["is_active"]),
    "active", "aktiv", "actif", "activo", "attivo", "ativo", "actief", "aktywny",
})  # fmt: skip
_STATUS_WORDS = re.compile("status|statut|estado|stato$|stan$")
_URL_OR_TOKEN = re.compile("url|link|token|hash|doubleoptin")  # unsubscribe_url
_PHONE_CHANNEL = re.compile("sms|phone|whatsapp|call")  # accepts_sms_marketing

_NO_WORDS = ("", *(word for word, is_yes in YES_OR_NO.items() if not is_yes))


def is_unsubscribed_header(column: str) -> bool:
    """Return whether the header means that the cells of this column show who has unsubscribed."""
    header = normalise_header(column)
    if _is_unrelated(header):
        return False
    if _UNSUBSCRIBED_HEADER.search(header):
        return True
    is_news = re.search(_NEWS_WORDS, header) is not None
    if (is_news or _MAIL_WORDS.search(header)) and _REFUSAL_WORDS.search(header):
        return True
    header_words = split_header(column)
    return (is_news and bool(_ENDING_WORDS.search(header))) or bool(
        _NEGATED_HEADER.search(header_words) and not _YES_WORD.search(header_words)
    )


def _is_unrelated(header: str) -> bool:
    """Return whether a header is about a URL or token, or about phones but not about emails. `Email/SMS opt-out` is
    also about emails."""
    return bool(_URL_OR_TOKEN.search(header) or (_PHONE_CHANNEL.search(header) and "mail" not in header))


def build_consent_rule(column: str) -> ColumnRule:
    """Return the rule that reads is_active from a column. The header of the column decides how the cells are read.

    If the header means unsubscribed people, each text (also a date) means inactive. Only an empty text, 0 and words for
    no mean active.
    """
    if not is_unsubscribed_header(column):
        return ColumnRule(column=column)
    name = f"row[{json.dumps(column, ensure_ascii=False)}]"
    return ColumnRule(template=f"{{{{ 'true' if {name} | trim | lower in {_NO_WORDS!r} else 'false' }}}}")


def find_unread_columns(mapping: FieldMapping, columns: Sequence[str], ignored_columns: Collection[str]) -> list[str]:
    """Return the columns that are neither ignored nor read by the rules of is_active and email. If is_active is false
    for all rows, return no columns."""
    rule = mapping.rules.get("is_active")
    if rule is not None and rule.value == "false":
        return []
    rules = (rule, mapping.rules.get("email"))
    read_columns = {column for rule in rules if rule is not None for column in rule.columns}
    return [column for column in columns if column not in read_columns and column not in ignored_columns]


def find_consent_columns(frame: pd.DataFrame, mapping: FieldMapping, ignored_columns: Collection[str]) -> list[str]:
    """Return the consent columns of a chunk's frame (texts) that the rule of is_active does not read."""
    rule = mapping.rules.get("is_active")
    has_column = rule is not None and bool(rule.columns)
    unread_columns = find_unread_columns(mapping, [str(column) for column in frame.columns], ignored_columns)
    return [
        column for column in unread_columns if _shows_consent(column, frame[column], has_activity_column=has_column)
    ]


def _shows_consent(column: str, cells: "pd.Series[str]", *, has_activity_column: bool) -> bool:
    """Return whether a column is a consent column. `has_activity_column` is true if is_active is mapped to another
    column."""
    header = normalise_header(column)
    if _is_unrelated(header):
        return False
    if is_unsubscribed_header(column):
        return True
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(cells)))
    is_subscribed = _SUBSCRIBED_HEADER.search(header) is not None
    if _contains_word(texts, UNSUBSCRIBED_WORDS):
        return True
    if (is_subscribed or _STATUS_WORDS.search(header)) and (
        _contains_word(texts, INACTIVE_WORDS) or _begins_with_refusal(texts)
    ):
        return True
    if has_activity_column:
        return False
    if header in _ACTIVE_HEADERS and _contains_word(texts, [word for word in FLAGS if not FLAGS[word]]):
        return True
    if not is_subscribed:
        return False
    filled_texts = texts.filter(pc.fill_null(pc.not_equal(texts, ""), False))
    if len(filled_texts) > 0 and pc.all(pc.is_in(filled_texts, pa.array(YES_OR_NO, texts.type))).as_py():
        return True
    # The first word of each cell, for example "nein" of "nein, danke".
    first_words = pc.struct_field(pc.extract_regex(filled_texts, r"^(?P<word>\pL{2,})"), "word")
    return all(
        _contains_word(first_words, [word for word in YES_OR_NO if YES_OR_NO[word] is is_yes])
        for is_yes in (True, False)
    )


_REFUSAL_TEXT = rf"^({'|'.join(map(re.escape, UNSUBSCRIBED_WORDS))})[^\pL\pN]"


def _begins_with_refusal(words: pa.Array) -> bool:
    """Return whether any cell begins with a refusal, such as `Opted out (by contact)` or `Unsubscribed by customer`."""
    return bool(pc.any(pc.match_substring_regex(words, _REFUSAL_TEXT)).as_py())


def _contains_word(cells: pa.Array, words: Sequence[str]) -> bool:
    return bool(pc.any(pc.is_in(cells, pa.array(words, cells.type))).as_py())


def find_inactive_rows(frame: pd.DataFrame, columns: Collection[str]) -> tuple[Mask, Mask]:
    """Return two masks of a chunk's frame (texts): the rows that any of these columns shows as inactive, and the other
    rows with a word that means neither active nor inactive."""
    inactive_mask, unclear_mask = np.zeros(len(frame), dtype=bool), np.zeros(len(frame), dtype=bool)
    for column in columns:
        texts = pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(frame[column]))), "")
        if is_unsubscribed_header(column):
            inactive_mask |= ~pc.is_in(texts, pa.array(_NO_WORDS, texts.type)).to_numpy(zero_copy_only=False)
        else:
            flags = translate_cells(texts, FLAGS)
            inactive_mask |= pc.fill_null(pc.invert(flags), False).to_numpy(zero_copy_only=False)
            unclear_mask |= flags.is_null().to_numpy(zero_copy_only=False)
    return inactive_mask, unclear_mask & ~inactive_mask


def explain_consent(columns: Sequence[str]) -> Iterator[str]:
    """Yield a message for each of these unmapped consent columns."""
    for column in columns:
        yield (
            f"the column {column} says who wants no email, but nothing reads it, so people who have unsubscribed would "
            f"become active. Map it (--map is_active={shlex.quote(column)}; in a job `is_active`, as "
            f"`connector init` drafts it), or ignore it (--ignore {shlex.quote(column)}; in a job "
            f"`ignore: [{column}]`)"
        )
