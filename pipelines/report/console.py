"""A console of rich that shows hidden characters of data as escapes. The colours that the console adds still work."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from connector.texts import make_visible, wrap_words


class PlainConsole(Console):
    """Makes hidden characters visible, before rich measures the width of a text and again before rich writes the text.
    If `has_unicode` is False, tables have ASCII borders. Otherwise the encoding of the stream decides."""

    def __init__(self, *, has_unicode: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self._has_unicode = has_unicode

    @property
    def encoding(self) -> str:
        """The encoding from which rich decides whether borders are Unicode or ASCII."""
        return super().encoding if self._has_unicode else "ascii"

    def write_text(self, text: str, style: str | None = None, indent: int = 0) -> None:
        """Print a text without markup. On a terminal, lines end between words, and each further line is indented. A
        long word, such as a path, stays whole. Elsewhere the text stays on its line."""
        lines = wrap_words(make_visible(text), self.width, indent) if self.is_terminal else make_visible(text)
        self.print(lines, style=style, soft_wrap=True, markup=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text for rich, with hidden characters as escapes."""
        return super().render_str(make_visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces of text that rich writes, with hidden characters as escapes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(make_visible(segment.text), segment.style)
