"""Reads countries as two-letter codes (ISO 3166-1 alpha-2) from codes of two or three letters and from names.

Country names are known in English. pycountry's translations add the names in seven other languages (`LANGUAGES`).
"""

import gettext
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache

import pycountry

LANGUAGES = ("de", "fr", "es", "it", "pt", "nl", "pl")
"""The languages of the known country names, in addition to English."""

# Common names that neither ISO 3166-1 nor its translations have.
_COMMON_NAMES_BY_CODE: dict[str, tuple[str, ...]] = {
    "AE": ("UAE", "U.A.E.", "Emirates"),
    "AT": ("Österreich", "Oesterreich"),
    "BA": ("Bosnia", "Bosnia-Herzegovina", "Bosnien-Herzegowina"),
    "BE": ("België", "Belgique", "Belgien"),
    "BN": ("Brunei",),
    "BR": ("Brasil",),
    "BY": (
        "Byelorussia", "Weißrussland", "Biélorussie", "Bielorrusia", "Bielorussia", "Bielorrússia", "Wit-Rusland",
        "Białoruś",
    ),
    "CD": (
        "DR Congo", "DRC", "Congo-Kinshasa", "Congo (DRC)", "DR Kongo", "RD Congo", "Kongo-Kinshasa", "Zaire",
        "Demokratyczna Republika Konga",
    ),
    "CF": ("Central African Rep.",),
    "CG": ("Congo-Brazzaville", "Republic of Congo", "Congo Republic", "Kongo-Brazzaville"),
    "CH": ("Schweiz", "Suisse", "Svizzera"),
    "CI": ("Ivory Coast", "Cote d Ivoire", "Elfenbeinküste", "Ivoorkust", "Wybrzeże Kości Słoniowej"),
    "CN": ("PR China", "P.R. China", "Mainland China"),
    "CV": ("Cape Verde",),
    "CZ": ("Czech Republic", "Česko", "Česká republika", "Tschechei", "Republika Czeska", "Czech"),
    "DE": ("Deutschland",),
    "DK": ("Danmark",),
    "ES": ("España",),
    "FI": ("Suomi",),
    "FM": ("Micronesia, Fed. Sts.",),
    "GB": (
        "UK", "U.K.", "GB-UKM", "Great Britain", "Britain", "England", "Scotland", "Wales", "Northern Ireland",
        "United Kingdom (UK)", "Großbritannien", "Grande-Bretagne", "Gran Bretaña", "Gran Bretagna", "Grã-Bretanha",
        "Groot-Brittannië", "Anglia", "Angleterre", "Inglaterra", "Inghilterra", "Engeland", "Schottland", "Écosse",
        "Escocia", "Scozia", "Escócia", "Schotland", "Szkocja", "Pays de Galles", "Gales", "País de Gales", "Galles",
        "Walia", "Nordirland", "Irlande du Nord", "Irlanda del Norte", "Irlanda del Nord", "Irlanda do Norte",
        "Noord-Ierland", "Irlandia Północna", "Zjednoczone Królestwo",
    ),
    "GE": ("Republic of Georgia",),
    "GN": ("Guinea-Conakry",),
    "HK": ("Hong Kong SAR", "Hong Kong SAR China", "Hong Kong, China", "China, Hong Kong SAR"),
    "HR": ("Hrvatska",),
    "HU": ("Magyarország",),
    "IE": ("Republic of Ireland", "Éire", "Republik Irland", "République d'Irlande"),
    "IT": ("Italia",),
    "IR": ("Irã",),
    "KP": ("North Korea", "N. Korea", "DPRK", "Korea, Dem. Rep.", "Korea, Dem. People's Rep."),
    "KR": ("South Korea", "S. Korea", "Republik Korea", "Südkorea", "Korea, Süd", "Korea Rep."),
    "LA": ("Lao PDR",),
    "MD": ("Moldawien", "Moldau", "Moldavie", "Moldavia", "Moldávia", "Moldavië", "Mołdawia"),
    "MK": (
        "Macedonia", "FYROM", "Nordmazedonien", "Mazedonien", "Macédoine", "Macedonië", "Macédoine du Nord",
        "FYR Macedonia", "Former Yugoslav Republic of Macedonia",
    ),
    "MM": ("Burma", "Myanmar (Burma)", "Birma", "Birmanie", "Birmania", "Birmânia"),
    "MO": ("Macau", "Macao SAR", "Macao SAR China", "Macau SAR", "Macau, China", "China, Macao SAR"),
    "NL": (
        "The Netherlands", "Holland", "Nederland", "Niederlande", "Die Niederlande", "Holanda", "Hollande", "Olanda",
        "Niderlandy",
    ),
    "NO": ("Norge",),
    "PL": ("Polska",),
    "PS": (
        "Palestine", "Palestinian Territory", "Palestinian Territories", "Palästina", "Palestina", "Palestyna",
        "Occupied Palestinian Territory", "West Bank and Gaza",
    ),
    "RE": ("La Réunion", "Reunion Island"),
    "RO": ("România",),
    "RU": ("Russia", "Россия", "Russland", "Russie", "Rusia", "Rússia", "Rusland", "Rosja"),
    "SA": ("KSA",),
    "SE": ("Sverige",),
    "SI": ("Slovenija",),
    "SK": ("Slovensko",),
    "SZ": ("Swaziland", "Swasiland", "Eswatini", "Essuatíni"),
    "TL": ("East Timor", "Osttimor", "Timor oriental"),
    "TR": ("Turkey",),
    "TW": ("Taiwan, China", "Taiwan, ROC"),
    "UA": ("Україна",),
    "US": (
        "U.S.", "U.S.A.", "USA", "America", "United States (US)", "EE.UU.", "EE. UU.", "EEUU",
        "Vereinigte Staaten (USA)", "Estados Unidos da América", "Verenigde Staten van Amerika",
        "Stany Zjednoczone Ameryki", "Amerika", "Amérique", "Stati Uniti (USA)", "EUA",
    ),
    "VA": (
        "Vatican", "Vatican City", "Vatican City State", "Vatikan", "Vatikanstadt", "Vaticano", "Vaticaanstad",
        "Watykan", "Città del Vaticano", "Ciudad del Vaticano", "Cité du Vatican", "Heiliger Stuhl", "Saint-Siège",
        "Santa Sede",
    ),
    "VE": ("Venezuela, RB",),
    "VG": ("UK Virgin Islands",),
    "VI": ("US Virgin Islands", "U.S. Virgin Islands"),
}  # fmt: skip


_NAME_IN_TWO_PARTS_PATTERN = re.compile(r"^([^,(/]+)(?:, ?| ?[(/] ?)([^,()/]+)\)?$")
"""A name in two parts: `Korea, South`, `Congo (Democratic Republic)`, `Burma/Myanmar`."""


def find_country(text: str) -> str | None:
    """Return the two-letter code (upper case) of a country, or None for another text.

    The text is a code, a name, a name with its first words at the end (`Korea, South`), or two names of one country.
    """
    country = pycountry.countries.get(alpha_2=text.upper()) or pycountry.countries.get(alpha_3=text.upper())
    if country is not None:
        return str(country.alpha_2)
    code_by_name = _build_code_by_name()
    code = code_by_name.get(simplify_name(text))
    if code is not None or not (parts_match := _NAME_IN_TWO_PARTS_PATTERN.match(text)):
        return code
    first_part, second_part = parts_match.groups()
    code = code_by_name.get(simplify_name(f"{second_part} {first_part}"))
    if code is None and code_by_name.get(simplify_name(first_part)) == code_by_name.get(simplify_name(second_part)):
        return code_by_name.get(simplify_name(first_part))
    return code


@cache
def _build_code_by_name() -> dict[str, str]:
    """Return the codes by simplified name.

    There are three groups of names: English names, names in other languages, and short forms (`Micronesia`). Earlier
    groups have precedence. A name that means several countries within a group is left out of this group.
    """
    code_by_name: dict[str, str] = {}
    for name_group in (_list_short_names(), list_foreign_names(), list_whole_names()):
        codes_by_name = defaultdict[str, set[str]](set)
        for name, code in name_group:
            codes_by_name[simplify_name(name)].add(code)
        code_by_name |= {
            name: country_codes.pop() for name, country_codes in codes_by_name.items() if len(country_codes) == 1
        }
    return code_by_name


def list_whole_names() -> Iterator[tuple[str, str]]:
    """Yield each English name and each name in `_COMMON_NAMES_BY_CODE`, with the code of its country."""
    yield from _list_official_names(lambda name: name)
    yield from ((name, code) for code, names in _COMMON_NAMES_BY_CODE.items() for name in names)


def list_foreign_names() -> Iterator[tuple[str, str]]:
    """Yield each name of a country in the other languages (`LANGUAGES`), with the code of the country."""
    for language in LANGUAGES:
        translation = gettext.translation("iso3166-1", pycountry.LOCALES_DIR, languages=[language])
        yield from _list_official_names(translation.gettext)


def _list_official_names(translate: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    for country in pycountry.countries:
        for name_key in ("name", "official_name", "common_name"):
            if english_name := getattr(country, name_key, None):
                name = translate(english_name)
                yield name, country.alpha_2
                first_part, comma, last_part = name.partition(", ")
                if comma:  # "Korea, Republic of" gives "Republic of Korea"
                    yield f"{last_part} {first_part}", country.alpha_2


def _list_short_names() -> Iterator[tuple[str, str]]:
    """Yield the part of each English name before a comma or a bracket, with the code of the country."""
    for country in pycountry.countries:
        short_name = country.name.partition(", ")[0].partition(" (")[0]
        if short_name != country.name:
            yield short_name, country.alpha_2


_WORD_BY_ABBREVIATION = {"st": "saint", "rep": "republic", "dem": "democratic"}


def simplify_name(name: str) -> str:
    """Return the name in lower case without accents, punctuation, `the` and `of`. `&` is replaced by `and`, some
    abbreviations by whole words, and initials are joined to one word."""
    name = name.replace("&", " and ").replace("-", " ").replace("\u00b4", "'")
    plain_name = unicodedata.normalize("NFKD", name).casefold().replace("ł", "l")
    letters = "".join(character for character in plain_name if character.isalnum() or character.isspace())
    words = [_WORD_BY_ABBREVIATION.get(word, word) for word in letters.split() if word not in ("the", "of")]
    return ("" if all(len(word) == 1 for word in words) else " ").join(words)
