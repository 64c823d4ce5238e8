"""Whether a decoded word could stand in a text: what a wrong encoding makes of names shows in their letters. Pure.

`Wi¹niewski`, `JosÚ` and `MЌller` are nobody's name. It knows Unicode, and no encoding.
"""

import unicodedata
from functools import lru_cache
from itertools import pairwise

_SCRIPTS = {  # as their letters' names begin; a word has letters of one of them
    "LATIN": "Latin", "CYRILLIC": "Cyrillic", "GREEK": "Greek", "HEBREW": "Hebrew", "ARABIC": "Arabic", "THAI": "Thai",
    "CJK": "East Asian", "HIRAGANA": "East Asian", "KATAKANA": "East Asian", "HANGUL": "East Asian",
}  # fmt: skip
# The letters beyond ASCII of languages that are written in Latin script: a word has those of one of them.
_ALPHABETS = (
    "äöüß", "àâæçéèêëîïôœùûüÿ", "áéíñóúü", "àáâãçéêíóôõúü", "àèéìíîòóùú", "àçèéíïòóúü·", "áàäéèëêíïóöôúüç",
    "æøåéèêóòôü",
    "åäöéèëü", "åäöšžé", "áéíóúýþæöð", "áéíóúàèìòù", "âêîôûŵŷäëïöüáéíóúàèìòùẃẁẅỳýÿ", "ąćęłńóśźż", "áčďéěíňóřšťúůýžöü",
    "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîșțşţ", "çğıiöşüâîû", "äöüõšž", "āčēģīķļņōŗšūž", "ąčęėįšųūž", "çë",
    "ċġħżàèéìòù", "ĉĝĥĵŝŭ",
)  # fmt: skip
_LETTERS = tuple(frozenset(alphabet) for alphabet in _ALPHABETS)
_JOINING = frozenset("’‘'·–—‑׳״\u00ad")  # between two letters: O’Brien, Gal·la, Müller–Lüdenscheidt, a soft hyphen
_OPENING = frozenset("«»“”„‘‚¿¡‹›–—")  # before a letter


def is_plausible(word: str) -> bool:
    """Tell whether a word (no white space in it but U+00A0) may be one: its letters and marks of one script, capitals
    where capitals stand, no sign in the midst of letters, nothing that is no character."""
    parts = word.split("\u00a0")
    return all(_is_text(part) and _is_of_one_script(part) and _is_cased(part) and _has_no_sign(part) for part in parts)


def is_of_a_language(word: str) -> bool:
    """Tell whether one language has all the letters of a word, of those that are written in Latin script."""
    letters = {letter for letter in word.casefold() if letter.isalpha() and not letter.isascii()}
    letters -= {"\u0307"}  # what is left of the dot of a Turkish capital
    if any(_get_script(letter) != "Latin" for letter in letters):
        return True
    return any(letters <= alphabet for alphabet in _LETTERS)


def _is_text(word: str) -> bool:
    return not any(_get_category(character) in ("Cc", "Cn", "Co", "Cs", "Lm") for character in word)


def _is_of_one_script(word: str) -> bool:
    return len({script for character in word if (script := _get_script(character))}) < 2


def _is_cased(word: str) -> bool:
    """No capital beyond ASCII, or beside a letter beyond ASCII, in the midst of small letters."""
    for before, here in pairwise(word):
        if before.islower() and here.isupper() and not (before + here).isascii():
            return False
    for before, here, after in zip(word, word[1:], word[2:], strict=False):
        if before.isalpha() and here.isupper() and not here.isascii() and after.islower():
            return False
    return True


def _has_no_sign(word: str) -> bool:
    for place, character in enumerate(word):
        if character.isascii() or _get_category(character)[0] in "LM":
            continue
        is_after, is_before = word[place - 1 : place].isalpha(), word[place + 1 : place + 2].isalpha()
        if is_before and character not in (_JOINING if is_after else _OPENING):
            return False
    return True


@lru_cache(maxsize=4096)
def _get_category(character: str) -> str:
    return unicodedata.category(character)


@lru_cache(maxsize=4096)
def _get_script(character: str) -> str | None:
    if _get_category(character)[0] not in "LM":
        return None
    return _SCRIPTS.get(unicodedata.name(character, "").partition(" ")[0].partition("-")[0])
