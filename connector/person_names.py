"""Splits a whole name into the given name and the family name if the split is certain."""

from functools import lru_cache
from unicodedata import category

_TITLES = frozenset({
    "dr", "drs", "prof", "professor", "doctor", "doktor", "mr", "mrs", "ms", "miss", "mx", "sir", "madam", "rev",
    "herr", "herrn", "frau", "hr", "fr", "fräulein", "dipl-ing", "ing", "mag", "med", "phil", "jur", "h.c", "dott",
    "m", "mme", "mlle", "monsieur", "madame", "sr", "sra", "srta", "señor", "señora", "don", "doña", "sig", "signor",
    "signora", "dhr", "mevr", "mw", "mevrouw", "ir", "pan", "pani", "inż", "mgr", "dottor", "dr.-ing", "prof.dr",
})  # fmt: skip
"""Titles without their last dot, in lower case."""

_PARTICLES = frozenset({
    "van", "von", "vom", "zu", "zum", "zur", "de", "del", "della", "dello", "dei", "di", "da", "das", "do", "dos",
    "du", "des", "la", "le", "las", "los", "der", "den", "het", "ter", "ten", "te", "bin", "bint", "ibn", "al", "el",
    "ben", "af", "av", "st", "saint", "san", "santa", "o'", "mac", "mc", "d'",
})  # fmt: skip
"""The first words of family names of several words, in lower case and without dots."""

_SUFFIXES = frozenset({
    "jr", "sr", "ii", "iii", "iv", "phd", "md", "mba", "msc", "bsc", "ma", "ba", "llm", "esq", "jun", "sen", "cpa",
})  # fmt: skip
"""Words after a name that are not a part of the name, in lower case and without dots."""

_NOT_ONE_PERSON = frozenset({
    "&", "+", "and", "und", "et", "en", "or", "oder", "family", "familie", "famille", "familia", "famiglia", "team",
    "gmbh", "ag", "kg", "ohg", "ug", "ltd", "limited", "inc", "llc", "corp", "company", "co", "plc", "bv", "nv", "sa",
    "sarl", "srl", "spa", "oy", "ab", "as", "group", "foundation", "verein", "ev",
})  # fmt: skip
"""Words in names of several people or of companies, in lower case and without dots."""

_SIGNS = " ,.'’-"


@lru_cache(maxsize=1024)  # a template uses both parts of a name
def split_name(name: str) -> tuple[str, str]:
    """Return the given name and the family name without titles: `Lee, Ann`, `Dr. Ann Lee` and `Ann van der Lee`.

    If the split is not certain, return the whole name and an empty family name. Examples are a single word, several
    given or family names without a comma, two people, a company and an address.
    """
    whole = " ".join(name.split())
    parts = [part.split() for part in whole.split(",")]
    words = [word for part in parts for word in part]
    bare = [word.lower().replace(".", "") for word in words]
    if not _NOT_ONE_PERSON.isdisjoint(bare) or any(
        category(sign)[0] not in "LM" and sign not in _SIGNS for sign in whole
    ):
        return whole, ""
    if len(parts) == 2 and all(word in _SUFFIXES for word in bare[len(parts[0]) :]):
        parts = parts[:1]  # Ann Lee, PhD
    if len(parts) == 2:
        last, first = (_drop_titles(part) for part in parts)
    elif len(parts) == 1:
        first, last = _divide(_drop_titles(parts[0]))
    else:
        return whole, ""
    return (" ".join(first), " ".join(last)) if first and last else (whole, "")


def _divide(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the one word of the given name, and the words of the family name. If the split is not certain, all words
    are the given name."""
    is_particle = [word.lower().replace(".", "") in _PARTICLES for word in words]
    is_single = len(words) == 2 and not any(is_particle)
    is_compound = len(words) > 2 and is_particle[:2] == [False, True] and not is_particle[-1]
    return (words[:1], words[1:]) if is_single or is_compound else (words, [])


def _drop_titles(words: list[str]) -> list[str]:
    """Return the words without titles at the beginning, and without suffixes at the end."""
    first, end = 0, len(words)
    while first < end and words[first].lower().removesuffix(".") in _TITLES:
        first += 1
    while end > first and words[end - 1].lower().replace(".", "") in _SUFFIXES:
        end -= 1
    return words[first:end]
