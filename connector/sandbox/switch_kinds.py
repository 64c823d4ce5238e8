"""What the value of a switch may be: each kind reads a text (`--set`) or a JSON value (control)."""

import math
from dataclasses import dataclass
from typing import Any, Protocol


class Kind(Protocol):
    """The values a switch takes."""

    def parse(self, given: object) -> object:
        """The value of the switch; raises ValueError saying what is taken instead."""

    def describe(self) -> str:
        """The values in words, for messages and the reference."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a few."""

    words: tuple[str, ...]

    def parse(self, given: object) -> object:
        """The word itself; a whole number stands for its digits."""
        word = str(given) if type(given) is int else given
        if word not in self.words:
            raise ValueError(f"it takes {self.describe()}")
        return word

    def describe(self) -> str:
        """`a | b | c`."""
        return " | ".join(self.words)


def _read_number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return math.nan
    try:
        return float(given)
    except (ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True, slots=True)
class Number:
    """A number between two bounds, both included; `is_whole` ones are int, the others float."""

    low: float
    high: float = math.inf
    is_whole: bool = False

    def parse(self, given: object) -> object:
        """An int or a float by `is_whole`."""
        value = _read_number(given)
        if not math.isfinite(value) or not self.low <= value <= self.high or (self.is_whole and value % 1):
            raise ValueError(f"it takes {self.describe()}")
        return int(value) if self.is_whole else value

    def describe(self) -> str:
        """`a number, 0 to 1`, or `a whole number from 0`."""
        noun = "a whole number" if self.is_whole else "a number"
        return f"{noun} from {self.low:g}" if math.isinf(self.high) else f"{noun}, {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers from `low` on, with commas between them, or a JSON array of numbers."""

    low: float

    def parse(self, given: object) -> object:
        """A tuple of floats."""
        each = Number(self.low)
        parts = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
        try:
            return tuple(each.parse(part) for part in parts)  # type: ignore[attr-defined]  # else a TypeError
        except (TypeError, ValueError):
            raise ValueError(f"it takes {self.describe()}") from None

    def describe(self) -> str:
        """`numbers from 0 with commas between`."""
        return f"numbers from {self.low:g} with commas between"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Texts `left=right` with commas between them, or a JSON object of texts, or an array of pairs."""

    def parse(self, given: object) -> object:
        """A tuple of pairs of texts, trimmed."""
        parts: Any = given
        if isinstance(given, str):
            parts = [part.split("=", 1) for part in given.split(",") if part.strip()]
        elif isinstance(given, dict):
            parts = given.items()
        try:
            pairs = tuple((left.strip(), right.strip()) for left, right in parts)
        except (TypeError, ValueError, AttributeError):
            pairs = (("", ""),)
        if not all(left and right for left, right in pairs):
            raise ValueError(f"it takes {self.describe()}")
        return pairs

    def describe(self) -> str:
        """`left=right, with commas between`."""
        return "left=right, with commas between"


@dataclass(frozen=True, slots=True)
class Flag:
    """On or off."""

    def parse(self, given: object) -> object:
        """True or False."""
        if isinstance(given, bool):
            return given
        if given not in ("true", "false"):
            raise ValueError(f"it takes {self.describe()}")
        return given == "true"

    def describe(self) -> str:
        """`true | false`."""
        return "true | false"


@dataclass(frozen=True, slots=True)
class Words:
    """Words with commas between them, or a JSON array of texts; `allowed` empty allows any word."""

    allowed: tuple[str, ...] = ()

    def parse(self, given: object) -> object:
        """A tuple of texts, trimmed, the empty ones left out."""
        parts = given.split(",") if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"it takes {self.describe()}")
        words = tuple(part.strip() for part in parts if part.strip())
        if self.allowed and set(words) - set(self.allowed):
            raise ValueError(f"it takes {self.describe()}")
        return words

    def describe(self) -> str:
        """The words that may be named."""
        return "words with commas between" + (f", of: {', '.join(self.allowed)}" if self.allowed else "")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text on one line that contains `must_contain`."""

    must_contain: str = ""

    def parse(self, given: object) -> object:
        """The text as it came."""
        if not isinstance(given, str) or self.must_contain not in given or not given.isprintable():
            raise ValueError(f"it takes {self.describe()}")
        return given

    def describe(self) -> str:
        """What the text must be."""
        return "a text" + (f" with {self.must_contain} in it" if self.must_contain else "")
