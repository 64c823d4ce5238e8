"""Pictures that an HTML body names by file, made parts of the email: nothing of the HTML changes but those `src`.

Left alone is what is not a local file to begin with: addresses (http:, //…), cid: and data:, srcset, styles, comments.
"""

import hashlib
import html as entities
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from connector.mail.files import read_attachment
from connector.protocol.email import Attachment
from connector.protocol.email_rules import MessageError

FIELD = "Email.Html"

_TAG_NAME = re.compile(r"<[^\s/>]*")
# An attribute as HTML's tokenizer and Python's have it: a name, and perhaps a value in quotes of either kind or none.
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>][^\s/=>]*)(?:\s*=+\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?""")
_MOST_QUOTED = 200  # characters of a src in a message: what is longer is hardly a path
_BLANKS = " \t\n\r\f"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ONLY_HERE = re.compile(r"(?:file|[A-Za-z]):", re.IGNORECASE)  # file:///x and C:\x; no address is of one letter


class _Source(NamedTuple):
    """Where in the HTML a picture's `src` stands, without its quotes; `start` and `end` count characters."""

    start: int
    end: int
    line: int


def inline_images(html: str, folder: Path, *, most_bytes: int) -> tuple[str, tuple[Attachment, ...]]:
    """The HTML with a `cid:` for each local picture, and the pictures, each once; paths are relative to `folder`.

    A content id is of the content, so the same from run to run. `most_bytes` holds for each file.
    Raises MessageError with the file and its line: it is missing, unreadable, too large, or outside of `folder`.
    """
    parts: dict[str, Attachment] = {}
    pieces: list[str] = []
    done = 0
    for source in _find_sources(html):
        path = _find_file(entities.unescape(html[source.start : source.end]), folder, source.line)
        if path is None:
            continue
        part = _read_part(path, most_bytes)
        parts.setdefault(str(part.content_id), part)
        pieces += [html[done : source.start], f"cid:{part.content_id}"]
        done = source.end
    return "".join([*pieces, html[done:]]), tuple(parts.values())


def _find_sources(html: str) -> Iterator[_Source]:
    finder = _ImageFinder()
    finder.feed(html)
    finder.close()
    starts = [0, *(found.end() for found in re.finditer("\n", html))]
    for line, column, tag in finder.found:
        inside = _find_value(tag)
        if inside is not None:
            at = starts[line - 1] + column
            yield _Source(at + inside[0], at + inside[1], line)


def _find_value(tag: str) -> tuple[int, int] | None:
    """Where in an img tag the value of its first `src` is: the first of a name counts."""
    name = _TAG_NAME.match(tag)
    at = name.end() if name else 0
    while found := _ATTRIBUTE.match(tag, at):
        at = found.end()
        if found[1].lower() == "src":
            if found[2] is None:
                return None
            is_quoted = found[2][0] in "\"'"
            is_closed = not is_quoted and tag[found.end(2) :] == ">" and found[2].endswith("/")  # <img src=a.png/>
            return found.start(2) + is_quoted, found.end(2) - is_quoted - is_closed
    return None


def _find_file(source: str, folder: Path, line: int) -> Path | None:
    """The file that a `src` names; None when it names none."""
    source = source.strip(_BLANKS)
    if _ONLY_HERE.match(source):
        raise _fault(source, line, "is a path of this machine alone; write it relative to the HTML file")
    name = unquote(re.split(r"[?#]", source, maxsplit=1)[0])
    if not name or source.startswith(("//", "\\\\")) or _SCHEME.match(source):
        return None
    path = folder / name
    try:
        is_inside = path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # missing, links in a circle, a NUL
        raise _fault(source, line, f"does not exist in {str(folder)!r}; give its path relative to it") from None
    if not is_inside:
        raise _fault(source, line, f"is outside of {str(folder)!r}; copy it there")
    return path


def _read_part(path: Path, most_bytes: int) -> Attachment:
    plain = read_attachment(path, most_bytes=most_bytes, field=FIELD)
    digest = hashlib.sha256(plain.mime_type.encode() + b"\0" + plain.content).hexdigest()[:32]
    return Attachment(plain.content, plain.filename, plain.mime_type, "inline", f"{digest}@inline")


def _fault(source: str, line: int, words: str) -> MessageError:
    return MessageError(FIELD, f"the picture {source[:_MOST_QUOTED]!r} in line {line} {words}")


class _ImageFinder(HTMLParser):
    """Python's own reader of HTML, which calls for each tag; it alone knows what is a comment or a script."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[int, int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and any(name == "src" and value for name, value in attrs):
            self.found.append((*self.getpos(), self.get_starttag_text() or ""))
