"""The plain text of an HTML body, for whoever reads no HTML: inscriptis lays it out, this file tells links and tidies.

What inscriptis cannot lay out, as when elements are nested deeper than libxml2 goes, is told as its bare words.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connector.errors import ConfigurationError
from connector.mail.bare_words import extract_words, is_nested_deeply

if TYPE_CHECKING:
    from inscriptis.model.config import ParserConfig
    from inscriptis.model.html_document_state import HtmlDocumentState
    from inscriptis.model.html_element import HtmlElement

# Around a link's text and its address, until both are known: characters that Unicode keeps out of texts.
_START, _MIDDLE, _END = "\ufdd0", "\ufdd1", "\ufdd2"
_LINK = re.compile(f"{_START}([^{_START}{_MIDDLE}{_END}]*){_MIDDLE}([^{_START}{_MIDDLE}{_END}]*){_END}")
_REST_OF_LINK = re.compile(f"{_MIDDLE}([^{_MIDDLE}{_END}]*){_END}")
_MARKS = re.compile(f"[{_START}{_MIDDLE}{_END}]")
_UNTOLD = re.compile(r"\s*(#|cid:|javascript:|data:)|\s*$", re.IGNORECASE)
_SCHEME = re.compile(r"(?:mailto:|tel:|https?://)", re.IGNORECASE)
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_HIDES = re.compile(r"display\s*:\s*none", re.IGNORECASE)


def make_plain_text(html: str) -> str:
    """The text, links as `text [address]` and pictures by their alt; "" if there is none.

    No line ends in blanks, and no two lines in a row are empty. Raises ConfigurationError if inscriptis is missing.
    """
    clean = _MARKS.sub("", _NO_TEXT.sub(" ", html))
    config = _build_config()
    text = None if is_nested_deeply(clean) else _lay_out(clean, config)
    return _tidy(_tell_links(extract_words(clean) if text is None else text))


def _lay_out(html: str, config: "ParserConfig") -> str | None:
    """The text as inscriptis has it; None if it fails."""
    from inscriptis import get_text

    try:
        return str(get_text(html, config))
    except Exception:  # noqa: BLE001 - no HTML is an error (its words are told all the same), and parsers fail in many ways
        return None


def _build_config() -> "ParserConfig":
    try:
        from inscriptis.css_profiles import CSS_PROFILES
        from inscriptis.model.config import ParserConfig
        from inscriptis.model.tag import CustomHtmlTagHandlerMapping
    except ImportError:
        raise ConfigurationError(
            "making plain text of HTML needs inscriptis, which is not installed: "
            "pip install 'subscriber-connector[mail]'; or write the plain text yourself"
        ) from None
    handlers = CustomHtmlTagHandlerMapping(
        start_tag_mapping={"a": _start_link, "img": _tell_picture}, end_tag_mapping={"a": _end_link}
    )
    config = ParserConfig(css=CSS_PROFILES["strict"], custom_html_tag_handler_mapping=handlers)
    # Of styles only what hides: widths in pixels would become blanks, by the hundred thousand if a page says so.
    config.attribute_handler.attribute_mapping = {"style": _hide}
    return config


def _hide(style: str, element: "HtmlElement") -> None:
    from inscriptis.html_properties import Display

    if _HIDES.search(style):
        element.display = Display.none


def _start_link(state: "HtmlDocumentState", attributes: Mapping[str, Any]) -> None:
    address = attributes.get("href", "")
    state.link_target = "" if _UNTOLD.match(address) else address.strip()
    if state.link_target:
        state.tags[-1].write(_START)


def _end_link(state: "HtmlDocumentState") -> None:
    if state.link_target:
        state.tags[-1].write(f"{_MIDDLE}{state.link_target}{_END}")


def _tell_picture(state: "HtmlDocumentState", attributes: Mapping[str, Any]) -> None:
    state.tags[-1].write(attributes.get("alt", ""))


def _tell_links(text: str) -> str:
    """Links in words; one without a text is left out, and one whose text is its address is told once."""
    told = _LINK.sub(lambda found: _tell_link(found[1], found[2].strip()), text)
    return _MARKS.sub("", _REST_OF_LINK.sub(r" [\1]", told))  # the rest of those that a table's columns broke up


def _tell_link(text: str, address: str) -> str:
    plain = text.strip()
    if not plain or _SCHEME.sub("", plain).rstrip("/") == _SCHEME.sub("", address).rstrip("/"):
        return text
    return f"{text.rstrip()} [{address}]"


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.replace("\xa0", " ").replace("\r", "\n").split("\n")]
    kept = [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]
    return "\n".join(kept).strip("\n")
