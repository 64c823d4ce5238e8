"""Phone numbers as E.164 has them, for jobs that ask for it; the library that knows how is loaded only then."""

from functools import lru_cache
from types import ModuleType

import pyarrow as pa

from connector.errors import ConfigurationError


def check_region(region: str) -> None:
    """Raise ConfigurationError unless numbers of this region (ISO 3166-1 alpha-2, upper case) are known here."""
    regions = _load_library().SUPPORTED_REGIONS
    if region not in regions:
        raise ConfigurationError(
            f"e164: there are no phone numbers of a region {region!r}; write two letters, such as DE"
        )


def read_phones(cells: pa.Array, region: str) -> pa.Array:
    """The E.164 form of each number (one without a leading + is of `region`), null for what is no valid number.

    A number with an extension has none: E.164 would lose it. About 25 µs a number, once for each chunk.
    """
    texts = [None if text is None else _read_phone(text, region) for text in cells.to_pylist()]
    return pa.array(texts, pa.large_string())


@lru_cache(maxsize=1 << 16)  # each is asked for twice, when it is judged and when it is written: a chunk fits in
def _read_phone(text: str, region: str) -> str | None:
    library = _load_library()
    try:
        number = library.parse(text, region)
    except library.NumberParseException:
        return None
    if number.extension or not library.is_valid_number(number):
        return None
    return str(library.format_number(number, library.PhoneNumberFormat.E164))


def _load_library() -> ModuleType:
    try:
        import phonenumbers
    except ImportError:
        raise ConfigurationError(
            "e164 needs a library that is not installed: pip install 'subscriber-connector[phone]'"
        ) from None
    return phonenumbers
