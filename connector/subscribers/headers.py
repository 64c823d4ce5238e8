"""Guesses the field of each column from its header.

Headers are compared by their letters and digits (`normalise_header`), so `First Name`, `FIRSTNAME` and `first_name` are
equal. The eight languages are English, German, French, Spanish, Italian, Portuguese, Dutch and Polish. Only a header
for the answer yes or no to emails is mapped to is_active (`opted_in`, Shopify's `Accepts Email Marketing`). The header
of an opt-out or the name of a list is not mapped.
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
from connector.subscribers.checks import FLAGS, INACTIVE_WORDS, UNSUBSCRIBED_WORDS, YES_OR_NO, read_cells, translate
from connector.subscribers.identity import Mask
from connector.subscribers.rules import (
    MAPPABLE,
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
        "last_name", "Family Name", "billing_last_name", "NOM", "Surname",  # the programs of first_name, in their order
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
        "address_country", "Country Code", "Default Address Country Code",  # Shopify, old: beside the country's name
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
        "Address",  # Klaviyo; Mailchimp, with the whole address in it
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
"""The headers of each field, the best first: the connector's own name, names in exports of programs, and words of eight
languages.

If the cells must decide, only `connector init` maps the column: for headers with two meanings (`Nombre`), and for
birthdays, genders and countries, which have many forms.
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

_GIVEN_BESIDE_FAMILY = frozenset({"nombre", "nome"})
"""Headers of whole names that mean the first name if another column has the last name."""

GOOGLE_ONLY = frozenset({"email1value", "phone1value", "address1street", "groupmembership"})
"""Headers that only exports of Google Contacts have."""

_GOOGLE_SPLIT = ":::"
"""The separator of Google Contacts between values of a cell: `+49 151 1 ::: +49 30 2`."""

OWN_EXPORT = frozenset({"id", "_invalid"})
"""Columns of each export of the connector."""

_OWN_SPLIT = "|"
"""The connector's separator of tags in workbooks, and in CSV for Excel."""

MAILCHIMP_ONLY = frozenset({"memberrating", "leid", "euid"})
"""Headers that only exports of Mailchimp have."""

MAILCHIMP_IGNORED = frozenset({"birthday", "region"})
"""Headers of Mailchimp that are not mapped: its birthday (MM/DD) has no year, and its region is the region of an IP
address."""


_MEANINGS = {  # the field, and the rank of the header in its field: 0 is the best
    normalise_header(header): (field, rank) for field, headers in HEADERS.items() for rank, header in enumerate(headers)
}


def guess_mapping(columns: Sequence[str]) -> FieldMapping:
    """Return a mapping of each field to the column with the best header, the first column of equal ones.

    A column of whole names is mapped to one field, because nobody has checked how the names would be split. The id and
    the base are not mapped: the job names the base.
    """
    best: dict[str, tuple[int, str]] = {}
    is_mailchimp = _is_known(columns, MAILCHIMP_ONLY)
    for column in columns:
        key = normalise_header(column)
        if key in _MEANINGS and not (is_mailchimp and key in MAILCHIMP_IGNORED):
            field, rank = _MEANINGS[key]
            if field not in best or rank < best[field][0]:
                best[field] = (rank, column)
    whole_name = None
    if "first_name" not in best:
        whole_name = _find_header([best["last_name"][1]] if "last_name" in best else columns, WHOLE_NAMES)
        given = whole_name if "last_name" not in best else _find_header(columns, _GIVEN_BESIDE_FAMILY)
        if given is not None:
            best["first_name"] = (0, given)
    rules = {field: build_column_rule(field, column, columns) for field, (_, column) in best.items()}
    return FieldMapping(rules, whole_name)


def build_column_rule(field: str, column: str, columns: Sequence[str]) -> ColumnRule:
    """Return the rule for a column. The headers of all `columns` show which program wrote the file, and so the form of
    the cells."""
    if field == "tags" and set(columns) >= OWN_EXPORT:  # tags in JSON are not split
        return ColumnRule(column=column, split=_OWN_SPLIT)
    if not _is_known(columns, GOOGLE_ONLY):
        return ColumnRule(column=column)
    if field == "tags":
        return ColumnRule(column=column, split=_GOOGLE_SPLIT)
    if normalise_header(column).endswith("1value"):  # the first of several emails or phone numbers
        return ColumnRule(template=f"{{{{ row[{json.dumps(column)}].split({json.dumps(_GOOGLE_SPLIT)})[0] }}}}")
    return ColumnRule(column=column)


_MIN_WORD_LENGTH = 4  # shorter words of headers (`via`, `cap`, `nom`) have too many other meanings
_WORDS = re.compile(r"[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def find_useful(mapping: FieldMapping, unmapped: Sequence[str]) -> dict[str, str]:
    """Return unmapped columns that may belong to a field without a rule, with the field.

    The whole header, the header without a number (`Vorname2`) or a word of the header (`phone_mobile`) decides.
    """
    useful: dict[str, str] = {}
    for column in unmapped:
        words = [word for word in _WORDS.findall(_HUMP.sub(" ", column)) if len(word) >= _MIN_WORD_LENGTH]
        texts = [column, column.rstrip("0123456789 _.-"), *words]
        fields = [_MEANINGS[key][0] for key in map(normalise_header, texts) if key in _MEANINGS]
        field = next((field for field in fields if field != "is_active"), None)  # `consent` finds columns for is_active
        if field is not None and field not in mapping.rules:
            useful[column] = field
    return useful


def find_unused_name(columns: Sequence[str]) -> str | None:
    """Return the first of these unmapped columns whose header means names."""
    return _find_header(columns, WHOLE_NAMES)


def _find_header(columns: Sequence[str], headers: frozenset[str]) -> str | None:
    """Return the first column with one of the headers."""
    return next((column for column in columns if normalise_header(column) in headers), None)


def _is_known(columns: Sequence[str], marks: frozenset[str]) -> bool:
    """Return whether a column has one of the headers `marks`, which only one program writes."""
    return not marks.isdisjoint(normalise_header(column) for column in columns)


def override_mapping(
    mapping: FieldMapping, overrides: Mapping[str, str | ColumnRule], columns: Sequence[str]
) -> FieldMapping:
    """Return the mapping with other rules for some fields. `overrides` has a rule, a column, or "" (no rule) by field.

    Other fields keep their rules, so one column may have two fields. Raises ConfigurationError for a field or a column
    that does not exist.
    """
    rules = dict(mapping.rules)
    whole_name = None if {"first_name", "last_name"} & overrides.keys() else mapping.whole_name
    for field, override in overrides.items():
        if field not in MAPPABLE:
            raise ConfigurationError(explain_missing("field", field, MAPPABLE))
        if not override:
            rules.pop(field, None)
            continue
        used = (override,) if isinstance(override, str) else override.columns
        missing = [column for column in used if column not in columns]
        if missing:
            raise ConfigurationError(explain_missing("column", missing[0], columns))
        rules[field] = build_column_rule(field, override, columns) if isinstance(override, str) else override
    return FieldMapping(rules, whole_name)


# Columns of consent


# Headers as `normalise_header` writes them.
_UNSUBSCRIBED = re.compile(
    "unsub|optout|^(is|ist|esta)?(blocked|gesperrt|bloquead[oa]|bloccat[oa]|geblokkeerd|zablokowany)$|^bounced|complained|spamcomplaint|optedout|donotemail|donotmail|donotbulk|donotcontact|^(is|has)?noe?mail|blacklist|blocklist"
    "|suppress|hardbounce|abgemeldet|abmeld|abbestell|widerruf|werbesperre|keinewerbung|keinnewsletter|ausgetragen"
    "|desabonn|desinscri|dadodebaja|fechadebaja|fechabaja|desuscri|nomolestar|disiscri|descadastr|naoreceber"
    "|uitgeschreven|uitschrijf|afgemeld|wypisa|rezygnac|^baja$|werbeverbot|robinsonlist"
)
_NEWS = (
    "newsletter|nieuwsbrie|infolettre|boletin|bollettin|mailing|marketing|(?<!be|ge|er)werb|consent|einwilligung|zgod"
    "|consens"
)
_MAIL = re.compile("mail|correo|courriel")
_REFUSED = re.compile(  # with a word for news or mail: Refus newsletter, consent_withdrawn_at, emails_disabled
    "refus|declin|revo[ck]|withdr[ae]w|exclud|ausgeschl|abgelehnt|abgewahlt|widerspr|oppos|disabl|deaktiv|desactiv"
    "|disattiv|sperre|rifiut|rechaz|recus|geweiger|odmow|sprzeciw|^stop"
)
_ENDED = re.compile(
    "cancel|gekundigt|denied|reject|resili|annul|opgezegd|stop$"
)  # with a word for news only: "cancel" beside "mail" has another meaning

# Headers as `split_header` writes them.
_THINGS = (
    rf"(\w*mail\w*|correos?|courriels?|\w*({_NEWS})\w*|reclame|publicidade?|publicite|pubblicita|reklam\w*|promo\w*)\b"
)
_VERBS = (
    r"(send\w*|subscri\w*|contact(|ed|able|ar|er)|kontakt\w*|anschreiben|angemeldet|abonn\w*|aangemeld|envoyer|recevoir"
    r"|inscri\w*|enviar|recibir|suscri\w*|inviare|ricevere|contattare|iscri\w*|receber|wysyla\w*|otrzymywa\w*|zapisan\w*"
    r"|versturen|ontvangen)\b"
)
_NEGATED = re.compile(
    # At the beginning, since `no` is also a number (Mail No, No abonne) and Portuguese for "in the".
    rf"^no (?!of |de |du )(\w+ ){{0,2}}{_THINGS}"
    rf"|^(sin|sans|sem|senza|without|ohne|bez|brak|niente|pas|aucune?|nessuna?|zero) (\w+ )?{_THINGS}"
    rf"|^(not|non|nao|nie|ne pas|ne plus) ({_THINGS}|{_VERBS})"
    rf"|\b(do not|does not|don t|doesn t|dont|kein\w*|nicht|geen|niet|ne \w+ (pas|plus)|nie chce"
    r"|no (quier|dese|acept)\w*|nao (quer|dese|aceit)\w*|non (vuole|voglio|desider|accett)\w*)"
    rf" (\w+ ){{0,3}}({_THINGS}|{_VERBS})"
    r"|\bno (enviar|contactar|recibir|suscri\w*|subscri\w*)\b"
)
_BOTH = re.compile(r"\b(yes|ja|oui|si|sim|tak)\b")  # Newsletter ja/nein: a header that names both answers
_SUBSCRIBED = re.compile(
    "^(accepts?|wants?|receives?|can|may|acepta|quiere|desea|accetta|vuole|aceita|quer|deseja|souhaite|accepte|mochte|will|wunscht|darf"
    "|wil|mag|chce).*(mail|correo|courriel|news|(?<!be|ge|er)werb)|^mailable$|mail(s|ing)?(allowed|erlaubt)|gdpr|dsgvo|rgpd|lgpd|"
    "newsletter|optin|optedin|consent|permission|marketing|mailing|subscribed|einwilligung|werbeerlaubnis|infolettre"
    "|boletin|suscri|bollettino|nieuwsbrief|zgoda|abonniert|abonne"
)
_STATUS = re.compile("status|statut|estado|stato$|stan$")
_OTHER = re.compile("url|link|token|hash|doubleoptin")  # unsubscribe_url
_OTHER_CHANNEL = re.compile("sms|phone|whatsapp|call")  # accepts_sms_marketing

_NO = ("", *(word for word, is_yes in YES_OR_NO.items() if not is_yes))


def is_unsubscribed_header(column: str) -> bool:
    """Return whether the header of a column means that the cells show who has unsubscribed."""
    header = normalise_header(column)
    if _is_other(header):
        return False
    if _UNSUBSCRIBED.search(header):
        return True
    is_news = re.search(_NEWS, header) is not None
    if (is_news or _MAIL.search(header)) and _REFUSED.search(header):
        return True
    words = split_header(column)
    return (is_news and bool(_ENDED.search(header))) or bool(_NEGATED.search(words) and not _BOTH.search(words))


def _is_other(header: str) -> bool:
    """Return whether a header is about a URL or token, or only about phones (`Email/SMS opt-out` is not)."""
    return bool(_OTHER.search(header) or (_OTHER_CHANNEL.search(header) and "mail" not in header))


def build_consent_rule(column: str) -> ColumnRule:
    """Return the rule that reads is_active from a column, by the column's header.

    In a column of unsubscribed people, each text is inactive, also a date, except an empty text, 0 and words for no.
    """
    if not is_unsubscribed_header(column):
        return ColumnRule(column=column)
    name = f"row[{json.dumps(column, ensure_ascii=False)}]"
    return ColumnRule(template=f"{{{{ 'true' if {name} | trim | lower in {_NO!r} else 'false' }}}}")


def find_unread(mapping: FieldMapping, columns: Sequence[str], ignored: Collection[str]) -> list[str]:
    """Return the columns that are neither ignored nor read by is_active or email. Return none if is_active is false for
    all rows."""
    rule = mapping.rules.get("is_active")
    if rule is not None and rule.value == "false":
        return []
    rules = (rule, mapping.rules.get("email"))
    read_columns = {column for rule in rules if rule is not None for column in rule.columns}
    return [column for column in columns if column not in read_columns and column not in ignored]


def find_consent(frame: pd.DataFrame, mapping: FieldMapping, ignored: Collection[str]) -> list[str]:
    """Return the columns of a chunk's frame (texts) that say who wants no email, and that is_active does not read."""
    rule = mapping.rules.get("is_active")
    has_column = rule is not None and bool(rule.columns)
    unread = find_unread(mapping, [str(column) for column in frame.columns], ignored)
    return [column for column in unread if _says_consent(column, frame[column], has_activity_column=has_column)]


def _says_consent(column: str, cells: "pd.Series[str]", *, has_activity_column: bool) -> bool:
    """Return whether a column says who wants no email. `has_activity_column`: is_active is mapped to another column."""
    header = normalise_header(column)
    if _is_other(header):
        return False
    if is_unsubscribed_header(column):
        return True
    words = pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(cells)))
    is_subscribed = _SUBSCRIBED.search(header) is not None
    if _contains(words, UNSUBSCRIBED_WORDS):
        return True
    if (is_subscribed or _STATUS.search(header)) and (_contains(words, INACTIVE_WORDS) or _begins_with_refusal(words)):
        return True
    if has_activity_column or not is_subscribed:
        return False
    filled = words.filter(pc.fill_null(pc.not_equal(words, ""), False))
    if len(filled) > 0 and pc.all(pc.is_in(filled, pa.array(YES_OR_NO, words.type))).as_py():
        return True
    first = pc.struct_field(pc.extract_regex(filled, r"^(?P<word>\pL{2,})"), "word")  # "Nein" in "Nein, danke"
    return all(_contains(first, [word for word in YES_OR_NO if YES_OR_NO[word] is is_yes]) for is_yes in (True, False))


_REFUSAL = rf"^({'|'.join(map(re.escape, UNSUBSCRIBED_WORDS))})[^\pL\pN]"


def _begins_with_refusal(words: pa.Array) -> bool:
    """Return whether a cell begins with a refusal: `Opted out (by contact)`, `Unsubscribed by customer`."""
    return bool(pc.any(pc.match_substring_regex(words, _REFUSAL)).as_py())


def _contains(cells: pa.Array, words: Sequence[str]) -> bool:
    return bool(pc.any(pc.is_in(cells, pa.array(words, cells.type))).as_py())


def find_inactive_rows(frame: pd.DataFrame, columns: Collection[str]) -> tuple[Mask, Mask]:
    """Return two masks of a chunk's frame (texts): rows that one of these columns calls inactive, and other rows with a
    word that means neither active nor inactive."""
    is_inactive, is_unclear = np.zeros(len(frame), dtype=bool), np.zeros(len(frame), dtype=bool)
    for column in columns:
        words = pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(frame[column]))), "")
        if is_unsubscribed_header(column):
            is_inactive |= ~pc.is_in(words, pa.array(_NO, words.type)).to_numpy(zero_copy_only=False)
        else:
            meanings = translate(words, FLAGS)
            is_inactive |= pc.fill_null(pc.invert(meanings), False).to_numpy(zero_copy_only=False)
            is_unclear |= meanings.is_null().to_numpy(zero_copy_only=False)
    return is_inactive, is_unclear & ~is_inactive


def explain_consent(columns: Sequence[str]) -> Iterator[str]:
    """Yield a message for each unmapped column that says who wants no email."""
    for column in columns:
        yield (
            f"the column {column} says who wants no email, but nothing reads it, so people who have unsubscribed would "
            f"become active. Map it (--map is_active={shlex.quote(column)}; in a job `is_active`, as "
            f"`connector init` drafts it), or ignore it (--ignore {shlex.quote(column)}; in a job "
            f"`ignore: [{column}]`)"
        )
