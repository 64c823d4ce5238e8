"""Texts as both stores can keep them: PostgreSQL's hold no NUL, and UTF-8 no half of a surrogate pair."""


def keep_text(text: str) -> str:
    """The text with what cannot be kept written out, as `\\x00` and `\\ud800`; every other text as it is."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def keep_optional(text: str | None) -> str | None:
    """The same; None stays None."""
    return None if text is None else keep_text(text)
