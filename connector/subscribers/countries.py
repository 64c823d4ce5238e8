"""Countries: codes of two and three letters, and names as they are written in exports, to ISO 3166-1 alpha-2."""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pycountry

# Names in common use that ISO 3166-1 does not have, or no longer has, in this form.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "AE": ("UAE", "U.A.E.", "Emirates"),
    "AT": ("Österreich",),
    "BA": ("Bosnia",),
    "BE": ("België", "Belgique", "Belgien"),
    "BN": ("Brunei",),
    "BR": ("Brasil",),
    "CD": ("DR Congo", "DRC", "Congo-Kinshasa", "Congo (DRC)"),
    "CG": ("Congo-Brazzaville", "Republic of Congo"),
    "CH": ("Schweiz", "Suisse", "Svizzera"),
    "CI": ("Ivory Coast",),
    "CN": ("PR China", "P.R. China", "Mainland China"),
    "CV": ("Cape Verde",),
    "CZ": ("Czech Republic", "Česko", "Česká republika"),
    "DE": ("Deutschland",),
    "DK": ("Danmark",),
    "ES": ("España",),
    "FI": ("Suomi",),
    "GB": (
        "UK", "U.K.", "GB-UKM", "Great Britain", "Britain", "England", "Scotland", "Wales", "Northern Ireland",
        "United Kingdom (UK)",
    ),
    "HK": ("Hong Kong SAR", "Hong Kong SAR China"),
    "HR": ("Hrvatska",),
    "HU": ("Magyarország",),
    "IE": ("Republic of Ireland", "Éire"),
    "IT": ("Italia",),
    "KR": ("South Korea",),
    "KP": ("North Korea",),
    "MK": ("Macedonia", "FYROM"),
    "MM": ("Burma", "Myanmar (Burma)"),
    "MO": ("Macau", "Macao SAR China", "Macau SAR"),
    "NL": ("The Netherlands", "Holland", "Nederland"),
    "NO": ("Norge",),
    "PL": ("Polska",),
    "PS": ("Palestine", "Palestinian Territory", "Palestinian Territories"),
    "RO": ("România",),
    "RU": ("Russia", "Россия"),
    "SA": ("KSA",),
    "SE": ("Sverige",),
    "SI": ("Slovenija",),
    "SK": ("Slovensko",),
    "SZ": ("Swaziland",),
    "TL": ("East Timor",),
    "TR": ("Turkey",),
    "UA": ("Україна",),
    "US": ("U.S.", "U.S.A.", "USA", "America", "United States (US)"),
    "VA": ("Vatican", "Vatican City"),
    "VG": ("UK Virgin Islands",),
    "VI": ("US Virgin Islands", "U.S. Virgin Islands"),
}  # fmt: skip


def read_countries(cells: pa.Array) -> pa.Array:
    """Return the two-letter code (ISO 3166-1, upper case) of each code or name, null for any other text."""
    names = _list_names()
    coded = cells.dictionary_encode()  # a column holds a few countries, however many rows
    codes = []
    for text in coded.dictionary.to_pylist():
        country = pycountry.countries.get(alpha_2=text.upper()) or pycountry.countries.get(alpha_3=text.upper())
        codes.append(country.alpha_2 if country is not None else names.get(simplify(text)))
    return pa.array(codes, pa.large_string()).take(coded.indices)


@cache
def _list_names() -> dict[str, str]:
    """Simplified names to codes. A short form (`Micronesia`) counts only where it is no other country's too."""
    whole = {simplify(name): code for name, code in list_whole_names()}
    short = {simplify(name): code for name, code in _list_short_names()}
    times = Counter(simplify(name) for name, _ in _list_short_names())
    return {name: code for name, code in short.items() if times[name] == 1} | whole


def list_whole_names() -> Iterator[tuple[str, str]]:
    """Yield every name that means a country, as it is written, with its code."""
    for country in pycountry.countries:
        for key in ("name", "official_name", "common_name"):
            name = getattr(country, key, None)
            if name:
                yield name, country.alpha_2
                before, comma, after = name.partition(", ")
                yield (f"{after} {before}" if comma else name), country.alpha_2  # Korea, Republic of
    yield from ((name, code) for code, names in _OTHER_NAMES.items() for name in names)


def _list_short_names() -> Iterator[tuple[str, str]]:
    """What stands before a comma or a bracket."""
    for country in pycountry.countries:
        short = country.name.partition(", ")[0].partition(" (")[0]
        if short != country.name:
            yield short, country.alpha_2


def simplify(name: str) -> str:
    """Return the name in lower case without accents and signs, `&` as `and`, `St.` as `Saint`, no leading `the`."""
    plain = unicodedata.normalize("NFKD", name.replace("&", " and ").replace("-", " ")).casefold()
    letters = "".join(sign for sign in plain if sign.isalnum() or sign.isspace())
    words = ["saint" if word == "st" else word for word in letters.split()]
    return " ".join(words[1:] if words[:1] == ["the"] else words)
