"""The words of HTML without any layout, by Python's own reader: however deep it is nested, and whatever is wrong."""

from collections import Counter
from html.parser import HTMLParser

_HIDDEN = frozenset({"script", "style", "title", "template"})
_IN_LINE = frozenset({"a", "abbr", "b", "big", "code", "em", "font", "i", "img", "s", "small", "span", "strong", "sub",
                      "sup", "tt", "u"})  # fmt: skip
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_DEEPEST = 200
"""Elements within each other; libxml2 gives up at 256, without a word, and adds some of its own."""


def extract_words(html: str) -> str:
    """The text of all elements that show one; each that is no part of a line begins a new one."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return "\n".join(" ".join(line.split()) for line in "".join(reader.words).split("\n"))


def is_nested_deeply(html: str) -> bool:
    """Whether elements are within each other at more than _DEEPEST levels."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.deepest > _DEEPEST


class _Reader(HTMLParser):
    """Collects words and counts levels; an element begun within its like takes its place, as with li or p."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.deepest = 0
        self._open: list[str] = []
        self._counts: Counter[str] = Counter()
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        if tag not in _IN_LINE:
            self.words.append("\n")
        if tag == "img":
            self.words.append(dict(attrs).get("alt") or "")
        if tag not in _VOID:
            if tag in ("li", "p", "td", "tr", "option") and self._open and self._open[-1] == tag:
                self._close(tag)
            self._open.append(tag)
            self._counts[tag] += 1
            self.deepest = max(self.deepest, len(self._open))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # to HTML, <div/> is a beginning

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(self._hidden - (tag in _HIDDEN), 0)
        if tag not in _IN_LINE:
            self.words.append("\n")
        self._close(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(" ".join(data.split("\n")))

    def _close(self, tag: str) -> None:
        """End the innermost element of this name, and those within it; no such element is no end."""
        ended = None
        while self._counts[tag] and ended != tag:
            ended = self._open.pop()
            self._counts[ended] -= 1
