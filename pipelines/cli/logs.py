"""The log of a command on standard error: events of `connector` and `pipelines` as text or as JSON lines.

An event is a message such as "page: offset %(offset)d" with a mapping of its values. A JSON line has each value of the
mapping under its key. No event has a token, an identity or the text of an answer.
"""

from __future__ import annotations

import codecs
import json
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TextIO

from connector.texts import escape_json, escape_to_one_line, make_visible, wrap_words

_LOGGER_NAMES = ("connector", "pipelines")
_LEVEL_BY_VERBOSITY = (logging.WARNING, logging.INFO, logging.DEBUG)
_RUN_LOGGER_NAMES = ("connector.runs.report", "pipelines.report.text", "pipelines.flows.engine")
"""Names of the loggers that log the beginning, the progress and the end of a run, and the end of each shard."""


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: `at` (UTC), `level`, `logger`, `event`, `message`, and the values of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON line of a log record."""
        values = dict(record.args) if isinstance(record.args, Mapping) else {}
        event_fields = {
            "at": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": str(record.msg).partition(":")[0],
            "message": record.getMessage(),
        }
        return escape_json(json.dumps(values | event_fields, ensure_ascii=not is_utf8(sys.stderr), default=str))


class _TextFormatter(logging.Formatter):
    """One line of text: the time (UTC), the level, the name of the logger, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log record. Hidden characters, for example in a file name, become escapes."""
        line = escape_to_one_line(record.getMessage())
        return f"{_format_time(record)} {record.levelname.lower():5} {record.name}  {line}"


class _PlainFormatter(logging.Formatter):
    """The message of a log record, without time and level."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log record."""
        return _wrap_message(escape_to_one_line(record.getMessage()))


class _StderrHandler(logging.Handler):
    """Writes to the current standard error. If the stream cannot be written to, the run continues without the line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a log record."""
        _write_line(self.format(record))


def is_utf8(stream: TextIO | None) -> bool:
    """Return whether a stream can show all characters. Also return True for a closed stream and a stream in memory."""
    encoding = getattr(stream, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def catch_warnings() -> None:
    """If a warning has no other handler, write the warning to stderr, as the standard library does, but with hidden
    characters as escapes."""
    handler = _StderrHandler(logging.WARNING)
    handler.setFormatter(_PlainFormatter())
    logging.lastResort = handler


def start_logging(verbosity: int, log_format: str) -> None:
    """Start the log. `log_format` is text or json. With `verbosity` 0, only warnings are logged. With 1, runs,
    look-ups, refusals and pauses are also logged. With 2, each page, batch and commit is also logged."""
    handler = _StderrHandler()
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    for name in _LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(_LEVEL_BY_VERBOSITY[min(verbosity, len(_LEVEL_BY_VERBOSITY) - 1)])


@contextmanager
def log_runs() -> Iterator[None]:
    """Log the beginning, the progress and the end of runs while the context lasts, at any verbosity."""
    loggers = [logging.getLogger(name) for name in _RUN_LOGGER_NAMES]
    handler = _StderrHandler()
    handler.setFormatter(_TextFormatter())
    handlers = [] if logging.getLogger(_LOGGER_NAMES[0]).handlers else [handler]
    previous_settings = [(logger, logger.level, logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
        logger.handlers = [*logger.handlers, *handlers]
    try:
        yield
    finally:
        for logger, level, previous_handlers in previous_settings:
            logger.setLevel(level)
            logger.handlers = previous_handlers


def is_logging() -> bool:
    """Return whether the log shows the events of runs."""
    return logging.getLogger(_LOGGER_NAMES[0]).isEnabledFor(logging.INFO)


def show_message(message: str) -> None:
    """Show a message on standard error. If the log is JSON, the message is a line of the log, so that all lines are
    JSON."""
    handlers = logging.getLogger(_LOGGER_NAMES[0]).handlers
    if handlers and isinstance(handlers[0].formatter, _JsonFormatter):
        logging.getLogger("pipelines.cli").warning("message: %(text)s", {"text": message})
    else:
        _write_line(_wrap_message(make_visible(message)))


def write_stderr(text: str) -> None:
    """Write text to standard error, if the stream can be written to. (This function
    replaces `click.echo`, which would write UTF-8 to a stream in ASCII.)"""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def _wrap_message(text: str) -> str:
    """Return the text for standard error: on a terminal, lines end between words."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    return wrap_words(text, shutil.get_terminal_size().columns)


def _write_line(line: str) -> None:
    write_stderr(f"{line}\n")


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
