"""Finds columns that say who wants no email, by their headers and cells, in eight languages.

If such a column is neither mapped nor ignored, a load is refused, because it would create unsubscribed people as
active.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.subscribers.checks import FLAGS, INACTIVE_WORDS, UNSUBSCRIBED_WORDS, YES_OR_NO, read_cells, translate
from connector.subscribers.identity import Mask
from connector.subscribers.rules import ColumnRule, FieldMapping, normalise_header, split_header

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
