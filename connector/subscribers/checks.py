"""Checks and readers of whole columns of texts, dates, email addresses, words and zip codes.

A check returns, for each text of an Arrow array, whether the text may be sent. A reader returns the value of each text.
For a null, a check returns null or true.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from functools import cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

# Columns as arrays

TEXT = pd.StringDtype(na_value=np.nan)
"""The type of every text column: `str` of pandas."""

TAGS = pd.ArrowDtype(pa.list_(pa.string()))
"""The type of a column of tags: a list of texts in each cell."""


def find_pandas_type(arrow_type: pa.DataType) -> pd.api.extensions.ExtensionDtype:
    """Return the type of a pandas column with the values of an Arrow column."""
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        return TEXT
    if pa.types.is_int64(arrow_type):
        return pd.Int64Dtype()
    return pd.BooleanDtype() if pa.types.is_boolean(arrow_type) else pd.ArrowDtype(arrow_type)


def normalize_texts(cells: pa.Array, normal_form: Literal["NFC", "NFKC"]) -> pa.Array:
    """Return the texts in a normal form of Unicode. Arrow's own `utf8_normalize` does not compose letters before
    version 26."""
    if pc.all(pc.string_is_ascii(cells)).as_py() is not False:
        return cells
    return convert_distinct_texts(cells, partial(unicodedata.normalize, normal_form))


def read_cells(column: pd.Series) -> pa.Array:
    """Return a text column as one large_string array, and a column of tags as one list<string> array."""
    cells = pa.array(column, type=None if column.dtype == TAGS else pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def convert_distinct_texts(cells: pa.Array, convert: Callable[[str], str | None]) -> pa.Array:
    """Return the result of `convert` for each text, and null for null. Equal texts are converted once."""
    encoded_cells = cells.dictionary_encode()
    return pa.array(map(convert, encoded_cells.dictionary.to_pylist()), pa.large_string()).take(encoded_cells.indices)


def view_bytes(cells: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts of a large_string array in one array, without a copy."""
    _, offset_buffer, text_buffer = cells.buffers()
    if text_buffer is None or not len(cells):
        return np.empty(0, dtype=np.uint8)
    text_offsets = np.frombuffer(offset_buffer, dtype=np.int64)
    return np.frombuffer(text_buffer, dtype=np.uint8)[
        text_offsets[cells.offset] : text_offsets[cells.offset + len(cells)]
    ]


def contains_any_character(cells: pa.Array, characters: bytes) -> bool:
    """Return whether any text of a large_string array has one of the ASCII `characters`.

    This test is much faster than a regular expression. Nearly all columns have none of the characters, and then need no
    regular expression.
    """
    return bool(_build_byte_mask(characters)[view_bytes(cells)].any())


@cache
def _build_byte_mask(characters: bytes) -> npt.NDArray[np.bool_]:
    byte_mask = np.zeros(256, dtype=bool)
    byte_mask[list(characters)] = True
    return byte_mask


def _mark_all_valid(cells: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(True), len(cells))


def mark_not_matching(cells: pa.Array, pattern: str, characters: bytes = b"") -> pa.Array:
    """Return a boolean for each text: false if the text matches a regular expression, else true. To save
    time, pass `characters` if every matching text has at least one of them. An array that has none of these characters
    is then not searched."""
    if characters and not contains_any_character(cells, characters):
        return _mark_all_valid(cells)
    return pc.invert(pc.match_substring_regex(cells, pattern))


def _mark_texts_not_in(cells: pa.Array, excluded_texts: list[str]) -> pa.Array:
    return pc.invert(pc.is_in(cells, pa.array(excluded_texts, cells.type)))


# Texts

CONTROL_CHARACTER_PATTERN = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"
CONTROL_CHARACTERS = bytes(code for code in range(32) if code not in b"\t\n\r")
"""The ASCII control characters except tabs and line ends. Control characters break terminals and CSV readers."""

LARGEST_TEXT_LENGTH = 10_000
"""The largest number of characters of a text, and of all tags of a row together. service-api.md gives no limit. A long
note has 5,000 characters. If a quote is never closed, one text contains many rows of the file, and is longer than the
limit."""


def mark_short_texts(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: true if the text has at most `LARGEST_TEXT_LENGTH` characters. For a list of
    tags, the characters of all tags are counted."""
    texts = pc.binary_join(cells, "") if pa.types.is_list(cells.type) else cells
    # A text has at most as many characters as bytes.
    if (pc.max(pc.binary_length(texts)).as_py() or 0) <= LARGEST_TEXT_LENGTH:
        return _mark_all_valid(texts)
    return pc.less_equal(pc.utf8_length(texts), LARGEST_TEXT_LENGTH)


def mark_valid_lists(lists: pa.Array, mark_valid_texts: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return a boolean for each list: true if all its tags pass the check `mark_valid_texts`."""
    failed_indices = pc.list_parent_indices(lists).filter(
        pc.invert(mark_valid_texts(lists.flatten().cast(pa.large_string())))
    )
    return pc.invert(pc.is_in(pa.array(range(len(lists)), failed_indices.type), failed_indices))


SPOILED_NUMBER_PATTERN = (
    r"^([+-]?[0-9]([.,][0-9]+[eE][+-]?|[eE][+-])[0-9]{1,3}|[+-]?[0-9]{1,3}(,[0-9]{3})+(\.0+)?"
    r"|(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]00:00(:00)?)?)$"
)
"""The pattern of a number as spreadsheets show it (`4.9E+11`, `1,234`) or as Java writes it (`4.91512E11`). The pattern
also matches a date that a spreadsheet made from a number. A text such as `12e4` does not match, because it may be an
id."""

SPOILED_NUMBER_CHARACTERS = b"eE,-"
"""A text that matches SPOILED_NUMBER_PATTERN has at least one of these characters."""

SPOILED_NAME_PATTERN = r"^(true|false|TRUE|FALSE|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+)?)$"
"""The pattern of a boolean or a date as programs write them. `True` does not match, because it may be a name."""

DECIMAL_ID_PATTERN = r"^[0-9]+\.0+$"
NEEDLESS_DECIMALS_MESSAGE = (
    "has needless decimals (1001.0), as pandas writes the ids of a column with missing values: write whole "
    'numbers, or in a job a template such as {{ id | replace(".0", "") }}'
)


_PROGRAM_CODE_PATTERNS = (
    r"\\u[0-9a-fA-F]{4}", r"\\x[0-9a-fA-F]{2}",  # Python, JSON
    r"^(array|Series|Index)\(\[", r"^\[ *-?[0-9.]+( +-?[0-9.]+)+ *\]$",  # NumPy and pandas
    r"=\?[A-Za-z0-9-]+\?[BbQq]\?[^?]*\?=", r"=[C-F][0-9A-F]=[89AB][0-9A-F]",  # texts as mail programs encode them
    r"%2[07B]|%40|%[C-F][0-9A-F]%[89AB][0-9A-F]",  # texts as URLs encode them
    r'^[aO]:[0-9]+:[{"]', r"\[object [A-Z][A-Za-z]*\]", r"^System\.[A-Za-z.]+\[\]$",  # PHP, JavaScript, .NET
    r"_x[0-9A-F]{4}_",  # a control character as Excel writes it
    r"^=[A-Za-z.]+\(.*\)$", r"^=[A-Z]{1,3}[0-9]{1,7}([-+*/&].*)?$",  # formulas of Excel
    r"^\{\{.*\}\}$", r"^\$\{.*\}$", r"^\*\|.*\|\*$",  # placeholders of templates
)  # fmt: skip
_PROGRAM_CODE_PATTERN = "|".join(f"(?:{code})" for code in _PROGRAM_CODE_PATTERNS)
_PROGRAM_CODE_CHARACTERS = b"\\=%{[_|"
# Texts that a program wrote by mistake: bytes of Python, an array of PHP, and an unfinished cell of Google Sheets.
_PLACEHOLDER_PATTERN = r"""^(b'.*'|b".*"|Array|Loading\.\.\.)$"""


def mark_texts_without_program_code(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: false if the text contains code of a program, such as the escape in
    `M\\u00fcller` or the formula `=PROPER(B2)`."""
    return pc.and_(
        mark_not_matching(cells, _PLACEHOLDER_PATTERN),
        mark_not_matching(cells, _PROGRAM_CODE_PATTERN, _PROGRAM_CODE_CHARACTERS),
    )


SPREADSHEET_ERROR_PATTERN = (
    r"^#("
    r"[¡¿]?(REF|NAME|VALUE|DIV/0|NULL|NUM|SPILL|CALC|FIELD|BLOCKED|CONNECT|UNKNOWN|BUSY|PYTHON|ERROR"
    r"|BEZUG|WERT|ZAHL|ÜBERLAUF|KALK|FELD|VALEUR|NOM|NOMBRE|NUL|PROPAGATION|VALOR|NULO|DESBORDAMIENTO|CÁLC"
    r"|RIF|NOME|VALORE|NULLO|ESPANSIONE|NÚM|DESPEJAR|WAARDE|VERW|NAAM|GETAL|LEEG|OVERLOOP"
    r"|ADR|ARG|NAZWA|LICZBA|ZERO|DZIEL/0|ROZLANIE)[!?]"
    r"|#+)$"
)
"""The pattern of the errors that Excel, LibreOffice and Google Sheets show in eight languages, and of `####`. The
mapping reads `#N/A` as a missing value. Other texts of this form, such as `#VIP!`, are not errors."""


# Programs write U+FFFD for an undecodable byte. C1 control characters show that the text was read in a wrong encoding.
_LOST_LETTER_PATTERN = r"[\x{80}-\x{9f}\x{fffd}]"
_MISREAD_LETTERS_PATTERN = r"[ÂÃâÄÅÐÑ][\x{80}-\x{bf}\x{152}-\x{192}\x{2c6}-\x{2122}]"


def mark_well_decoded(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: false if a letter was lost or misread. `Zo\ufffd` has lost a letter. `MÃ¼ller` is
    UTF-8 that was read in a Windows encoding: in no language does `¼` follow `Ã`."""
    if pc.all(pc.string_is_ascii(cells)).as_py() is not False:
        return _mark_all_valid(cells)
    suspect_texts = pc.unique(cells.filter(pc.match_substring_regex(cells, _MISREAD_LETTERS_PATTERN))).to_pylist()
    misread_texts = []
    for text in suspect_texts:
        with suppress(UnicodeError):
            text.encode("cp1252").decode("utf-8")
            misread_texts.append(text)
    return pc.and_(mark_not_matching(cells, _LOST_LETTER_PATTERN), _mark_texts_not_in(cells, misread_texts))


def mark_texts_other_than_lists_and_objects(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: false if the text is a list or an object in JSON, else true."""
    suspect_texts = pc.unique(cells.filter(pc.match_substring_regex(cells, r"^(\[.*\]|\{.*\})$"))).to_pylist()
    json_texts = []
    for text in suspect_texts:
        with suppress(orjson.JSONDecodeError):
            orjson.loads(text)
            json_texts.append(text)
    return _mark_texts_not_in(cells, json_texts)


# Dates

_FIRST_YEAR = 1900  # an earlier date is the default of a program, not the birthday of a living person

YEARLESS_PATTERN = r"^--[0-9]{2}-?[0-9]{2}$"
"""The pattern of a day without a year, as address books write it: `--05-12` or `--0512` (ISO 8601:2000)."""

_DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_DATE_LENGTH = 10
_DIGIT_WEIGHTS = np.array([1000, 100, 10, 1])
_DAYS_BY_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def mark_dates(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: true if the text is an existing date in the form YYYY-MM-DD."""
    date_form_mask = pc.fill_null(pc.match_substring_regex(cells, _DATE_PATTERN), False)
    digits = view_bytes(cells.filter(date_form_mask)).reshape(-1, _DATE_LENGTH).astype(np.int64) - ord("0")
    years = digits[:, :4] @ _DIGIT_WEIGHTS
    months, days = digits[:, 5:7] @ _DIGIT_WEIGHTS[2:], digits[:, 8:] @ _DIGIT_WEIGHTS[2:]
    leap_year_mask = (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))
    month_mask = (months >= 1) & (months <= 12)
    last_days = _DAYS_BY_MONTH[np.where(month_mask, months, 0)] + ((months == 2) & leap_year_mask)
    date_mask = date_form_mask.to_numpy(zero_copy_only=False).copy()
    date_mask[date_mask] = month_mask & (days >= 1) & (days <= last_days) & (years >= 1)
    return pc.if_else(pc.is_valid(cells), pa.array(date_mask), None)


def mark_plausible_birthdays(cells: pa.Array, today: date) -> pa.Array:
    """Return a boolean for each text: false if the text is a date before 1900 or after `today`."""
    too_early_mask = pc.less(cells, f"{_FIRST_YEAR:04}")  # dates in this form can be compared as texts
    future_mask = pc.greater(cells, today.isoformat())
    return pc.or_(pc.invert(mark_dates(cells)), pc.invert(pc.or_(too_early_mask, future_mask)))


# Email addresses

_PLAIN_ADDRESS_PATTERN = (
    r"^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*"
    r"@([A-Za-z0-9]+(-[A-Za-z0-9]+)*\.)+[A-Za-z]{2,}$"  # without two hyphens in a row, which may mean Punycode
)
# RFC 5321 allows 64 characters before the @, and more for a whole address.
# So no part of an address is too long if the whole address has at most 64 characters. email-validator checks longer
# addresses.
_MAX_LENGTH_FOR_FAST_CHECK = 64
# email-validator refuses these special-use domains.
_SPECIAL_DOMAIN_PATTERN = r"(?i)\.(arpa|invalid|local|localhost|onion)$"
# Only texts that match are passed to email-validator, because email-validator would accept the address `a@test`.
_DOMAIN_OTHER_THAN_TEST_PATTERN = re.compile(r"@(?!test$)", re.IGNORECASE)


def mark_emails(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: true if the text is an email address. Domains in `.test` are allowed for
    trials (RFC 6761).

    A regular expression accepts plain addresses, and the package `email-validator` checks all other texts.
    """
    plain_address_mask = pc.and_(
        pc.match_substring_regex(cells, _PLAIN_ADDRESS_PATTERN),
        pc.less_equal(pc.binary_length(cells), _MAX_LENGTH_FOR_FAST_CHECK),
    )
    plain_address_mask = pc.and_not(plain_address_mask, pc.match_substring_regex(cells, _SPECIAL_DOMAIN_PATTERN))
    suspect_texts = [
        text
        for text in pc.unique(cells.filter(pc.invert(plain_address_mask))).to_pylist()
        if text and _DOMAIN_OTHER_THAN_TEST_PATTERN.search(text)
    ]
    if not suspect_texts:
        return plain_address_mask
    # Imported here, because most sources have only plain addresses, which do not need this package.
    from email_validator import EmailNotValidError, validate_email

    valid_addresses = []
    for text in suspect_texts:
        with suppress(EmailNotValidError):
            validate_email(text, check_deliverability=False, allow_smtputf8=True, test_environment=True, strict=True)
            valid_addresses.append(text)
    return pc.if_else(
        pc.is_valid(cells), pc.or_(plain_address_mask, pc.is_in(cells, pa.array(valid_addresses, cells.type))), None
    )


# Words and zips

NULL_TEXTS = (
    "NULL", "null", "(null)", "[null]", "<null>", "None", "NaN", "nan", "NaT", "<NA>", "N/A", "n/a", "#N/A", "#NV",
    "#N/D", "#N/D!", "#N/B", "#N/DISP", "\\N", "undefined",
)  # fmt: skip
"""Words that programs write for a missing value. `Null`, `Nan` and `NA` are not here, because they may be names."""

NA_TEXT = "NA"
"""The word that R writes for a missing value. It may also be a name, and it is the code of Namibia."""

DASHES = ("-", "--", "---", "–", "—")
EMPTY_MARKS = (*DASHES, ".", "?")
"""Marks that people write for a missing value. Names, cities and custom fields keep a mark, because the mark may
be meant as the value."""

ZERO_DATES = (
    "0000-00-00", "0000-00-00 00:00:00", "0000-00-00T00:00:00",
    "0/0/00", "0/0/0000", "00/00/00", "00/00/0000", "00.00.0000",
)  # fmt: skip
"""Texts that MySQL (`0000-00-00`) and Outlook (`0/0/00`) write for a missing date."""

UNSPECIFIED_GENDERS = (
    "Unspecified", "unspecified", "Not specified", "not specified", "not_specified", "Unknown", "unknown", "UNKNOWN",
    "Prefer not to say", "prefer not to say", "prefer_not_to_say", "Prefer not to answer",
    "Keine Angabe", "keine Angabe", "k. A.", "k.A.", "unbekannt", "Unbekannt", "Nicht angegeben",
)  # fmt: skip
"""Texts that programs (Outlook: `Unspecified`) and web forms write for a gender that is not specified."""

IS_YES_BY_WORD: dict[str, bool] = {
    **dict.fromkeys(
        (
            "true", "1", "1.0", "yes", "t", "y", "on", "x", "ja", "j", "oui", "o", "sí", "si", "sì", "s", "sim", "tak",
            "wahr", "vrai", "verdadero", "vero", "verdadeiro", "waar", "prawda",
        ),
        True,
    ),
    **dict.fromkeys(
        (
            "false", "0", "0.0", "no", "f", "n", "off", "nein", "non", "não", "nao", "nee", "nie",
            "falsch", "faux", "falso", "onwaar", "fałsz",
        ),
        False,
    ),
}  # fmt: skip
"""Words for yes and no, in lower case: words of eight languages and words of spreadsheets."""


def mark_texts_other_than_yes_or_no(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: false if the text is a word for yes or no. A digit is not a word."""
    return _mark_texts_not_in(pc.utf8_lower(cells), [word for word in IS_YES_BY_WORD if word.isalpha()])


UNSUBSCRIBED_WORDS = (
    "unsubscribed", "never subscribed", "never_subscribed", "non-subscribed", "non_subscribed", "not subscribed",
    "not_subscribed", "opted out", "opted_out", "opted-out", "opt-out", "optout", "do not email", "abgemeldet",
    "abbestellt", "désabonné", "désabonnée", "désinscrit", "désinscrite", "dado de baja", "dada de baja", "de baja",
    "desuscrito", "disiscritto", "disiscritta", "descadastrado", "uitgeschreven", "afgemeld", "wypisany", "wypisana",
)  # fmt: skip
"""Words for a person who has unsubscribed, in lower case."""

INACTIVE_WORDS = (
    "cleaned", "bounced", "hard_bounced", "hard bounced", "hard bounce", "hardbounce", "complained", "complaint",
    "spam", "suppressed", "blocked", "blacklisted", "blocklisted", "inactive", "inaktiv", "inactif", "inactivo",
    "inattivo", "inativo", "inactief", "nieaktywny", "gesperrt", "unconfirmed", "pending", "archived",
    "not active", "not_active", "no consent", "no_consent", "junk", "deaktiviert", "ausgetragen", "desactivado", "baja",
    "deactivated", "disabled", "suspended", "banned", "removed", "deleted", "gelöscht", "redacted", "transactional",
    "undeliverable", "non-marketing contact", "withdrawn", "revoked", "denied", "do not allow", "not allowed",
)  # fmt: skip
"""Words for a person who gets no email for another reason than unsubscribing, such as a bounce, in lower case."""

CANCELLED_WORDS = ("cancelled", "canceled")
"""Words in exports of the email service Kit for a person who has unsubscribed, in lower case. If no cell of the column
is `active`, these words may mean cancelled orders."""

_ACTIVE_WORDS = (
    "subscribed", "confirmed", "opted in", "opted_in", "opted-in", "active", "aktiv", "actif", "activo", "attivo",
    "ativo", "actief", "aktywny", "angemeldet", "inscrit", "abonné", "suscrito", "iscritto", "inscrito",
    "ingeschreven", "zapisany", "abonnée", "abonniert", "eingetragen", "suscrita", "iscritta", "inscrita", "zapisana",
    "alta", "enabled", "marketing contact", "granted", "allow", "allowed",
)  # fmt: skip

IS_ACTIVE_BY_WORD: dict[str, bool] = {
    **IS_YES_BY_WORD,
    **dict.fromkeys(_ACTIVE_WORDS, True),
    **dict.fromkeys((*UNSUBSCRIBED_WORDS, *INACTIVE_WORDS, *CANCELLED_WORDS), False),
}
"""Words for active and inactive, in lower case."""

GENDER_BY_WORD: dict[str, str] = {"male": "male", "female": "female"}


def translate_cells(cells: pa.Array, value_by_text: Mapping[str, object]) -> pa.Array:
    """Return the value of each text in `value_by_text`, or null for any other text. Texts are compared in lower
    case."""
    known_texts = pa.array(list(value_by_text), pa.large_string())
    return pa.array(list(value_by_text.values())).take(pc.index_in(pc.utf8_lower(cells), known_texts))


_ZIP_PATTERN = r"^(0|[1-9][0-9]{0,15})(\.0+)?$"  # 10115.0: a program read the column as numbers with decimals
_MAX_ZIP_CODE = 2**53 - 1  # a JSON reader that uses doubles would change a larger number


def mark_sendable_zips(cells: pa.Array) -> pa.Array:
    """Return a boolean for each text: true if the text is a number that the service accepts as a zip code. The texts
    `02134`, `SW1A 1AA` and `12345-6789` are not such numbers."""
    zip_form_mask = pc.match_substring_regex(cells, _ZIP_PATTERN)
    return pc.and_(zip_form_mask, pc.less_equal(_remove_decimals(pc.if_else(zip_form_mask, cells, "0")), _MAX_ZIP_CODE))


def read_zips(cells: pa.Array) -> pa.Array:
    """Return each zip code as an integer, or null if the text cannot be sent: `10115` → 10115, `SW1A 1AA` → null."""
    return _remove_decimals(pc.if_else(mark_sendable_zips(cells), cells, None))


def _remove_decimals(cells: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(cells, r"\..*$", "").cast(pa.int64())
