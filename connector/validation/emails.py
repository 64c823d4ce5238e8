"""Which texts are email addresses: one pass over a column for the plain ones, email-validator for the rest.

It judges by form alone and asks no DNS. The plain pattern accepts nothing that email-validator would refuse.
"""

import pyarrow as pa
import pyarrow.compute as pc
from email_validator import EmailNotValidError, validate_email

_PLAIN = (
    r"^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*"
    r"@([A-Za-z0-9]+(-[A-Za-z0-9]+)*\.)+[A-Za-z]{2,}$"  # no label with two hyphens in a row: it may be Punycode
)
_PLAIN_LENGTH = 64  # RFC 5321's limit of the part before the @: whoever is shorter as a whole keeps every limit
_SPECIAL = r"(?i)\.(arpa|invalid|local|localhost|onion)$"  # special-use domains, which email-validator refuses


def normalise_emails(cells: pa.Array) -> pa.Array:
    """Addresses as they are sent: trimmed and in NFC, otherwise as given."""
    trimmed = pc.utf8_trim_whitespace(cells)
    if pc.all(pc.string_is_ascii(trimmed)).as_py() is not False:
        return trimmed
    return pc.utf8_normalize(trimmed, form="NFC")


def is_email(cells: pa.Array) -> pa.Array:
    """Whether each text is an address (null where missing); `.test` is one, for trials (RFC 6761)."""
    is_plain = pc.and_(pc.match_substring_regex(cells, _PLAIN), pc.less_equal(pc.binary_length(cells), _PLAIN_LENGTH))
    is_plain = pc.and_not(is_plain, pc.match_substring_regex(cells, _SPECIAL))
    others = pc.unique(cells.filter(pc.invert(is_plain)))
    if not len(others):
        return is_plain
    valid = pa.array([text for text in others.to_pylist() if text and _is_valid(text)], cells.type)
    return pc.if_else(pc.is_valid(cells), pc.or_(is_plain, pc.is_in(cells, valid)), None)


def _is_valid(text: str) -> bool:
    if "@" not in text:
        return False
    try:
        validate_email(text, check_deliverability=False, allow_smtputf8=True, test_environment=True, strict=True)
    except EmailNotValidError:
        return False
    return True
