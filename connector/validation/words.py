"""The words that mean true or false, a gender, a country: each read without regard to case."""

from functools import cache

import pyarrow as pa
import pycountry

from connector.validation.cells import translate

FLAGS: dict[str, str] = {
    **dict.fromkeys(("true", "1", "yes", "t", "y"), "true"),
    **dict.fromkeys(("false", "0", "no", "f", "n"), "false"),
}

GENDERS: dict[str, str] = {"male": "male", "female": "female"}

# Names that exports write, and that ISO 3166-1 does not know (any more) in this form.
_OTHER_COUNTRY_NAMES: dict[str, str] = {
    "UK": "GB",
    "Great Britain": "GB",
    "The Netherlands": "NL",
    "Turkey": "TR",
    "Russia": "RU",
    "Ivory Coast": "CI",
    "Macedonia": "MK",
    "Swaziland": "SZ",
    "Cape Verde": "CV",
    "Palestine": "PS",
    "Brunei": "BN",
    "Macau": "MO",
    "Vatican City": "VA",
    "Burma": "MM",
    "East Timor": "TL",
    "Czech Republic": "CZ",
}


def read_flags(cells: pa.Array) -> pa.Array:
    """`true` or `false` for each word, null for another."""
    return translate(cells, FLAGS)


def read_genders(cells: pa.Array) -> pa.Array:
    """`male` or `female` for each word, null for another."""
    return translate(cells, GENDERS)


def read_countries(cells: pa.Array) -> pa.Array:
    """The two-letter code (ISO 3166-1, upper case) of each code or name, null for what is none."""
    coded = cells.dictionary_encode()  # a column holds a few countries, however many rows
    return translate(coded.dictionary, _list_countries()).take(coded.indices)


@cache
def _list_countries() -> dict[str, str]:
    """Codes of two and three letters and names, lower case, to the two-letter code; built at the first country."""
    codes = {name.lower(): code for name, code in _OTHER_COUNTRY_NAMES.items()}
    for country in pycountry.countries:
        words = (country.alpha_2, country.alpha_3, country.name)
        others = (getattr(country, "official_name", None), getattr(country, "common_name", None))
        codes |= {word.lower(): country.alpha_2 for word in (*words, *others) if word}
    return codes
