"""Reads a text in any encoding as UTF-8, in pieces. Undecodable bytes stay invalid UTF-8, and the CSV reader finds
them.

These signs decide the encoding, in this order: a byte order mark (BOM), the zero bytes of UTF-16, and the first bytes
beyond ASCII. If the bytes beyond ASCII are not UTF-8, the words with such bytes are decoded in each Windows and ISO
encoding:

- Encodings that give impossible words (`Wi¹niewski`, `MЌller`) are excluded.
- The likeliest of the other encodings is chosen, by chardet's rating, and by the number of words with only the letters
  of one language (`LANGUAGES`).
- If another encoding is about as likely and gives other letters, no encoding is chosen, and rows with bytes beyond
  ASCII are malformed.

The encodings of DOS and of Macs, and KOI8, are read only if an option names them.
"""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import BinaryIO

from connector.errors import ConfigurationError, SourceError

# If several encodings give the same text, messages name the first of these encodings.
_WESTERN_ENCODINGS = ("cp1252", "iso8859-1", "iso8859-15")
_CENTRAL_EUROPEAN_ENCODINGS = ("cp1250", "iso8859-2")
_TURKISH_ENCODINGS = ("cp1254", "iso8859-9")
_BALTIC_ENCODINGS = ("cp1257", "iso8859-13")
_CYRILLIC_ENCODINGS = ("cp1251", "iso8859-5")

# The letters beyond ASCII of a language, and the encodings of its files.
LANGUAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("àâæçéèêëîïôöœùûü", _WESTERN_ENCODINGS),  # French
    ("äöüßé", _WESTERN_ENCODINGS),  # German
    ("áéíñóúüç", _WESTERN_ENCODINGS),  # Spanish
    ("àáâãçéêíóôõúü", _WESTERN_ENCODINGS),  # Portuguese
    ("àèéìíîòóùú", _WESTERN_ENCODINGS),  # Italian
    ("àçèéíïñòóúü·", _WESTERN_ENCODINGS),  # Catalan
    ("áàäçéèëêíïóöôúü", _WESTERN_ENCODINGS),  # Dutch
    ("æøåéèêóòôüöä", _WESTERN_ENCODINGS),  # Danish, Norwegian
    ("åäöéèëüá", _WESTERN_ENCODINGS),  # Swedish
    ("åäöšž", _WESTERN_ENCODINGS),  # Finnish
    ("áéíóúýþæðö", _WESTERN_ENCODINGS),  # Icelandic
    ("áéíóúàèìòù", _WESTERN_ENCODINGS),  # Irish, Scottish
    ("ëç", (*_WESTERN_ENCODINGS, *_CENTRAL_EUROPEAN_ENCODINGS)),  # Albanian
    ("äöüõšž", (*_WESTERN_ENCODINGS, *_BALTIC_ENCODINGS)),  # Estonian
    ("ąćęłńóśźż", _CENTRAL_EUROPEAN_ENCODINGS),  # Polish
    ("áčďéěíňóřšťúůýžöü", _CENTRAL_EUROPEAN_ENCODINGS),  # Czech
    ("áäčďéíĺľňóôŕšťúýž", _CENTRAL_EUROPEAN_ENCODINGS),  # Slovak
    ("áéíóöőúüű", _CENTRAL_EUROPEAN_ENCODINGS),  # Hungarian
    ("čćđšž", _CENTRAL_EUROPEAN_ENCODINGS),  # Slovenian, Croatian
    ("ăâîşţ", _CENTRAL_EUROPEAN_ENCODINGS),  # Romanian
    ("çğıiöşüâîû", _TURKISH_ENCODINGS),
    ("āčēģīķļņōŗšūž", _BALTIC_ENCODINGS),  # Latvian
    ("ąčęėįšųūž", _BALTIC_ENCODINGS),  # Lithuanian
    ("абвгдеёжзийклмнопрстуфхцчшщъыьэюя", _CYRILLIC_ENCODINGS),  # Russian, Bulgarian
    ("абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", _CYRILLIC_ENCODINGS),  # Ukrainian
    ("абвгдеёжзійклмнопрстуўфхцчшыьэюя", _CYRILLIC_ENCODINGS),  # Belarusian
    ("абвгдђежзијклљмнњопрстћуфхцчџш", _CYRILLIC_ENCODINGS),  # Serbian
    ("абвгдѓежзѕијклљмнњопрстќуфхцчџш", _CYRILLIC_ENCODINGS),  # Macedonian
    ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ", ("cp1253", "iso8859-7")),  # Greek
    ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", ("cp1255", "iso8859-8")),  # Hebrew
    ("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيپچژگ", ("cp1256", "iso8859-6")),  # Arabic
)
_ENCODINGS = tuple(dict.fromkeys(encoding for _, encodings in LANGUAGES for encoding in encodings))
_ALPHABETS_BY_ENCODING = {
    encoding: tuple(frozenset(letters) for letters, encodings in LANGUAGES if encoding in encodings)
    for encoding in _ENCODINGS
}

# The rating of an encoding depends on the share of words whose letters beyond ASCII all belong to one language.
# With this exponent of the share, one or two foreign names hardly lower the rating, and many names lower it much.
_ALPHABET_SHARE_POWER = 4
# The likeliest encoding is chosen only if the lead of its rating is large enough. The lead is the difference between
# the first and the second rating, as a share of the first rating. Each pair has a number of different words, and the
# minimum lead for a text with this number of words or more.
# These leads were tested on 3,600 files of 1 to 10 rows of names in 29 languages.
# With these leads, no file with six or more words was read in a wrong encoding. Of the files with fewer words, 0.3 %
# were read in a wrong encoding.
_MIN_RATING_LEAD_BY_WORD_COUNT = ((6, 0.1), (3, 0.2), (0, 0.6))
# With each encoding, a share of the decoded words is impossible. An encoding is excluded if its share is larger than
# the smallest share by more than this value. Smaller differences may come from misspelt words.
_MAX_MISSPELT_WORD_SHARE = 0.01
# If the share of impossible words is larger than this value, the file has two encodings or an unknown encoding.
_MAX_IMPOSSIBLE_WORD_SHARE = 0.05
_MAX_LINES, _MAX_WORDS = 400, 200  # lines and words that are examined; in trials, more lines never changed the decision

_NON_ASCII_LINE_PATTERN = re.compile(rb"[^\r\n]*[\x80-\xff][^\r\n]*")
# Email addresses are removed before the encoding is chosen, because they seldom contain words of a language.
_ADDRESS_PATTERN = re.compile(rb"[^\s,;|\"]*@[^\s,;|\"]*")
_WORD_PATTERN = re.compile(rb"[A-Za-z\x80-\xff]+")
# Bytes below 0x40 are digits and punctuation in every encoding here.
_NON_ASCII_WORD_PATTERN = re.compile(rb"[\x40-\xff]*[\x80-\xff][\x40-\xff]*")

_INVALID_BYTES_PATTERN = re.compile("[\udc80-\udcff]")
_VALID_NON_ASCII_PATTERN = re.compile("[^\x00-\x7f\udc80-\udcff]")
# A text with at most 2 invalid bytes for each valid character beyond ASCII is damaged UTF-8.
# A text in another encoding has at least 4 invalid bytes for each of these characters.
_MAX_INVALID_BYTES_PER_VALID_CHARACTER = 2
# In UTF-16, many bytes at even or at odd positions are zero, because delimiters, addresses and numbers are ASCII.
# At the other positions (odd or even), zero bytes are rare.
_UTF_16_MIN_ZERO_SHARE = 0.3
_UTF_16_MAX_STRAY_SHARE = 0.01

_BEGINNING_BYTES = 1 << 18  # bytes that are examined first: a few thousand rows
_MAX_CHARACTER_BYTES = 4  # a character in UTF-8 has at most 4 bytes
_READ_BYTES = 1 << 20  # bytes that are read at a time; larger reads were not faster
_MAX_SAMPLE_WORDS = 4  # words that a message shows

_BOMS = (  # longer BOMs come first, because the BOM of UTF-32 begins with the BOM of UTF-16
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
_MIN_BINARY_SHARE = 0.1  # the beginning of a binary file has at least this share of control bytes

# A NUL stops a CSV reader, and the other characters break terminals. Tabs and line ends belong to records.
_CONTROL_CHARACTERS_PATTERN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

REPLACEMENT_CHARACTER = "\ufffd"
"""The character that programs write in place of an undecodable byte."""

# This character is invalid in UTF-8, so a row with this character is malformed, like a row with an invalid byte.
_LONE_SURROGATE = "\udcff"
_C1_CONTROLS_PATTERN = re.compile("[\x80-\x9f]")

_LONE_ACCENTS = frozenset("¨¯¸˘˙˚˛˜˝")  # no name contains an accent without a letter
# Characters between two letters: O’Brien, Gal·la, Müller–Lüdenscheidt, a soft hyphen.
_JOINING_CHARACTERS = frozenset("’‘'´·–—‑׳״\u00ad")
_OPENING_CHARACTERS = frozenset("«»“”„‘‚¿¡‹›–—")  # characters before the first letter of a word


@dataclass(frozen=True, slots=True)
class EncodingGuess:
    """The `encoding` of a text (Python's name), and a few of its decoded words. If the encoding is not certain,
    `encoding` is None. Then `likeliest_encoding` is the encoding that a message advises, and `reason` names the
    candidates."""

    encoding: str | None
    sample_words: tuple[str, ...] = ()
    likeliest_encoding: str = "cp1252"
    reason: str = ""


def find_bom_encoding(first_bytes: bytes) -> str | None:
    """Return the encoding that a byte order mark at the beginning of a file shows, or None."""
    return next((encoding for bom, encoding in _BOMS if first_bytes.startswith(bom)), None)


class Utf8Stream:
    """A file that is read as UTF-8 without its BOM. Undecodable bytes stay invalid UTF-8.

    `encoding` is the encoding of the file. `advised_encoding` is the encoding that messages about malformed rows
    advise. `remark` is a message about a detected or uncertain encoding, or None.
    """

    def __init__(self, name: str, file: BinaryIO, encoding: str) -> None:
        """Read `file` in `encoding`: `auto`, or a name that Python knows. `name` is the name of the file in errors.
        Raises ConfigurationError and SourceError."""
        self._name, self._file = name, file
        self.advised_encoding = "cp1252"
        self.remark: str | None = None
        self._is_guessed = False
        if encoding == "auto":
            encoding = self._find_encoding()
        try:
            "".encode(encoding)  # refuses codecs that are not text encodings, such as base64
            self.encoding = codecs.lookup(encoding).name.replace("utf-8-sig", "utf-8")
        except (LookupError, ValueError):
            raise ConfigurationError(
                f"encoding {encoding!r} is not known; use `auto`, `utf-8`, `cp1252`, `latin-1`, `utf-16` or another "
                "encoding that Python knows"
            ) from None
        self.rewind()

    def rewind(self) -> None:
        """Go back to the beginning of the file."""
        self._file.seek(0)
        self._is_first_piece = True
        # UTF-8 is not decoded, so that reading is fast and the rejects file can show each invalid byte.
        is_utf_8 = self.encoding == "utf-8"
        self._decoder = None if is_utf_8 else codecs.getincrementaldecoder(self.encoding)("connector.mark")

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, or no bytes at the end of the text. Raises SourceError."""
        pieces: list[bytes] = []
        while size > 0:
            piece = self._read_piece(min(size, _READ_BYTES))
            pieces.append(self._convert_to_utf8(piece))
            size -= len(pieces[-1])
            if not piece:
                break
        return b"".join(pieces)

    def _find_encoding(self) -> str:
        """Return the encoding. A BOM, the zero bytes of UTF-16, or the first piece with bytes beyond ASCII shows the
        encoding."""
        self._file.seek(0)
        piece = self._read_piece(_BEGINNING_BYTES)
        if bom_encoding := find_bom_encoding(piece):
            return bom_encoding
        # The positions of the zero bytes of ASCII characters show UTF-16 without a BOM.
        for utf_16_encoding, zero_bytes, other_bytes in (
            ("utf-16-le", piece[1::2], piece[::2]),
            ("utf-16-be", piece[::2], piece[1::2]),
        ):
            max_stray_count = _UTF_16_MAX_STRAY_SHARE * len(other_bytes)
            if (
                zero_bytes.count(0) > _UTF_16_MIN_ZERO_SHARE * len(zero_bytes)
                and other_bytes.count(0) <= max_stray_count
            ):
                self.remark = f"read as {utf_16_encoding}, recognised by its zero bytes, because it has no BOM"
                return utf_16_encoding
        if piece.startswith(tuple(signature for signature, _ in _BINARY_BEGINNINGS)) or _has_many_control_bytes(piece):
            return "utf-8"  # the encoding does not matter, because the CSV reader refuses a binary file
        while piece and piece.isascii():
            piece = self._read_piece(_READ_BYTES)
        if not piece:
            return "utf-8"
        # If only the last 4 bytes are not ASCII, they may be a part of one character. So another piece is read.
        if piece[:-_MAX_CHARACTER_BYTES].isascii():
            piece += self._read_piece(_READ_BYTES)
        encoding_guess = decide_encoding(piece)
        if encoding_guess.encoding is None:
            self.advised_encoding = encoding_guess.likeliest_encoding
            self.remark = (
                f"its encoding is not certain: {encoding_guess.reason}. Rows with characters outside ASCII were not "
                f"read; name the encoding and run again: {advise_encoding(self.advised_encoding)}"
            )
            return "utf-8"
        if encoding_guess.encoding != "utf-8":
            self._is_guessed = True
            self.remark = (
                f"read as {encoding_guess.encoding}, found by its words ({', '.join(encoding_guess.sample_words)}); if "
                f"these words are wrong, name the encoding: {advise_encoding('NAME')}"
            )
        return encoding_guess.encoding

    def _read_piece(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise SourceError(f"{self._name}: reading failed: {error.strerror or error}") from error

    def _convert_to_utf8(self, piece: bytes) -> bytes:
        if self._decoder is not None:
            text = self._decoder.decode(piece, final=not piece)
            # In ISO-8859-x, the bytes 0x80 to 0x9F are control characters. A row with such a byte was written in
            # another encoding, so the byte is marked as invalid.
            text = _C1_CONTROLS_PATTERN.sub(_LONE_SURROGATE, text) if self._is_guessed else text
            piece = text.encode("utf-8", "surrogatepass")
        if self._is_first_piece and piece:
            self._is_first_piece = False
            while piece.startswith(codecs.BOM_UTF8):  # there may be two BOMs if a program has added a second BOM
                piece = piece.removeprefix(codecs.BOM_UTF8)
        return piece


def decide_encoding(text_bytes: bytes) -> EncodingGuess:
    """Return the encoding of a text with some bytes beyond ASCII."""
    decoded_text = text_bytes.decode("utf-8", "surrogateescape")
    valid_non_ascii_count = len(_VALID_NON_ASCII_PATTERN.findall(decoded_text))
    invalid_byte_count = len(_INVALID_BYTES_PATTERN.findall(decoded_text))
    if valid_non_ascii_count and invalid_byte_count <= _MAX_INVALID_BYTES_PER_VALID_CHARACTER * valid_non_ascii_count:
        # Damaged UTF-8 counts as UTF-8, and only the rows with invalid bytes are malformed.
        return EncodingGuess("utf-8")
    lines = [
        _ADDRESS_PATTERN.sub(b"", line)
        for line in islice(map(bytes, _NON_ASCII_LINE_PATTERN.findall(text_bytes)), _MAX_LINES)
    ]
    words = list(
        islice(dict.fromkeys(word for line in lines for word in _NON_ASCII_WORD_PATTERN.findall(line)), _MAX_WORDS)
    )
    candidates = _rank_candidates(
        words, b" ".join(dict.fromkeys(word for line in lines for word in _WORD_PATTERN.findall(line)))
    )
    if not candidates or candidates[0].impossible_word_share > _MAX_IMPOSSIBLE_WORD_SHARE:
        return EncodingGuess(
            None,
            reason="its words are not possible words in any Windows or ISO encoding; a file from DOS, a Mac or an old "
            "Russian program may be in cp850, mac-roman or koi8-r",
        )
    best_candidate, *other_candidates = candidates
    min_rating_lead = next(
        min_lead for min_word_count, min_lead in _MIN_RATING_LEAD_BY_WORD_COUNT if len(words) >= min_word_count
    )
    if other_candidates and other_candidates[0].rating >= (1 - min_rating_lead) * best_candidate.rating:
        second_candidate = other_candidates[0]
        word_pairs = zip(best_candidate.words, second_candidate.words, strict=True)
        best_word, second_word = next((word, other_word) for word, other_word in word_pairs if word != other_word)
        reason = f"it may be {best_candidate.encoding} ({best_word}) or {second_candidate.encoding} ({second_word})"
        return EncodingGuess(None, likeliest_encoding=best_candidate.encoding, reason=reason)
    sample_words: list[str] = []
    sample_letters: set[str] = set()
    for word in best_candidate.words:  # each sample word has a letter that the earlier sample words do not have
        letters = _find_letters(word)
        if letters - sample_letters and len(sample_words) < _MAX_SAMPLE_WORDS:
            sample_letters |= letters
            sample_words.append(word.strip())
    return EncodingGuess(best_candidate.encoding, sample_words=tuple(sample_words or best_candidate.words[:1]))


def refuse_binary_file(name: str, first_bytes: bytes) -> None:
    """Raise SourceError if the `first_bytes` of a file (read as UTF-8) are empty or binary."""
    if not first_bytes.strip():
        raise SourceError(f"{name}: is empty; a CSV file begins with a header line that names its columns")
    for signature, problem in _BINARY_BEGINNINGS:
        if first_bytes.startswith(signature):
            raise SourceError(f"{name}: is {problem}")
    if _has_many_control_bytes(first_bytes):
        hint = f"if it is UTF-16 or UTF-32 without a BOM, name the encoding: {advise_encoding('utf-16-le')}"
        raise SourceError(f"{name}: is a binary file, not CSV" + (f"; {hint}" if 0 in first_bytes else ""))


def format_bytes(record: bytes) -> str:
    """Return a record as text for the rejects file. Invalid bytes and control characters are shown as \\xNN."""
    marked_record = record.replace(_LONE_SURROGATE.encode("utf-8", "surrogatepass"), REPLACEMENT_CHARACTER.encode())
    return _CONTROL_CHARACTERS_PATTERN.sub(lambda match: b"\\x%02x" % match[0][0], marked_record).decode(
        "utf-8", "backslashreplace"
    )


def advise_encoding(name: str) -> str:
    """Return the option and the job key that set a file's encoding, with `name` as the value."""
    return f"--encoding {name}, or source.file.encoding in a job"


@dataclass(slots=True)
class _CandidateEncoding:
    """An encoding that the text may have. `words` are the words decoded in this encoding. An encoding with a higher
    `rating` is likelier."""

    encoding: str
    words: tuple[str, ...]
    impossible_word_share: float
    rating: float = 0.0


def _rank_candidates(words: Sequence[bytes], text_bytes: bytes) -> list[_CandidateEncoding]:
    """Return the possible encodings of the words, the likeliest first. Encodings that decode all words to the same
    texts are one candidate."""
    if not words:
        return []
    import chardet  # imported here, because the import takes a tenth of a second, and most files are UTF-8

    # Chardet rates an encoding by the pairs of letters that are usual in the languages of the encoding.
    rating_by_encoding: dict[str, float] = {}
    for detection in chardet.detect_all(
        text_bytes, ignore_threshold=True, compat_names=False, include_encodings=_ENCODINGS
    ):
        if encoding_name := detection["encoding"]:
            rating_by_encoding[encoding_name] = max(rating_by_encoding.get(encoding_name, 0.0), detection["confidence"])
    candidate_by_words: dict[tuple[str, ...], _CandidateEncoding] = {}
    for encoding in _ENCODINGS:
        try:
            decoded_words = tuple(word.decode(encoding) for word in words)
        except UnicodeDecodeError:
            continue
        impossible_word_share = sum(not _is_possible_word(word) for word in decoded_words) / len(decoded_words)
        letter_sets = [_find_letters(word) for word in decoded_words]
        # Only Windows encodings have the apostrophe of a word such as O’Brien.
        rated_letter_sets = [letters for letters in letter_sets if letters or encoding.startswith("cp")]
        alphabet_share = max(
            sum(letters <= alphabet for letters in rated_letter_sets) for alphabet in _ALPHABETS_BY_ENCODING[encoding]
        ) / len(decoded_words)
        candidate = candidate_by_words.setdefault(
            decoded_words, _CandidateEncoding(encoding, decoded_words, impossible_word_share)
        )
        candidate.rating += rating_by_encoding.get(encoding, 0.0) * alphabet_share**_ALPHABET_SHARE_POWER
    smallest_impossible_word_share = min(
        (candidate.impossible_word_share for candidate in candidate_by_words.values()), default=0.0
    )
    likely_candidates = [
        candidate
        for candidate in candidate_by_words.values()
        if candidate.impossible_word_share <= smallest_impossible_word_share + _MAX_MISSPELT_WORD_SHARE
        and candidate.rating
    ]
    return sorted(likely_candidates, key=lambda candidate: -candidate.rating)


def _has_many_control_bytes(text_bytes: bytes) -> bool:
    control_character_count = sum(text_bytes.count(bytes([byte])) for byte in (*range(9), *range(14, 32)))
    return control_character_count > _MIN_BINARY_SHARE * len(text_bytes)


def _is_possible_word(word: str) -> bool:
    """Return whether a text without white space may be a word.

    All letters of a word must be of one script. Capitals, and characters between letters, must be at positions where
    words have them.
    """
    for word_part in word.split("\u00a0"):
        if any(unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs", "Lm", "Mn") for character in word_part):
            return False
        if (
            not _LONE_ACCENTS.isdisjoint(word_part)
            or len({script for character in word_part if (script := _get_script(character))}) > 1
        ):
            return False
        for index, character in enumerate(word_part):
            previous_text, next_text = word_part[index - 1 : index], word_part[index + 1 : index + 2]
            # A word has no capital after a small letter if one of the two letters is beyond ASCII (`éA`, `aÉ`).
            # A word has no capital beyond ASCII between another letter and a small letter (`AÉb`).
            if character.isupper() and previous_text.islower() and not (previous_text + character).isascii():
                return False
            if character.isupper() and not character.isascii() and previous_text.isalpha() and next_text.islower():
                return False
            if character.isascii() or unicodedata.category(character)[0] in "LM" or not next_text.isalpha():
                continue
            if character not in (_JOINING_CHARACTERS if previous_text.isalpha() else _OPENING_CHARACTERS):
                return False
    return True


def _find_letters(word: str) -> frozenset[str]:
    """Return the letters beyond ASCII in lower case. The separate dot of a Turkish capital I is left out."""
    return frozenset(letter for letter in word.casefold() if letter.isalpha() and not letter.isascii())


@lru_cache(maxsize=4096)
def _get_script(character: str) -> str | None:
    """Return the script of a letter (LATIN, CYRILLIC, …), which is the first word of the letter's Unicode name. Return
    None for a character without a script."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    script = unicodedata.name(character, "").partition(" ")[0]
    return None if script in ("COMBINING", "MODIFIER", "FEMININE", "MASCULINE", "MICRO") else script


def _replace_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _LONE_SURROGATE, error.end


# Decoders accept an error handler only by a registered name.
codecs.register_error("connector.mark", _replace_undecodable)
