"""Columns that say who wants no email: found by their headers and by their cells, in eight languages.

A load creates nobody while such a column is there and nothing reads it: the subscribers would be active, also those
who have unsubscribed.
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
    "unsub|optout|blocked$|optedout|donot(bulk)?e?mail|donotcontact|^no(mail|email|newsletter|marketing)|blacklist"
    "|blocklist|suppress|bounced|hardbounce|^deactivated|abgemeldet|abmeld|abbestell|widerruf|werbesperre|keinewerbung"
    "|keinnewsletter|ausgetragen|^deaktiviert|gesperrt"
    "|desabonn|desinscri|^baja$|dadodebaja|fechadebaja|fechabaja|desuscri|nomolestar|disiscri|descadastr|naoreceber"
    "|uitgeschreven|uitschrijf|afgemeld|wypisa|rezygnac"
)
_TOPIC = re.compile(
    "mail|newsletter|nieuwsbrief|infolettre|boletin|bollettino|marketing|campaign|kampagne|(?<!be|ge|er)werb|consent|einwilligung"
    "|permission|zgod|consens"
)
_REFUSED = re.compile(  # beside a topic
    "cancel|disabl|declin|refus|reject|revo[ck]|withdr[ae]w|exclu|abgelehnt|gekundigt|widerspr|oppos|annul|^stop|stop$"
)
_NEGATED = re.compile(  # words: do_not_allow_bulk_emails, Keine E-Mail, Ne pas envoyer
    r"(?<!yes )(?<!oui )(?<!sim )(?<!tak )(?<!si )(?<!ja )"  # of a header that names both answers
    r"\b(no|not|non|kein|keine|keinen|ohne|geen|niet|nie|brak|sin|sans|pas|plus|nao|senza|without)"
    r"( \w+){0,2}? (e mail|\w*mail|newsletter|nieuwsbrief|infolettre|boletin|bollettino|marketing|promo|werb|consent"
    r"|einwilligung|zgod|permission|contact|kontakt|contatt|envoyer|enviar|inviare|wysyla|send)"
)
_SUBSCRIBED = re.compile(
    "newsletter|optin|optedin|consent|permission|marketing|mailing|subscri|einwilligung|(?<!be|ge|er)werb|infolettre|infomail"
    "|rundmail|boletin|suscri|bollettino|nieuwsbrief|zgoda|abonniert|abonne|dsgvo|gdpr|rgpd|lgpd|wants?email"
    "|receives?email|emailallowed|contactable|^mailen$|^(is)?(active|aktiv|actif|activo|attivo|ativo|actief|aktywny)$"
)
_STATUS = re.compile("status|statut|estado|stato$|stan$")
_OTHER = re.compile("url|link|token|hash|doubleoptin")  # unsubscribe_url
_OTHER_CHANNEL = re.compile("sms|phone|whatsapp|calls?$|^call|calling")  # accepts_sms_marketing

_NO = ("", *(word for word, is_yes in YES_OR_NO.items() if not is_yes))
_WORDS_FOR_NO = tuple(word for word in _NO if len(word) > 1)  # a 0 or an N among other words may mean something else
_REFUSAL = rf"^({'|'.join(map(re.escape, (*UNSUBSCRIBED_WORDS, *_WORDS_FOR_NO)))})[^\pL\pN]"


def is_unsubscribed_header(column: str) -> bool:
    """Return whether a column's header alone says that the column holds who has unsubscribed."""
    header = normalise_header(column)
    if _is_other(header):
        return False
    if _UNSUBSCRIBED.search(header) or (_TOPIC.search(header) and _REFUSED.search(header)):
        return True
    return bool(_NEGATED.search(split_header(column)))


def _is_other(header: str) -> bool:
    """Return whether a header is about an address of a page, or about phones alone (`Email/SMS opt-out` is not)."""
    return bool(_OTHER.search(header) or (_OTHER_CHANNEL.search(header) and "email" not in header))


def build_consent_rule(column: str) -> ColumnRule:
    """Return the rule that makes is_active of a column, by the column's header.

    In a column of who has unsubscribed, any text but an empty one, a 0 or a no is inactive: also a date.
    """
    if not is_unsubscribed_header(column):
        return ColumnRule(column=column)
    name = f"row[{json.dumps(column, ensure_ascii=False)}]"
    return ColumnRule(template=f"{{{{ 'true' if {name} | trim | lower in {_NO!r} else 'false' }}}}")


def find_unread(mapping: FieldMapping, columns: Sequence[str], ignored: Collection[str]) -> list[str]:
    """Return the columns that neither is_active nor email is made of, without the ignored ones; none if nobody becomes
    active."""
    rule = mapping.rules.get("is_active")
    if rule is not None and rule.value == "false":
        return []
    email = mapping.rules.get("email")
    read = {*(rule.columns if rule else ()), *(email.columns if email else ())}
    return [column for column in columns if column not in read and column not in ignored]


def find_consent(frame: pd.DataFrame, mapping: FieldMapping, ignored: Collection[str]) -> list[str]:
    """Return the columns of a chunk's frame (texts) that say who wants no email, and that is_active is not made of."""
    rule = mapping.rules.get("is_active")
    is_said = rule is not None and bool(rule.columns)
    unread = find_unread(mapping, [str(column) for column in frame.columns], ignored)
    return [column for column in unread if _says_consent(column, frame[column], is_said=is_said)]


def _says_consent(column: str, cells: "pd.Series[str]", *, is_said: bool) -> bool:
    header = normalise_header(column)
    if _is_other(header):
        return False
    if is_unsubscribed_header(column):
        return True
    words = pc.utf8_lower(pc.utf8_trim_whitespace(read_cells(cells)))
    is_subscribed = bool(_SUBSCRIBED.search(header))
    if _contains(words, UNSUBSCRIBED_WORDS):
        return True
    if (is_subscribed or _STATUS.search(header)) and (_contains(words, INACTIVE_WORDS) or _begins_with_refusal(words)):
        return True
    if is_said or not is_subscribed:
        return False
    filled = words.filter(pc.fill_null(pc.not_equal(words, ""), False))
    is_each_known = len(filled) > 0 and bool(pc.all(pc.is_in(filled, pa.array(YES_OR_NO, words.type))).as_py())
    return is_each_known or _contains(words, _WORDS_FOR_NO)


def _begins_with_refusal(words: pa.Array) -> bool:
    """Return whether a cell is such as `Opted out (by contact)`, `Unsubscribed by customer` or `Nein, danke`."""
    return bool(pc.any(pc.match_substring_regex(words, _REFUSAL)).as_py())


def _contains(cells: pa.Array, words: Sequence[str]) -> bool:
    return bool(pc.any(pc.is_in(cells, pa.array(words, cells.type))).as_py())


def read_activity(frame: pd.DataFrame, columns: Collection[str]) -> tuple[Mask, Mask]:
    """Return which rows of a chunk's frame (texts) one of these columns calls inactive, and which rows have a word that
    means neither active nor inactive."""
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
    """Yield, for each column that says who wants no email and that nothing reads, what to do."""
    for column in columns:
        yield (
            f"the column {column} says who wants no email, but nothing reads it, so people who have unsubscribed would "
            f"become active. Map it (--map is_active={shlex.quote(column)}; in a job `is_active`, as "
            f"`connector init` drafts it), or ignore it (--ignore {shlex.quote(column)}; in a job "
            f"`ignore: [{column}]`)"
        )
