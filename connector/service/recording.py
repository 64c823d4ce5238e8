"""A recording of requests and answers that is fit for a bug report: names of fields, statuses, headers, sizes and times
as they were, and every personal value masked.

A masked text keeps its length, its case, its signs and which of its characters are digits, and a word is masked alike
wherever it stands: its letters are drawn by an HMAC under a key that no file ever holds. The token is in none of it.
"""

import hmac
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from connector.clock import Clock
from connector.errors import ConfigurationError
from connector.fields import FIELDS
from connector.service.settings import Service
from connector.service.wire import Ambiguous, Mask, NotSent, RawAnswer, Request

logger = logging.getLogger(__name__)

MOST_RECORDED = 1000  # requests: a first contact, and no import of a million
_ITEMS_SHOWN = 3  # of a list; a page has a thousand, and one looks like the next
_KEPT_NUMBERS = frozenset({"Id", "BaseId", "TotalCount", "Offset", "Limit", "offset", "limit", "IsActive"})
_KEPT_HEADERS = frozenset(
    {
        "connection", "content-encoding", "content-length", "content-type", "date", "keep-alive", "retry-after",
        "server", "transfer-encoding",
    }
)  # fmt: skip
_OUR_WORDS = frozenset(word.lower() for field in FIELDS for word in field.path) | {"subscriber", "base"}
_LONGEST_TEXT = 2000  # bytes of an answer that is no JSON
_LONGEST_CODE = 5  # digits of a number in a refusal; a longer one may be a phone or an account
_WORD = re.compile(r"[^\W_]+")
_VALUE = re.compile(r"""\S*@\S*|"[^"]*"|'[^']*'|`[^`]*`|«[^»]*»""")
_LETTERS, _DIGITS, _BEYOND = "abcdefghijklmnopqrstuvwxyz", "0123456789", "äëïöüáéíóú"


class RequestSender(Protocol):
    """What a client needs of a transport; simulations bring one of their own."""

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """Make one attempt; raises nothing but the cancellation that it is given."""


class RecordingSender:
    """Sends by another transport, and writes a line for each attempt. A recording that cannot be written ends, and the
    run goes on."""

    def __init__(self, sender: RequestSender, service: Service, path: Path, mask: Mask, clock: Clock) -> None:
        """Begin the recording at the end of `path`; `mask` hides the token. Raises ConfigurationError."""
        self._sender, self._clock = sender, clock
        self._values = Masking(token_bytes(32), mask)
        self._left = MOST_RECORDED
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"--record {path}: {error.strerror}; name another file") from None
        parts = urlsplit(service.base_url)
        self._write({"recording": 1, "scheme": parts.scheme, "host": parts.hostname, "path": parts.path,
                     "authorization": service.authorization})  # fmt: skip

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """Make one attempt, and record it, answered or not."""
        at, began, answer = self._clock.now(), self._clock.monotonic(), None
        try:
            answer = await self._sender.send(request)
            return answer
        finally:
            if self._left > 0:
                self._left -= 1
                took_ms = round(1000 * (self._clock.monotonic() - began), 1)
                self._record({"at": at.isoformat(timespec="milliseconds"), "took_ms": took_ms}, request, answer)
                if self._left == 0:
                    self._write({"ended": f"after {MOST_RECORDED:,} requests"})

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._file)

    def _record(
        self, line: dict[str, object], request: Request, answer: RawAnswer | NotSent | Ambiguous | None
    ) -> None:
        try:
            line |= self._values.describe_request(request) | self._values.describe_answer(answer, request)
        except RecursionError:  # of a hostile answer; what became of the request must reach the run all the same
            line["failed"] = "the answer is nested too deeply to be shown"
        self._write(line)

    def _write(self, line: Mapping[str, object]) -> None:
        try:
            os.write(self._file, orjson.dumps(line, default=str) + b"\n")
        except (OSError, orjson.JSONEncodeError) as error:
            self._left = -1
            logger.warning("the recording ends here: %s", error)


class Masking:
    """Describes requests and answers without their personal values, under one key."""

    def __init__(self, key: bytes, hide_token: Mask) -> None:
        self._key, self._hide_token = key, hide_token

    def describe_request(self, request: Request) -> dict[str, object]:
        """Return what was sent: method, path, parameters, and the body as JSON."""
        described: dict[str, object] = {"method": request.method, "path": request.path}
        if request.query:
            described["query"] = {name: self._mask(name, str(value)) for name, value in request.query}
        if request.body is not None:
            described["sent"] = self._read(request.body)
        return described

    def describe_answer(self, answer: RawAnswer | NotSent | Ambiguous | None, request: Request) -> dict[str, object]:
        """Return what came back: status, headers and body; or, without one, why."""
        if answer is None:
            return {"failed": "given up before an answer came"}
        if not isinstance(answer, RawAnswer):
            return {"failed": answer.message, "status": getattr(answer, "status", None)}
        headers = {
            self._name(str(name)): self._hide_token(value)
            if name.lower() in _KEPT_HEADERS or "ratelimit" in name.lower()
            else self.mask_text(value)
            for name, value in answer.headers.items()
        }
        described: dict[str, object] = {"status": answer.status, "headers": headers, "bytes": len(answer.body)}
        said = self._read_json(answer.body)
        is_refusal = answer.status >= 300 or (isinstance(said, dict) and said.get("success") is False)
        if said is not None and not is_refusal:
            return described | {"answer": self._mask_all("", said)}
        words = answer.body[:_LONGEST_TEXT].decode(errors="replace")
        if not is_refusal:  # a page that was cut, perhaps
            return described | {"text": self.mask_text(words)}
        sent = {
            word.lower() for word in _WORD.findall(f"{request.query} {(request.body or b'').decode(errors='replace')}")
        }
        if said is not None:
            return described | {"answer": self._mask_refusal(said, sent)}
        return described | {"text": self.mask_words(words, sent)}

    def mask_text(self, text: str) -> str:
        """Return the text with a random word of the same shape in place of each word."""
        return _WORD.sub(self._draw, text)

    def mask_words(self, text: str, sent: set[str]) -> str:
        """Return the words of a refusal, of which plain ones and names of fields stay. Masked are words that were
        `sent`, addresses, what is quoted, and words with a capital, a digit or a letter beyond ASCII."""

        def mask(found: re.Match[str]) -> str:
            word = found[0]
            if word.lower() in _OUR_WORDS:
                return word
            is_first = found.start() == 0 and found.end() < len(found.string)  # a name may stand alone
            is_plain = word.isascii() and word.isalpha() and (word.islower() or is_first)
            return word if is_plain and word.lower() not in sent else self._draw(found)

        text = _VALUE.sub(lambda found: self.mask_text(found[0]), self._hide_token(text))
        return _WORD.sub(mask, text)

    def _draw(self, found: re.Match[str]) -> str:
        word = found[0]
        stream = _stretch(self._key, word.lower(), len(word))
        return "".join(
            _draw_character(sign, number, place) for place, (sign, number) in enumerate(zip(word, stream, strict=False))
        )

    def _read(self, body: bytes) -> object:
        return self._mask_all("", self._read_json(body))

    @staticmethod
    def _read_json(body: bytes) -> Any:
        """Return the body as JSON; None if it is not JSON."""
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return None

    def _mask_all(self, name: str, value: object) -> object:
        """A value with all that is text, and each number that is no count or id, masked."""
        if isinstance(value, dict):
            return {self._name(key): self._mask_all(key, each) for key, each in value.items()}
        if isinstance(value, list):
            shown: list[object] = [self._mask_all(name, each) for each in value[:_ITEMS_SHOWN]]
            more = len(value) - _ITEMS_SHOWN
            return [*shown, f"and {more:,} more"] if more > 0 else shown
        return self._mask(name, value)

    def _mask(self, name: str, value: object) -> object:
        if value is None or isinstance(value, bool) or (name in _KEPT_NUMBERS and str(value).lstrip("-").isdigit()):
            return value
        masked = self.mask_text(str(value))
        return int(masked) if isinstance(value, int) else masked

    def _mask_refusal(self, value: object, sent: set[str]) -> object:
        """The same of a refusal, whose words say what was wrong; what is called as a field is, is masked."""
        if isinstance(value, dict):
            return {
                self._name(key): self._mask_all(key, each)
                if key.lower() in _OUR_WORDS
                else self._mask_refusal(each, sent)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._mask_refusal(each, sent) for each in value[:_ITEMS_SHOWN]]
        if isinstance(value, str):
            return self.mask_words(value, sent)
        return self._mask("", value) if len(str(value)) > _LONGEST_CODE else value

    def _name(self, key: str) -> str:
        """A key as it is, unless it may be a value itself."""
        is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,40}", key) and self._hide_token(key) == key
        return key if is_name else self.mask_text(key)


def _stretch(key: bytes, word: str, length: int) -> bytes:
    blocks = (
        hmac.digest(key, f"{number}:{word}".encode(errors="surrogatepass"), "sha256")
        for number in range(length // 32 + 1)
    )
    return b"".join(blocks)


def _draw_character(sign: str, number: int, place: int) -> str:
    if sign.isdigit():
        return sign if place == 0 and sign == "0" else _DIGITS[number % 10]  # a leading zero is often the fault
    drawn = (_LETTERS if sign.isascii() else _BEYOND)[number % (26 if sign.isascii() else 10)]
    return drawn.upper() if sign.isupper() else drawn
