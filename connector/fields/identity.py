"""What makes two rows the same subscriber (design, section 3): the normal form of an email or a client_user_id."""

import unicodedata
from functools import lru_cache

import idna

IDENTITY_RULE = 1
"""The version of these rules; a ledger records the one it was written under."""


@lru_cache(maxsize=65536)  # domains repeat: a handful make up most of any list
def _normalise_domain(domain: str) -> str:
    lowered = unicodedata.normalize("NFC", domain).lower()
    if lowered.isascii():
        return lowered
    try:
        return idna.encode(lowered, uts46=True).decode("ascii")
    except idna.IDNAError:
        return lowered  # no valid domain: it stays itself, and validation has its say elsewhere


def normalise_email(email: str) -> str:
    """Trimmed, NFC, lower case, the domain as an A-label; text without an @ is normalised all the same."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).lower())
    local, at, domain = text.rpartition("@")
    return f"{local}@{_normalise_domain(domain)}" if at else text


def normalise_client_user_id(client_user_id: str) -> str:
    """Trimmed, case kept."""
    return client_user_id.strip()


def fold_base_name(name: str) -> str:
    """What the spellings of a base's name have in common: trimmed and case-folded (design, section 2)."""
    return name.strip().casefold()


def normalise_identity(field: str, value: str) -> str:
    """The normal form of `value` under the rule of the identity's `field` (email or client_user_id)."""
    return normalise_email(value) if field == "email" else normalise_client_user_id(value)
