"""What a person at a terminal sees while a run goes on: one line on stderr; nothing where stderr is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Describe = Callable[[], str]


class Progress:
    """A line that says what `follow` was last given to say, several times a second."""

    def __init__(self) -> None:
        self.describe: Describe = lambda: "starting"

    def follow(self, describe: Describe) -> None:
        """From now on say this."""
        self.describe = describe


@contextmanager
def show_progress(*, is_quiet: bool) -> Iterator[Progress]:
    """Progress on stderr while the context lasts; it leaves no trace."""
    progress = Progress()
    if is_quiet or sys.stderr is None or not sys.stderr.isatty():
        yield progress
        return
    from rich.console import Console  # a run without a terminal does not pay for it
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def render() -> Spinner:
        spinner.update(text=Text(progress.describe()))
        return spinner

    with Live(get_renderable=render, console=Console(stderr=True), refresh_per_second=8, transient=True):
        yield progress
