"""Converts an HTML body to plain text: the words in their order, and links with their addresses.

Lines, list items and cells stay separate. Tables are not drawn, because most tables in emails are only layout.
"""

import re
from html.parser import HTMLParser

_BLOCKS = frozenset(
    {"address", "article", "aside", "body", "center", "dd", "div", "dt", "fieldset", "figure", "footer", "form",
     "header", "hr", "html", "li", "main", "nav", "option", "section", "tbody", "tr"}
)  # fmt: skip
_APART = frozenset(
    {"blockquote", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"}
)  # blocks with an empty line before and after
_HIDDEN = frozenset({"head", "noframes", "script", "style", "template", "title"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_ENDED_BY_THEIR_LIKE = frozenset({"dd", "dt", "li", "option", "p", "td", "th", "tr"})
_HIDES = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_BLANKS = re.compile(r"[ \t\n\r\f]+")
_NO_ADDRESS = re.compile(r"\s*(#|cid:|javascript:|data:)|\s*$", re.IGNORECASE)
_SCHEME = re.compile(r"(?:mailto:|tel:|https?://)", re.IGNORECASE)
_LINE, _GAP = "\x1e", "\x1f"  # marks for a new line, and for an empty line before it; repeated marks count once
_DEEPEST_LIST = 8  # deeper lists get no more indentation


def html_to_text(html: str) -> str:
    """Return the text of any HTML, or "" for HTML without text. A link becomes `text [address]`, and a picture its alt.

    No line ends in blanks, and no two lines in a row are empty.
    """
    reader = _Reader()
    reader.feed(_NO_TEXT.sub(" ", html))
    reader.close()
    reader.end_link()
    text = re.sub(" +", " ", "".join(reader.pieces))
    text = re.sub(rf"[ \t{_LINE}]*{_GAP}[ \t{_LINE}{_GAP}]*", "\n\n", text)
    text = re.sub(rf"[ \t]*\n?[ \t]*{_LINE}[ \t{_LINE}]*|[ \t]*\n[ \t]*", "\n", text)
    text = re.sub(r" ?\t[ \t]*", "  ", text).replace("\xa0", " ")
    lines = (line.rstrip() for line in text.split("\n"))  # rstrip removes every blank of Unicode
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


class _Reader(HTMLParser):
    """Collects pieces of text. A tab separates cells, and a no-break space is a blank that is kept."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden, self._depth = "", 0  # tag of the open hidden element, and the number of open elements of the tag
        self._link, self._link_start = "", 0
        self._lists: list[int | None] = []  # the last number of each open list, or None for a list without numbers
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden and tag == self._hidden in _ENDED_BY_THEIR_LIKE:
            self._hidden = ""
        if self._hidden:
            self._depth += tag == self._hidden
            return
        values = dict(attrs)
        if tag in _HIDDEN or (tag not in _VOID and _HIDES.search(values.get("style") or "")):
            self._hidden, self._depth = tag, 1
        self._break_line(tag)
        if tag == "br":
            self.pieces.append("\n")
        elif tag in ("td", "th"):
            self.pieces.append("\t")
        elif tag == "img":
            self.pieces.append(_BLANKS.sub(" ", values.get("alt") or ""))
        elif tag == "a":
            self.end_link()
            href = values.get("href") or ""
            self._link = "" if _NO_ADDRESS.match(href) else _BLANKS.sub("", href)
            self._link_start = len(self.pieces)
        elif tag in ("ul", "ol"):
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self.pieces.append(self._mark_item())
        elif tag == "pre":
            self._preformatted += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # in HTML, <div/> begins an element

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            self._hidden = self._hidden if self._depth else ""
            return
        self._break_line(tag)
        if tag == "a":
            self.end_link()
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._preformatted:
            self.pieces.append(data.replace(" ", "\xa0").replace("\t", "\xa0" * 4).replace("\r", "").replace("\f", ""))
        else:
            self.pieces.append(_BLANKS.sub(" ", data))

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Skip `<![…]>` as a browser does: Python raises AssertionError for most of them."""
        return self.rawdata.find(">", i) + 1 or -1

    def end_link(self) -> None:
        """Write the address of the open link, unless the text of the link is the address."""
        text = "".join(self.pieces[self._link_start :]).strip() if self._link else ""
        if text and _SCHEME.sub("", text).rstrip("/") != _SCHEME.sub("", self._link).rstrip("/"):
            self.pieces.append(f" [{self._link}]")
        self._link = ""

    def _break_line(self, tag: str) -> None:
        if tag in _APART:
            is_inner_list = tag in ("ul", "ol") and len(self._lists) > 0
            self.pieces.append(_LINE if is_inner_list else _GAP)
        elif tag in _BLOCKS:
            self.pieces.append(_LINE)

    def _mark_item(self) -> str:
        indent = "\xa0\xa0" * min(max(len(self._lists) - 1, 0), _DEEPEST_LIST)
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            return f"{indent}{number + 1}. "
        return f"{indent}* "
