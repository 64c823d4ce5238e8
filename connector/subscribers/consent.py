"""Finds consent columns, which show whether a person wants email, and reads is_active from their cells."""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.subscribers.checks import (
    CANCELLED_WORDS,
    DASHES,
    INACTIVE_WORDS,
    IS_ACTIVE_BY_WORD,
    IS_YES_BY_WORD,
    NA_TEXT,
    NULL_TEXTS,
    UNSUBSCRIBED_WORDS,
    ZERO_DATES,
    read_cells,
    translate_cells,
)
from connector.subscribers.identity import Mask
from connector.subscribers.rules import ColumnRule, FieldMapping, normalise_header, separate_words

ACTIVE_HEADERS = (
    "is_active", "Accepts Email Marketing", "Accepts Marketing",  # Shopify, new and old
    "opted_in", "is_subscribed", "Subscribed", "accepts_emails", "email_opt_in", "email_consent", "newsletter_opt_in",
    "Newsletter_Einwilligung", "Angemeldet", "Inscrit", "Abonné", "Suscrito", "Iscritto", "Inscrito", "Ingeschreven",
    "Zapisany",
)  # fmt: skip
"""Headers of columns that are mapped to is_active, because they ask whether the person wants emails. A header that
means an opt-out, or the name of a list, is not here."""


# This pattern is searched in headers that `normalise_header` has simplified.
_UNSUBSCRIBED_HEADER_PATTERN = re.compile(
    "unsub|optout|^bounced|markedasspam|reportedspam|excludedfrom(all)?(campaign|mail|email|newsletter|marketing)|complained|spamcomplaint|optedout|donotemail|donotmail|donotbulk|donotcontact|^(is|has)?noe?mail|blacklist|blocklist"
    "|suppress|hardbounce|abgemeldet|abmeld|abbestell|widerruf|werbesperre|keinewerbung|keinnewsletter|ausgetragen"
    "|desabonn|desinscri|dadodebaja|fechadebaja|fechabaja|desuscri|nomolestar|disiscri|descadastr|naoreceber"
    "|uitgeschreven|uitschrijf|afgemeld|wypisa|rezygnac|^baja$|werbeverbot|robinsonlist|kontaktsperre|^emailstop$"
    "|^clean(ed)?(time|date|at|on)$"  # Mailchimp: the time of a bounce
)
_CLOSED_RECORD_HEADER_PATTERN = re.compile(
    # Columns that show whether or when a record was deleted or blocked, or the person died. Examples of their headers:
    # is_deleted, Gelöscht am, removed_at.
    "^(is|was|ist|esta|date|datum|record|contact|user|customer|account|member|subscriber|kontakt|kunde)?"
    "(deleted|delete|deletion|geloscht|losch|supprimee?|eliminad[oa]|borrad[oa]|excluid[oa]|eliminat[oa]|cancellat[oa]"
    "|verwijderd|usuniet[ya]|removed|removal|entfernt|trashed|archived|archiviert|banned|suspended"
    "|blocked|gesperrt|sperr|bloquead[oa]|bloccat[oa]|geblokkeerd|zablokowan[ya]"
    "|inacti[fv][eoa]?|inactief|inaktiv|inatt?iv[oa]|nieaktywn[ya]|deactivated|deactivation|deaktiviert"
    "|deceased|verstorben|decedee?|fallecid[oa]|decedut[oa]|falecid[oa]|overleden|zmarl[ya])"
    "(at|on|since|date|time|datetime|timestamp|flag|am|seit|datum|vermerk|kennzeichen|le|depuis|el|desde|il|dal|em|op"
    "|sinds|dnia|od)?$"
    "|^(dateofdeath|deathdate|sterbedatum|todesdatum|datededeces)$"
    "|^(is)?(email)?onhold$|^(is)?e?mail(blocked|gesperrt|blockiert)$|^(is)?unmailable$|^(is)?dnc$"
    "|^(is)?e?mailbounced(date|reason)?$|^(email)?(undeliverable|unzustellbar)$|^(is)?invalidemail(address)?$|^emailinvalid$"
    "|^(opposition|widerspruch|opposizione|oposicion|oposicao|bezwaar|sprzeciw)$"
)
_INACTIVE_HEADER_PATTERN = re.compile("inact|inakt|inatt?iv|nieaktyw|deactivated|deaktiviert")
_NEWSLETTER_WORD_PATTERN = (
    "newsletter|nieuwsbrie|infolettre|boletin|bollettin|mailing|marketing|(?<!be|ge|er)werb|consent|einwilligung|zgod"
    "|consens"
)
_MAIL_PATTERN = re.compile("mail|correo|courriel")
_REFUSAL_PATTERN = re.compile(  # counts only in a header with a word for newsletter or mail: `Refus newsletter`
    "refus|declin|revo[ck]|withdr[ae]w|exclud|ausgeschl|abgelehnt|abgewahlt|widerspr|oppos|disabl|deaktiv|desactiv"
    "|disattiv|sperre|rifiut|rechaz|recus|geweiger|odmow|sprzeciw|^stop"
)
# These words count only in a header with a word for newsletter. Next to "mail", "cancel" may have another meaning.
_ENDED_CONSENT_PATTERN = re.compile("cancel|gekundigt|denied|reject|resili|annul|opgezegd|stop$")

# These patterns are searched in headers whose words `separate_words` has separated.
_MAIL_NOUNS = (
    rf"(\w*mail\w*|correos?|courriels?|\w*({_NEWSLETTER_WORD_PATTERN})\w*|reclame|publicidade?|publicite|pubblicita"
    r"|reklam\w*|promo\w*)\b"
)
_MAIL_VERBS = (
    r"(send\w*|subscri\w*|contact(|ed|able|ar|er)|kontakt\w*|anschreiben|angemeldet|abonn\w*|aangemeld|envoyer|recevoir"
    r"|inscri\w*|enviar|recibir|suscri\w*|inviare|ricevere|contattare|iscri\w*|receber|wysyla\w*|otrzymywa\w*|zapisan\w*"
    r"|versturen|ontvangen)\b"
)
_NEGATED_HEADER_PATTERN = re.compile(
    # These words are searched only at the beginning of a header.
    # In the middle or at the end, `no` may mean a number (Mail No), or "in the" in Portuguese.
    rf"^no (?!of |de |du )(\w+ ){{0,2}}{_MAIL_NOUNS}"
    rf"|^(sin|sans|sem|senza|without|ohne|bez|brak|niente|pas|aucune?|nessuna?|zero) (\w+ )?{_MAIL_NOUNS}"
    rf"|^(not|non|nao|nie|ne pas|ne plus) ({_MAIL_NOUNS}|{_MAIL_VERBS})"
    rf"|\b(do not(?! modify)|does not|don t|doesn t|dont|kein\w*|nicht|geen|niet|ne \w+ (pas|plus)|nie chce"
    r"|no (quier|dese|acept)\w*|nao (quer|dese|aceit)\w*|non (vuole|voglio|desider|accett)\w*)"
    rf" (\w+ ){{0,3}}({_MAIL_NOUNS}|{_MAIL_VERBS})"
    r"|\bno (enviar|contactar|recibir|suscri\w*|subscri\w*)\b"
)
# A header such as `Newsletter ja/nein` names both answers, yes and no. So the word `nein` does not negate this header.
_YES_WORD_PATTERN = re.compile(r"\b(yes|ja|oui|si|sim|tak)\b")
_SUBSCRIBED_HEADER_PATTERN = re.compile(
    "^(accepts?(?!ance)|wants?|receives?(?!d)|can|may|acepta|quiere|desea|accetta|vuole|aceita|quer|deseja|souhaite|accepte|mochte"
    "|will|wunscht|darf|wil|mag|chce).*(mail|correo|courriel|news|(?<!be|ge|er)werb|publici|pubblici)"
    "|^e?mailable$|mailwerbung|^werbung(erlaubt|erwunscht|janein)?$|mail(s|ing)?(allowed|erlaubt)|gdpr|dsgvo|rgpd|lgpd"
    "|newsletter|optin|optedin|consent|permission|marketing|mailing|subscribed|einwilligung|werbeerlaubnis|infolettre"
    "|boletin|suscri|bollettino|nieuwsbrief|zgoda|abonniert|abonne|^abo$|^(is|e?mail)?subscri(be|bes|ber|ption)$"
    "|rundbrief|infobrief|infomail|rundmail|mitgliederbrief|^news$|zustimmung|einverstand|toestemming"
    "|^accord|^avg$|^rodo|marketable|contactable|(may|can|okto)contact|kontakterlaubt|contactallowed|mailok$|^okto.*mail"
    "|mail(notification|update|alert|preference)s?$|^sendme|^send(e?mails?|updates|offers)$"
    "|^promotions?$|^(receive|special|promotional|e?mail)?offers$"
    "|keepmeupdated|hearfromus|(keep|stay)(me)?intouch"
    "|(want|wish|wouldlike|agree|accept|receive|recevoir|recibir|ricevere|receber|ontvangen|otrzymywa|erhalten|empfangen)"
    "(?!d|ed|ment|ance).*(mail|news|offers|updates|angebot|correo|courriel)"
)
_NORMALISED_HEADERS_OF_IS_ACTIVE = frozenset({
    *(normalise_header(header) for header in ACTIVE_HEADERS),
    "active", "aktiv", "actif", "activo", "attivo", "ativo", "actief", "aktywny",
})  # fmt: skip
# Headers of columns that may show who is active. Such a column counts only if all its cells are words for yes and no,
# or if some cells are `active` and other cells mean cancelled. The header user_status is not in this list, because
# WordPress writes 0 for every user.
_POSSIBLE_ACTIVITY_HEADERS = frozenset(
    {"status", "contactstatus", "accountstatus", "subscriberstatus", "enabled", "isenabled"}
)
_STATUS_HEADER_PATTERN = re.compile(
    "status|statut|estado|stato$|stan$|^(email|list|user|contact|account|member|subscriber|subscription)state$"
)
# Words of headers for the status of an order or of a payment. Orders and payments may also be `pending` or `archived`.
_ORDER_HEADER_PATTERN = re.compile(
    r"\b(order|payment|financial|fulfil|shipping|shipment|invoice|refund|bestell|zahlung|rechnung|versand|liefer"
    r"|commande|paiement|livraison|facture|pedido|pago|envio|factura|ordin|pagament|spedizion|fattura|encomenda|fatura"
    r"|betaling|factuur|zamowien|platnos|faktur)"
)
_URL_OR_TOKEN_PATTERN = re.compile("url|link|token|hash|doubleoptin")  # for example unsubscribe_url
_PHONE_CHANNEL_PATTERN = re.compile("sms|phone|whatsapp|call|mobile|textmessage")  # for example accepts_sms_marketing

# The beginning of a cell such as `Opted out (by contact)` or `Unsubscribed by customer`.
_REFUSAL_TEXT_PATTERN = rf"^({'|'.join(map(re.escape, UNSUBSCRIBED_WORDS))})[^\pL\pN]"
# In a column about unsubscribing, these texts mean that the person has not unsubscribed. For example, Dynamics 365
# writes `Allow` or `Do Not Allow` into the column `Do not allow Emails`. Other programs write `Subscribed` or
# `Unsubscribed`.
_WORDS_FOR_NO = (
    "", "[]", "allow", "subscribed", "opted in", "opted_in", "opted-in", "opt in", "opt-in",
    *(word for word, is_yes in IS_YES_BY_WORD.items() if not is_yes),
)  # fmt: skip
_MISSING_VALUE_WORDS = tuple(dict.fromkeys(word.lower() for word in (*NULL_TEXTS, NA_TEXT, *DASHES, *ZERO_DATES)))
# In a column of reasons, `N/A` or `None` may mean that a person has unsubscribed without a reason.
_REASON_HEADER_PATTERN = re.compile("reason|grund|motiv|raison|razon|reden|powod")


def is_unsubscribed_header(column: str) -> bool:
    """Return whether the header means that the cells of this column show who has unsubscribed."""
    header = normalise_header(column)
    if _is_unrelated_header(header):
        return False
    if _UNSUBSCRIBED_HEADER_PATTERN.search(header) or _CLOSED_RECORD_HEADER_PATTERN.search(header):
        return True
    has_newsletter_word = re.search(_NEWSLETTER_WORD_PATTERN, header) is not None
    if (has_newsletter_word or _MAIL_PATTERN.search(header)) and _REFUSAL_PATTERN.search(header):
        return True
    header_words = separate_words(column)
    return (has_newsletter_word and bool(_ENDED_CONSENT_PATTERN.search(header))) or bool(
        _NEGATED_HEADER_PATTERN.search(header_words) and not _YES_WORD_PATTERN.search(header_words)
    )


def _is_unrelated_header(header: str) -> bool:
    """Return whether a header is about a URL or token, or about phones but not about emails. `Email/SMS opt-out` is
    also about emails."""
    return bool(
        _URL_OR_TOKEN_PATTERN.search(header) or (_PHONE_CHANNEL_PATTERN.search(header) and "mail" not in header)
    )


def build_consent_rule(*columns: str) -> ColumnRule:
    """Return the rule that reads is_active from one or more consent columns. The header of a column decides how its
    cells are read.

    If the header means unsubscribed people, a filled cell means inactive, for example a cell with a date. Exceptions
    are texts such as 0, no or Allow (`_WORDS_FOR_NO`), and words for a missing value (NULL). If such a header asks
    for a reason (`Unsubscribe reason`), a word for a missing value also means inactive.

    In a column with another header, the words of is_active are used. A person is active only if all columns mean
    active.
    """
    other_columns = [column for column in columns if not is_unsubscribed_header(column)]
    if len(columns) == len(other_columns) == 1:
        return ColumnRule(column=columns[0])
    words_by_column = {column: _list_words_for_active(column) for column in columns}
    name_by_words = {
        words: f"active_words{number}" for number, words in enumerate(dict.fromkeys(words_by_column.values()), 1)
    }
    cell_by_column = {column: f"row[{json.dumps(column, ensure_ascii=False)}]" for column in columns}
    condition_by_column = {
        column: f"{cell_by_column[column]} | trim | lower in {name_by_words[words]}"
        for column, words in words_by_column.items()
    }
    # The template returns the first cell of `other_columns` that does not mean active. So an unknown word is invalid.
    expression = "'true'"
    for column in reversed(other_columns):
        expression = f"({expression} if {condition_by_column[column]} else {cell_by_column[column]})"
    conditions = [condition for column, condition in condition_by_column.items() if column not in other_columns]
    if conditions:
        expression = f"{expression} if {' and '.join(conditions)} else 'false'"
    set_statements = "".join(f"{{% set {name} = {words!r} %}}" for words, name in name_by_words.items())
    return ColumnRule(template=f"{set_statements}{{{{ {expression} }}}}")


def _list_words_for_active(column: str) -> tuple[str, ...]:
    """Return the texts that mean active in a consent column. In a column about unsubscribing, all other texts mean
    inactive."""
    if not is_unsubscribed_header(column):
        return tuple(_select_words(IS_ACTIVE_BY_WORD, True))
    has_reasons = _REASON_HEADER_PATTERN.search(normalise_header(column)) is not None
    return _WORDS_FOR_NO if has_reasons else (*_WORDS_FOR_NO, *_MISSING_VALUE_WORDS)


def find_consent_columns(frame: pd.DataFrame, mapping: FieldMapping, ignored_columns: Collection[str]) -> list[str]:
    """Return the consent columns of a chunk's frame (texts), except ignored columns and columns that the rules of
    is_active and email read. If is_active is false for all rows, return no columns."""
    activity_rule = mapping.rules.get("is_active")
    if activity_rule is not None and activity_rule.value == "false":
        return []
    rules = (activity_rule, mapping.rules.get("email"))
    skipped_columns = {*ignored_columns, *(column for rule in rules if rule is not None for column in rule.columns)}
    # A column of unsubscribed people does not show who has agreed to receive email.
    has_activity_column = activity_rule is not None and not all(map(is_unsubscribed_header, activity_rule.columns))
    return [
        column
        for column in map(str, frame.columns)
        if column not in skipped_columns
        and _is_consent_column(column, frame[column], has_activity_column=has_activity_column)
    ]


def _is_consent_column(column: str, cells: "pd.Series[str]", *, has_activity_column: bool) -> bool:
    """Return whether a column is a consent column. `has_activity_column` is true if is_active is mapped to another
    column with a header that does not mean unsubscribed people."""
    header = normalise_header(column)
    if _is_unrelated_header(header) or (has_activity_column and _INACTIVE_HEADER_PATTERN.search(header)):
        return False
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(cells)))
    if _CLOSED_RECORD_HEADER_PATTERN.search(header):
        # Many sources have a column about closed records, for example is_deleted. It is a consent column only if a cell
        # means inactive.
        return bool(
            pc.any(pc.invert(pc.is_in(texts.drop_null(), pa.array(_list_words_for_active(column), texts.type)))).as_py()
        )
    if is_unsubscribed_header(column):
        return True
    is_subscribed_header = _SUBSCRIBED_HEADER_PATTERN.search(header) is not None
    if _contains_word(texts, UNSUBSCRIBED_WORDS):
        return True
    # `State` is a consent column only if all cells are words for active or inactive. Otherwise it is a region.
    if header == "state" and _contains_only(texts, IS_ACTIVE_BY_WORD.keys() - IS_YES_BY_WORD.keys()):
        return True
    is_status_header = _STATUS_HEADER_PATTERN.search(header) and not _ORDER_HEADER_PATTERN.search(
        separate_words(column)
    )
    if (is_subscribed_header or is_status_header) and (
        _contains_word(texts, INACTIVE_WORDS) or pc.any(pc.match_substring_regex(texts, _REFUSAL_TEXT_PATTERN)).as_py()
    ):
        return True
    if (
        header in _POSSIBLE_ACTIVITY_HEADERS
        and _contains_word(texts, CANCELLED_WORDS)
        and _contains_word(texts, ["active"])
    ):
        return True
    if has_activity_column:
        return False
    if header in _NORMALISED_HEADERS_OF_IS_ACTIVE and _contains_word(texts, _select_words(IS_ACTIVE_BY_WORD, False)):
        return True
    if (
        header in _POSSIBLE_ACTIVITY_HEADERS
        and _contains_only(texts, IS_YES_BY_WORD)
        and _contains_word(texts, _select_words(IS_YES_BY_WORD, False))
    ):
        return True
    if not is_subscribed_header:
        return False
    if _contains_only(texts, IS_YES_BY_WORD):
        return True
    # The first word of each cell, for example "nein" of "nein, danke".
    first_words = pc.struct_field(pc.extract_regex(texts, r"^(?P<word>\pL{2,})"), "word")
    return all(_contains_word(first_words, _select_words(IS_YES_BY_WORD, is_yes)) for is_yes in (True, False))


def _select_words(meaning_by_word: Mapping[str, bool], meaning: bool) -> list[str]:
    """Return the words with this meaning."""
    return [word for word in meaning_by_word if meaning_by_word[word] is meaning]


def _contains_word(cells: pa.Array, words: Sequence[str]) -> bool:
    return bool(pc.any(pc.is_in(cells, pa.array(words, cells.type))).as_py())


def _contains_only(cells: pa.Array, words: Collection[str]) -> bool:
    """Return whether at least one cell is filled, and every filled cell is one of these words."""
    filled_cells = cells.filter(pc.fill_null(pc.not_equal(cells, ""), False))
    return len(filled_cells) > 0 and bool(pc.all(pc.is_in(filled_cells, pa.array(list(words), cells.type))).as_py())


def find_inactive_rows(frame: pd.DataFrame, columns: Collection[str]) -> tuple[Mask, Mask]:
    """Return two masks of a chunk's frame (texts). The first mask has the rows that any of these columns shows as
    inactive. The second mask has the other rows with an empty cell or an unknown word, except in columns about
    unsubscribing."""
    inactive_mask, unclear_mask = np.zeros(len(frame), dtype=bool), np.zeros(len(frame), dtype=bool)
    for column in columns:
        texts = pc.fill_null(pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(frame[column]))), "")
        if is_unsubscribed_header(column):
            inactive_mask |= ~pc.is_in(texts, pa.array(_list_words_for_active(column), texts.type)).to_numpy(
                zero_copy_only=False
            )
        else:
            active_flags = translate_cells(texts, IS_ACTIVE_BY_WORD)
            inactive_mask |= pc.fill_null(pc.invert(active_flags), False).to_numpy(zero_copy_only=False)
            unclear_mask |= active_flags.is_null().to_numpy(zero_copy_only=False)
    return inactive_mask, unclear_mask & ~inactive_mask


def explain_consent(columns: Sequence[str]) -> Iterator[str]:
    """Yield a message for each of `columns`, which are consent columns that no field reads."""
    for column in columns:
        yield (
            f"the column {column} shows who wants no email, but no field reads the column, so people who have "
            f"unsubscribed would become active. Map the column (--map is_active={shlex.quote(column)}; in a job the "
            "key `is_active`, which `connector init` drafts for all such columns), or ignore the column "
            f"(--ignore {shlex.quote(column)}; in a job `ignore: [{column}]`)"
        )
