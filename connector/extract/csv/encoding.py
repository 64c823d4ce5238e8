"""In which encoding a text is written, found from some of its bytes and believed only as far as they show it. Pure.

chardet ranks what a text may be; here that is confirmed: the words must decode, look like words, and the next likeliest
encoding that would make another text of them must be clearly behind. Where it is not, nothing is guessed.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from connector.extract.csv.letters import is_of_a_language, is_plausible

_COMMON = (  # first those that are named where several give the same text
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859-1", "iso8859-15",
    "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-13", "iso8859-6", "koi8-r", "koi8-u",
    "iso8859-3", "iso8859-4", "iso8859-10", "iso8859-14", "iso8859-16", "mac-roman", "cp850", "cp437", "cp852", "cp866",
)  # fmt: skip
# Told from one another too rarely (measured: EUC-JP taken for Big5): they make doubt, and are never chosen.
_DOUBTED = ("cp932", "gb18030", "big5hkscs", "cp949", "euc-jp", "cp874")
_WINDOWS = _COMMON[:8]
_WESTERN = ("cp1252", "iso8859-1", "iso8859-15")
_WESTERN_WEIGHT = 1.3  # measured on names of countries in 33 languages: without it Danish is taken for Hungarian
_WORDS = 200  # looked at; more decided nothing else, and each is looked at in every encoding

# How far behind the next likeliest must be, by how many different words there are at least. Measured on the same names,
# in the encodings of their languages: of 1,300 samples of three to 60 names each one was read wrongly, an Estonian one.
_FEW_WORDS = 5  # fewer are believed only in an encoding of Windows', and if no other makes words of them
_LEADS = ((12, 0.25), (0, 0.5))
_ODD_WORDS = 0.01  # of the words: in any list some are misspelt
_MOST_IMPLAUSIBLE = 0.05  # of the words: more, and it is two encodings in one file, or one that is not known here

# A word with a byte beyond ASCII in it. Bytes below 0x40 are signs between words in every encoding here.
_WORD = re.compile(rb"[\x40-\xff]*[\x80-\xff][\x40-\xff]*")

_BAD_BYTES = re.compile("[\udc80-\udcff]")
_GOOD_CHARACTERS = re.compile("[^\x00-\x7f\udc80-\udcff]")
_MOST_BAD_PER_GOOD = 2  # of UTF-8 with bad bytes in it; in other encodings UTF-8 arises by chance 1 : 4 at most

_UTF_16_ZEROS = 0.3  # of one half of the bytes: a file's delimiters, addresses and numbers are ASCII in any language
_UTF_16_STRAYS = 0.01  # of the other half


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a text is written in. `encoding` is None where that cannot be told, and `likely` names what it may be
    (Python's names, the likeliest first); `reason` is for a person and begins in the middle of a sentence."""

    encoding: str | None
    likely: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Reading:
    """Words as one encoding has them: how many are no words (`implausible`), how many have letters that no one language
    has (`strange`), and how chardet rates it (higher is likelier)."""

    encoding: str
    words: tuple[str, ...]
    implausible: int
    strange: int
    rating: float


def judge_encoding(text: bytes) -> Verdict:
    """Judge a text, of which some bytes are beyond ASCII, by those words of it that have any."""
    if _is_utf_8(text):
        return Verdict("utf-8", ("utf-8",), "found by its bytes")
    words = list(islice(dict.fromkeys(_WORD.findall(text)), _WORDS))
    readings = _rank(words)
    if not readings:
        return Verdict(None, (), "it is not UTF-8, nor anything else that its bytes would show")
    return _decide(words, readings)


def find_utf_16(text: bytes) -> str | None:
    """Name the UTF-16 that has no BOM, by where the zero bytes of its ASCII characters are; None if it is not."""
    for name, zeros, others in (("utf-16-le", text[1::2], text[0::2]), ("utf-16-be", text[0::2], text[1::2])):
        if zeros.count(0) > _UTF_16_ZEROS * len(zeros) and others.count(0) <= _UTF_16_STRAYS * len(others):
            return name
    return None


def _is_utf_8(text: bytes) -> bool:
    """UTF-8, be it with some bytes that are not: they are their rows' fault."""
    decoded = text.decode("utf-8", "surrogateescape")
    good, bad = len(_GOOD_CHARACTERS.findall(decoded)), len(_BAD_BYTES.findall(decoded))
    return good > 0 and bad <= _MOST_BAD_PER_GOOD * good


def _rank(words: Sequence[bytes]) -> list[_Reading]:
    """What the words may be, the likeliest first; of encodings that give the same text one."""
    by_text: dict[tuple[str, ...], _Reading] = {}
    ratings = _rate(words)
    if len(words) < _FEW_WORDS:
        ratings = dict.fromkeys((*_COMMON, *_DOUBTED), 0.0) | ratings
    for encoding in (name for name in (*_COMMON, *_DOUBTED) if name in ratings):
        try:
            decoded = tuple(word.decode(encoding) for word in words)
        except UnicodeDecodeError:
            continue
        same, rating = by_text.get(decoded), ratings[encoding]
        if same is None:
            implausible = sum(not is_plausible(word) for word in decoded)
            strange = sum(not is_of_a_language(word) for word in decoded)
            by_text[decoded] = _Reading(encoding, decoded, implausible, strange, rating)
        elif rating > same.rating:
            by_text[decoded] = replace(same, rating=rating)
    kept = _keep_least(list(by_text.values()), lambda reading: reading.implausible)
    if len(words) >= _FEW_WORDS:  # of fewer, those of one language show nothing
        kept = _keep_least(kept, lambda reading: reading.strange)
    return sorted(kept, key=lambda reading: -reading.rating)


def _keep_least(readings: Sequence[_Reading], count: Callable[[_Reading], int]) -> list[_Reading]:
    """Those that have hardly more such words than the one that has the fewest."""
    least = min(map(count, readings), default=0)
    return [reading for reading in readings if count(reading) <= least + _ODD_WORDS * len(reading.words)]


def _rate(words: Sequence[bytes]) -> dict[str, float]:
    import chardet  # here, for it costs a tenth of a second, and most files are UTF-8

    found = chardet.detect_all(
        b" ".join(words), ignore_threshold=True, compat_names=False, include_encodings=(*_COMMON, *_DOUBTED)
    )
    ratings = {each["encoding"]: each["confidence"] for each in found if each["encoding"]}
    return {name: rating * (_WESTERN_WEIGHT if name in _WESTERN else 1) for name, rating in ratings.items()}


def _decide(words: Sequence[bytes], readings: Sequence[_Reading]) -> Verdict:
    best, others = readings[0], readings[1:]
    likely = tuple(reading.encoding for reading in readings[:3])
    if best.implausible > _MOST_IMPLAUSIBLE * len(words):
        return Verdict(None, likely, f"as {best.encoding}, the likeliest, {_count_wrong(best)}")
    lead = 1 - others[0].rating / best.rating if others and best.rating else float(not others)
    wanted = next(lead for number, lead in _LEADS if len(words) >= number)
    is_hasty = len(words) < _FEW_WORDS and (best.encoding not in _WINDOWS or bool(others))
    if best.encoding in _DOUBTED or is_hasty or lead < wanted:
        return Verdict(None, likely, _explain_doubt(words, readings))
    reason = f"found from {_count_words(len(words))} beyond ASCII; "
    if others:
        reason += f"the next likeliest, {others[0].encoding}, fits {lead:.0%} worse"
    else:
        reason += "whatever else fits gives the same text"
    return Verdict(best.encoding, likely, f"{reason}; {_count_wrong(best)}" if best.implausible else reason)


def _explain_doubt(words: Sequence[bytes], readings: Sequence[_Reading]) -> str:
    """Where the two likeliest differ, shown by one byte and not by somebody's name."""
    best = readings[0]
    if len(readings) == 1:
        return f"it may be {best.encoding}, which cannot be told for sure"
    other = readings[1]
    told = f"it may be {best.encoding} or {other.encoding}"
    for word, one, two in zip(words, best.words, other.words, strict=True):
        if len(word) == len(one) == len(two):
            for octet, this, that in zip(word, one, two, strict=True):
                if this != that:
                    return f"{told} (byte 0x{octet:02X} is {this!r} in the one and {that!r} in the other)"
    return told


def _count_wrong(reading: _Reading) -> str:
    return f"{reading.implausible} of {_count_words(len(reading.words))} look wrong"


def _count_words(number: int) -> str:
    return "1 word" if number == 1 else f"{number} different words"
