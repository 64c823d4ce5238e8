"""Countries: codes of two and three letters, and names as they are written in exports, to ISO 3166-1 alpha-2.

Names are known in English and in the other languages of the headers, by pycountry's own translations.
"""

import gettext
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

import pyarrow as pa
import pycountry

LANGUAGES = ("de", "fr", "es", "it", "pt", "nl", "pl")
"""Languages of names beside English: those of the headers."""

# Names in common use that ISO 3166-1 or its translations do not have, or no longer have, in this form.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "AE": ("UAE", "U.A.E.", "Emirates"),
    "AT": ("Österreich",),
    "BA": ("Bosnia",),
    "BE": ("België", "Belgique", "Belgien"),
    "BN": ("Brunei",),
    "BR": ("Brasil",),
    "BY": (
        "Byelorussia", "Weißrussland", "Biélorussie", "Bielorrusia", "Bielorussia", "Bielorrússia", "Wit-Rusland",
        "Białoruś",
    ),
    "CD": ("DR Congo", "DRC", "Congo-Kinshasa", "Congo (DRC)"),
    "CG": ("Congo-Brazzaville", "Republic of Congo"),
    "CH": ("Schweiz", "Suisse", "Svizzera"),
    "CI": ("Ivory Coast", "Elfenbeinküste", "Ivoorkust", "Wybrzeże Kości Słoniowej"),
    "CN": ("PR China", "P.R. China", "Mainland China"),
    "CV": ("Cape Verde",),
    "CZ": ("Czech Republic", "Česko", "Česká republika", "Tschechei", "Republika Czeska"),
    "DE": ("Deutschland",),
    "DK": ("Danmark",),
    "ES": ("España",),
    "FI": ("Suomi",),
    "GB": (
        "UK", "U.K.", "GB-UKM", "Great Britain", "Britain", "England", "Scotland", "Wales", "Northern Ireland",
        "United Kingdom (UK)", "Großbritannien", "Grande-Bretagne", "Gran Bretaña", "Gran Bretagna", "Grã-Bretanha",
        "Groot-Brittannië", "Anglia", "Angleterre", "Inglaterra", "Inghilterra", "Engeland", "Schottland", "Écosse",
        "Escocia", "Scozia", "Escócia", "Schotland", "Szkocja",
    ),
    "HK": ("Hong Kong SAR", "Hong Kong SAR China"),
    "HR": ("Hrvatska",),
    "HU": ("Magyarország",),
    "IE": ("Republic of Ireland", "Éire", "Republik Irland", "République d'Irlande"),
    "IT": ("Italia",),
    "KP": ("North Korea",),
    "KR": ("South Korea", "Republik Korea", "Südkorea"),
    "MD": ("Moldawien", "Moldau", "Moldavie", "Moldavia", "Moldávia", "Moldavië", "Mołdawia"),
    "MK": ("Macedonia", "FYROM", "Nordmazedonien", "Mazedonien", "Macédoine", "Macedonië", "Macédoine du Nord"),
    "MM": ("Burma", "Myanmar (Burma)", "Birma", "Birmanie", "Birmania", "Birmânia"),
    "MO": ("Macau", "Macao SAR China", "Macau SAR"),
    "NL": (
        "The Netherlands", "Holland", "Nederland", "Niederlande", "Die Niederlande", "Holanda", "Hollande", "Olanda",
    ),
    "NO": ("Norge",),
    "PL": ("Polska",),
    "PS": ("Palestine", "Palestinian Territory", "Palestinian Territories", "Palästina", "Palestina", "Palestyna"),
    "RO": ("România",),
    "RU": ("Russia", "Россия", "Russland", "Russie", "Rusia", "Rússia", "Rusland", "Rosja"),
    "SA": ("KSA",),
    "SE": ("Sverige",),
    "SI": ("Slovenija",),
    "SK": ("Slovensko",),
    "SZ": ("Swaziland", "Swasiland", "Eswatini"),
    "TL": ("East Timor", "Osttimor", "Timor oriental"),
    "TR": ("Turkey",),
    "UA": ("Україна",),
    "US": (
        "U.S.", "U.S.A.", "USA", "America", "United States (US)", "EE.UU.", "EE. UU.", "EEUU",
        "Vereinigte Staaten (USA)", "Estados Unidos da América", "Verenigde Staten van Amerika",
        "Stany Zjednoczone Ameryki", "Amerika", "Amérique", "Stati Uniti (USA)",
    ),
    "VA": (
        "Vatican", "Vatican City", "Vatikan", "Vatikanstadt", "Vaticano", "Vaticaanstad", "Watykan",
        "Città del Vaticano", "Ciudad del Vaticano", "Cité du Vatican",
    ),
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
    """Return simplified names with their codes. Whole English names have precedence over names in other languages, and
    these over short forms (`Micronesia`). A name that several countries have within one of these groups counts for
    none of them."""
    names: dict[str, str] = {}
    for group in (_list_short_names(), list_foreign_names(), list_whole_names()):
        codes = defaultdict[str, set[str]](set)
        for name, code in group:
            codes[simplify(name)].add(code)
        names |= {name: found.pop() for name, found in codes.items() if len(found) == 1}
    return names


def list_whole_names() -> Iterator[tuple[str, str]]:
    """Yield every name that means a country, as it is written, with its code."""
    yield from _list_official_names(lambda name: name)
    yield from ((name, code) for code, names in _OTHER_NAMES.items() for name in names)


def list_foreign_names() -> Iterator[tuple[str, str]]:
    """Yield the names in other languages than English, with their codes."""
    for language in LANGUAGES:
        translation = gettext.translation("iso3166-1", pycountry.LOCALES_DIR, languages=[language])
        yield from _list_official_names(translation.gettext)


def _list_official_names(translate: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    for country in pycountry.countries:
        for key in ("name", "official_name", "common_name"):
            if english := getattr(country, key, None):
                name = translate(english)
                yield name, country.alpha_2
                before, comma, after = name.partition(", ")
                yield (f"{after} {before}" if comma else name), country.alpha_2  # Korea, Republic of


def _list_short_names() -> Iterator[tuple[str, str]]:
    """Yield the part of each name before a comma or a bracket, with the code."""
    for country in pycountry.countries:
        short = country.name.partition(", ")[0].partition(" (")[0]
        if short != country.name:
            yield short, country.alpha_2


def simplify(name: str) -> str:
    """Return the name in lower case without accents, signs and `the`, with `&` as `and` and `St.` as `Saint`."""
    plain = unicodedata.normalize("NFKD", name.replace("&", " and ").replace("-", " ")).casefold().replace("ł", "l")
    letters = "".join(sign for sign in plain if sign.isalnum() or sign.isspace())
    return " ".join("saint" if word == "st" else word for word in letters.split() if word != "the")
