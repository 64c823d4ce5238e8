"""What a person at a terminal sees while a run goes on: one line on stderr; nothing where stderr is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

Describe = Callable[[], str]


class Progress:
    """A line that says what `follow` was last given to say, several times a second."""

    def __init__(self) -> None:
        self._describe: Describe = lambda: "starting"
        self._spinner = Spinner("dots")

    def follow(self, describe: Describe) -> None:
        """From now on say this."""
        self._describe = describe

    def render(self) -> Spinner:
        """The line as it stands."""
        self._spinner.update(text=Text(self._describe()))
        return self._spinner


@contextmanager
def show_progress(console: Console, *, is_quiet: bool) -> Iterator[Progress]:
    """Progress on `console` while the context lasts; it leaves no trace."""
    progress = Progress()
    if is_quiet or not console.is_terminal:
        yield progress
        return
    with Live(get_renderable=progress.render, console=console, refresh_per_second=8, transient=True):
        yield progress
