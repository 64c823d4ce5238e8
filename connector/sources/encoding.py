"""Reads a text in any encoding as UTF-8, in pieces. Undecodable bytes stay invalid UTF-8 and are found later.

A BOM decides the encoding, or the zero bytes of UTF-16, or the first bytes beyond ASCII. If these are not UTF-8, their
words are decoded in each Windows and ISO encoding. An encoding with impossible words (`Wi¹niewski`, `MЌller`) is
excluded. The likeliest of the others is chosen, by chardet's rating and by the number of words with the letters of one
language (`LANGUAGES`). If the next encoding is about as likely and gives other letters, no encoding is chosen, and rows
with such bytes are malformed. Encodings of DOS, of Macs and KOI8 are read only if an option names them.
"""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import BinaryIO

from connector.errors import ConfigurationError, SourceError

_WESTERN = ("cp1252", "iso8859-1", "iso8859-15")  # if the text is the same in several encodings, the first one is named
_CENTRAL = ("cp1250", "iso8859-2")
_TURKISH = ("cp1254", "iso8859-9")
_BALTIC = ("cp1257", "iso8859-13")
_CYRILLIC = ("cp1251", "iso8859-5")

# The letters beyond ASCII of a language, and the encodings of its files.
LANGUAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("àâæçéèêëîïôöœùûü", _WESTERN),  # French
    ("äöüßé", _WESTERN),  # German
    ("áéíñóúüç", _WESTERN),  # Spanish
    ("àáâãçéêíóôõúü", _WESTERN),  # Portuguese
    ("àèéìíîòóùú", _WESTERN),  # Italian
    ("àçèéíïñòóúü·", _WESTERN),  # Catalan
    ("áàäçéèëêíïóöôúü", _WESTERN),  # Dutch
    ("æøåéèêóòôüöä", _WESTERN),  # Danish, Norwegian
    ("åäöéèëüá", _WESTERN),  # Swedish
    ("åäöšž", _WESTERN),  # Finnish
    ("áéíóúýþæðö", _WESTERN),  # Icelandic
    ("áéíóúàèìòù", _WESTERN),  # Irish, Scottish
    ("ëç", (*_WESTERN, *_CENTRAL)),  # Albanian
    ("äöüõšž", (*_WESTERN, *_BALTIC)),  # Estonian
    ("ąćęłńóśźż", _CENTRAL),  # Polish
    ("áčďéěíňóřšťúůýžöü", _CENTRAL),  # Czech
    ("áäčďéíĺľňóôŕšťúýž", _CENTRAL),  # Slovak
    ("áéíóöőúüű", _CENTRAL),  # Hungarian
    ("čćđšž", _CENTRAL),  # Slovenian, Croatian
    ("ăâîşţ", _CENTRAL),  # Romanian
    ("çğıiöşüâîû", _TURKISH),
    ("āčēģīķļņōŗšūž", _BALTIC),  # Latvian
    ("ąčęėįšųūž", _BALTIC),  # Lithuanian
    ("абвгдеёжзийклмнопрстуфхцчшщъыьэюя", _CYRILLIC),  # Russian, Bulgarian
    ("абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", _CYRILLIC),  # Ukrainian
    ("абвгдеёжзійклмнопрстуўфхцчшыьэюя", _CYRILLIC),  # Belarusian
    ("абвгдђежзијклљмнњопрстћуфхцчџш", _CYRILLIC),  # Serbian
    ("абвгдѓежзѕијклљмнњопрстќуфхцчџш", _CYRILLIC),  # Macedonian
    ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ", ("cp1253", "iso8859-7")),  # Greek
    ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", ("cp1255", "iso8859-8")),  # Hebrew
    ("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيپچژگ", ("cp1256", "iso8859-6")),  # Arabic
)
_ENCODINGS = tuple(dict.fromkeys(encoding for _, encodings in LANGUAGES for encoding in encodings))
_ALPHABETS = {
    encoding: tuple(frozenset(letters) for letters, encodings in LANGUAGES if encoding in encodings)
    for encoding in _ENCODINGS
}

_FITTING_POWER = 4  # one or two foreign names should not decide; many should
# The lead in rating that the likeliest encoding needs, by the minimum number of different words. Measured on 3,600
# files of 1 to 10 rows of names in 29 languages: no file with six words is read wrong, and 0.3 % of shorter files.
_LEADS = ((6, 0.1), (3, 0.2), (0, 0.6))
_ODD_WORDS = 0.01  # share of the words: each list has some misspelt words
_MAX_IMPOSSIBLE = 0.05  # share of the words; with more, the file has two encodings or an unknown encoding
_LINES, _WORDS = 400, 200  # read for the decision; more changed no decision

_LINE = re.compile(rb"[^\r\n]*[\x80-\xff][^\r\n]*")
_ADDRESS = re.compile(rb"[^\s,;|\"]*@[^\s,;|\"]*")  # most addresses are ASCII, and not words of a language
_ANY_WORD = re.compile(rb"[A-Za-z\x80-\xff]+")
_WORD = re.compile(rb"[\x40-\xff]*[\x80-\xff][\x40-\xff]*")  # bytes below 0x40 are signs in every encoding here

_BAD_BYTES = re.compile("[\udc80-\udcff]")
_GOOD_CHARACTERS = re.compile("[^\x00-\x7f\udc80-\udcff]")
_MAX_BAD_PER_GOOD = 2  # in damaged UTF-8; another encoding has at least 4 invalid bytes for each valid character
_UTF_16_ZEROS = 0.3  # minimum share of zeros at even or odd positions: delimiters, addresses and numbers are ASCII
_UTF_16_STRAYS = 0.01  # maximum share of zeros at the other positions

_BEGINNING_BYTES = 1 << 18  # some thousand rows
_MAX_CHARACTER_BYTES = 4  # of UTF-8
_READ_BYTES = 1 << 20  # for each read; larger reads were not faster
_SHOWN_WORDS = 4  # in a sample

_BOMS = (  # the BOM of UTF-32 begins with the BOM of UTF-16, so longer BOMs come first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BINARY_BEGINNINGS = (
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"BZh", "compressed by bzip2: unpack it first"),
    (b"\xfd7zXZ\x00", "compressed by xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard: unpack it first"),
    (b"SQLite format 3\x00", "a SQLite database: name it as a SQL source, sqlite:///FILE"),
    (b"%PDF-", "a PDF, not CSV"),
)
_BINARY_SHARE = 0.1  # minimum share of control bytes at the beginning of a binary file; a text has few or none

# A NUL stops a CSV reader, and the other characters break terminals. Tabs and line ends belong to records.
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

LOST = "\ufffd"
"""The character that programs write for an undecodable byte."""

_UNDECODABLE = (
    "\udcff"  # a lone surrogate, which is invalid in UTF-8: its row is malformed like a row with an invalid byte
)
_C1 = re.compile("[\x80-\x9f]")

_LONE_ACCENTS = frozenset("¨¯¸˘˙˚˛˜˝")  # accents without a letter, which no name contains
_JOINING = frozenset(
    "’‘'´·–—‑׳״\u00ad"
)  # signs between two letters: O’Brien, Gal·la, Müller–Lüdenscheidt, a soft hyphen
_OPENING = frozenset("«»“”„‘‚¿¡‹›–—")  # signs before the first letter of a word


@dataclass(frozen=True, slots=True)
class EncodingGuess:
    """The `encoding` of a text (Python's name) with a `sample` of decoded words. If the encoding is not certain,
    `encoding` is None, `likely` is the encoding to advise, and `reason` names the candidates."""

    encoding: str | None
    sample: tuple[str, ...] = ()
    likely: str = "cp1252"
    reason: str = ""


class Utf8Stream:
    """A file that is read as UTF-8 without its BOM. Undecodable bytes stay invalid UTF-8.

    `encoding` is the encoding of the file, and `advised` the encoding to advise for malformed rows. `remark` is a
    message about a detected or uncertain encoding, or None.
    """

    def __init__(self, name: str, file: BinaryIO, encoding: str) -> None:
        """Read `file`, called `name` in errors, in `encoding` (`auto`, or a name of Python's). Raises
        ConfigurationError and SourceError."""
        self._name, self._file = name, file
        self.advised = "cp1252"
        self.remark: str | None = None
        self._is_guessed = False
        if encoding == "auto":
            encoding = self._find_encoding()
        try:
            "".encode(encoding)  # refuses codecs that are not text encodings, such as base64
            self.encoding = codecs.lookup(encoding).name.replace("utf-8-sig", "utf-8")
        except (LookupError, ValueError):
            raise ConfigurationError(
                f"encoding {encoding!r} is not known; use auto, utf-8, cp1252, latin-1, utf-16 or another name of "
                "Python's"
            ) from None
        self.rewind()

    def rewind(self) -> None:
        """Go back to the beginning of the file."""
        self._file.seek(0)
        self._is_first = True
        # UTF-8 is not decoded. This is fast, and the rejects file can show each invalid byte.
        is_utf_8 = self.encoding == "utf-8"
        self._decoder = None if is_utf_8 else codecs.getincrementaldecoder(self.encoding)("connector.mark")

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, at least one unless the text has ended. Raises SourceError."""
        pieces: list[bytes] = []
        wanted = size
        while wanted > 0:
            piece = self._read_on(min(wanted, _READ_BYTES))
            pieces.append(self._to_utf8(piece))
            wanted -= len(pieces[-1])
            if not piece:
                break
        return b"".join(pieces)

    def _find_encoding(self) -> str:
        """Return the encoding by a BOM, by the zero bytes of UTF-16, or by the first piece with bytes beyond ASCII."""
        self._file.seek(0)
        piece = self._read_on(_BEGINNING_BYTES)
        if bom := next((encoding for bom, encoding in _BOMS if piece.startswith(bom)), None):
            return bom
        # The positions of the zero bytes of ASCII characters show UTF-16 without a BOM.
        for utf_16, zeros, others in (("utf-16-le", piece[1::2], piece[::2]), ("utf-16-be", piece[::2], piece[1::2])):
            if zeros.count(0) > _UTF_16_ZEROS * len(zeros) and others.count(0) <= _UTF_16_STRAYS * len(others):
                self.remark = f"read as {utf_16}, recognised by its zero bytes, because it has no BOM"
                return utf_16
        if piece.startswith(tuple(magic for magic, _ in _BINARY_BEGINNINGS)) or _is_full_of_controls(piece):
            return "utf-8"  # the CSV reader refuses it
        while piece and piece.isascii():
            piece = self._read_on(_READ_BYTES)
        if not piece:
            return "utf-8"
        if piece[:-_MAX_CHARACTER_BYTES].isascii():  # the bytes beyond ASCII may be half a character at the end
            piece += self._read_on(_READ_BYTES)
        guess = decide_encoding(piece)
        if guess.encoding is None:
            self.advised = guess.likely
            self.remark = (
                f"its encoding is not certain: {guess.reason}. Rows with other than ASCII in them were not read; "
                f"name the encoding and run it again: {advise_encoding(self.advised)}"
            )
            return "utf-8"
        if guess.encoding != "utf-8":
            self._is_guessed = True
            self.remark = (
                f"read as {guess.encoding}, found by its words ({', '.join(guess.sample)}); if these are wrong, name "
                f"the encoding: {advise_encoding('NAME')}"
            )
        return guess.encoding

    def _read_on(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise SourceError(f"{self._name}: reading failed: {error.strerror or error}") from error

    def _to_utf8(self, piece: bytes) -> bytes:
        if self._decoder is not None:
            text = self._decoder.decode(piece, final=not piece)
            # ISO-8859-x has control characters at 0x80 to 0x9F. A text with these characters has another encoding.
            text = _C1.sub(_UNDECODABLE, text) if self._is_guessed else text
            piece = text.encode("utf-8", "surrogatepass")
        if self._is_first and piece:
            self._is_first = False
            while piece.startswith(codecs.BOM_UTF8):  # a program may have added a second BOM
                piece = piece.removeprefix(codecs.BOM_UTF8)
        return piece


def decide_encoding(text: bytes) -> EncodingGuess:
    """Return the encoding of a text with some bytes beyond ASCII."""
    decoded = text.decode("utf-8", "surrogateescape")
    good, bad = len(_GOOD_CHARACTERS.findall(decoded)), len(_BAD_BYTES.findall(decoded))
    if good and bad <= _MAX_BAD_PER_GOOD * good:  # rows with bytes that are not UTF-8 are malformed
        return EncodingGuess("utf-8")
    lines = [_ADDRESS.sub(b"", line) for line in islice(map(bytes, _LINE.findall(text)), _LINES)]
    words = list(islice(dict.fromkeys(word for line in lines for word in _WORD.findall(line)), _WORDS))
    readings = _rank(words, b" ".join(dict.fromkeys(word for line in lines for word in _ANY_WORD.findall(line))))
    if not readings or readings[0].impossible > _MAX_IMPOSSIBLE:
        return EncodingGuess(
            None,
            reason="in no encoding of Windows or ISO are its words names; from DOS, a Mac or an old Russian program it "
            "may be cp850, mac-roman or koi8-r",
        )
    best, *others = readings
    lead = next(lead for number, lead in _LEADS if len(words) >= number)
    if others and others[0].rating >= (1 - lead) * best.rating:
        other = others[0]
        difference = next((index for index, word in enumerate(best.words) if word != other.words[index]), 0)
        reason = f"it may be {best.encoding} ({best.words[difference]}) or {other.encoding} ({other.words[difference]})"
        return EncodingGuess(None, likely=best.encoding, reason=reason)
    sample: list[str] = []
    seen: set[str] = set()
    for word in best.words:  # some words, each with a letter that the words before it do not have
        letters = _find_letters(word)
        if letters - seen and len(sample) < _SHOWN_WORDS:
            seen |= letters
            sample.append(word.strip())
    return EncodingGuess(best.encoding, sample=tuple(sample or best.words[:1]))


def refuse_binary(name: str, beginning: bytes) -> None:
    """Raise SourceError if the `beginning` of a file (as UTF-8) is empty or binary."""
    if not beginning.strip():
        raise SourceError(f"{name}: is empty; a CSV file begins with a header line that names its columns")
    for magic, meaning in _BINARY_BEGINNINGS:
        if beginning.startswith(magic):
            raise SourceError(f"{name}: is {meaning}")
    if _is_full_of_controls(beginning):
        hint = f"if it is UTF-16 or UTF-32 without a BOM, name the encoding: {advise_encoding('utf-16-le')}"
        raise SourceError(f"{name}: is a binary file, not CSV" + (f"; {hint}" if 0 in beginning else ""))


def show_bytes(record: bytes) -> str:
    """Return a record for the rejects file as text, with invalid bytes and control characters as \\xNN."""
    shown = record.replace(_UNDECODABLE.encode("utf-8", "surrogatepass"), LOST.encode())
    return _CONTROLS.sub(lambda found: b"\\x%02x" % found[0][0], shown).decode("utf-8", "backslashreplace")


def advise_encoding(name: str = "cp1252") -> str:
    """Return the option and the job key for a file's encoding, with an example."""
    return f"--encoding {name}, or source.file.encoding in a job"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The words decoded in one encoding, the share of `impossible` words, and the `rating` of the encoding (no
    unit)."""

    encoding: str
    words: tuple[str, ...]
    impossible: float
    rating: float


def _rank(words: Sequence[bytes], text: bytes) -> list[_Reading]:
    """Return the readings of the words, the likeliest first. Encodings with the same text count as one reading."""
    if not words:
        return []
    import chardet  # here: the import takes a tenth of a second, and most files are UTF-8

    ratings: dict[str, float] = {}  # chardet's of each encoding, by pairs of letters of its languages
    for found in chardet.detect_all(text, ignore_threshold=True, compat_names=False, include_encodings=_ENCODINGS):
        if name := found["encoding"]:
            ratings[name] = max(ratings.get(name, 0.0), found["confidence"])
    by_text: dict[tuple[str, ...], _Reading] = {}
    for encoding in _ENCODINGS:
        try:
            decoded = tuple(word.decode(encoding) for word in words)
        except UnicodeDecodeError:
            continue
        impossible = sum(not _is_possible(word) for word in decoded) / len(decoded)
        letters = [_find_letters(word) for word in decoded]
        counted = [word for word in letters if word or encoding.startswith("cp")]  # O’Brien: only Windows writes ’
        fitting = max(sum(word <= alphabet for word in counted) for alphabet in _ALPHABETS[encoding]) / len(decoded)
        rating = ratings.get(encoding, 0.0) * fitting**_FITTING_POWER
        same = by_text.get(decoded, _Reading(encoding, decoded, impossible, 0.0))
        by_text[decoded] = replace(same, rating=same.rating + rating)
    least = min((reading.impossible for reading in by_text.values()), default=0.0)
    likely = [reading for reading in by_text.values() if reading.impossible <= least + _ODD_WORDS and reading.rating]
    return sorted(likely, key=lambda reading: -reading.rating)


def _is_full_of_controls(text: bytes) -> bool:
    controls = sum(text.count(bytes([byte])) for byte in (*range(9), *range(14, 32)))
    return controls > _BINARY_SHARE * len(text)


def _is_possible(word: str) -> bool:
    """Return whether a text without white space may be a word.

    Its characters are of one script. Capitals, and signs between letters, stand where they may stand.
    """
    for part in word.split("\u00a0"):
        if any(_get_category(character) in ("Cc", "Cn", "Co", "Cs", "Lm", "Mn") for character in part):
            return False
        if not _LONE_ACCENTS.isdisjoint(part):
            return False
        if len({script for character in part if (script := _get_script(character))}) > 1:
            return False
        for index, character in enumerate(part):
            before, after = part[index - 1 : index], part[index + 1 : index + 2]
            # No capital beyond ASCII, or beside a letter beyond ASCII, stands in the midst of small letters.
            if character.isupper() and before.islower() and not (before + character).isascii():
                return False
            if character.isupper() and not character.isascii() and before.isalpha() and after.islower():
                return False
            if character.isascii() or _get_category(character)[0] in "LM" or not after.isalpha():
                continue
            if character not in (_JOINING if before.isalpha() else _OPENING):
                return False
    return True


def _find_letters(word: str) -> frozenset[str]:
    """Return the letters beyond ASCII in lower case, without the dot of a Turkish capital."""
    return frozenset(letter for letter in word.casefold() if letter.isalpha() and not letter.isascii())


@lru_cache(maxsize=4096)
def _get_category(character: str) -> str:
    return unicodedata.category(character)


@lru_cache(maxsize=4096)
def _get_script(character: str) -> str | None:
    """Return the script of a letter, by the first word of its Unicode name: LATIN, CYRILLIC, …"""
    if _get_category(character)[0] not in "LM":
        return None
    script = unicodedata.name(character, "").partition(" ")[0]
    return None if script in ("COMBINING", "MODIFIER", "FEMININE", "MASCULINE", "MICRO") else script


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _UNDECODABLE, error.end


codecs.register_error("connector.mark", _mark_undecodable)  # decoders take an error handler only by its name
