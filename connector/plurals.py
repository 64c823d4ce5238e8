"""Counts in words, so that numbers agree with their nouns."""


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def agree(number: int, singular: str, plural: str) -> str:
    """Return the form of a verb or another word for this number: `has` or `have`."""
    return singular if number == 1 else plural
