"""The words that mean true or false, or a gender: each read without regard to case."""

import pyarrow as pa

from connector.validation.cells import translate

FLAGS: dict[str, str] = {
    **dict.fromkeys(("true", "1", "yes", "t", "y"), "true"),
    **dict.fromkeys(("false", "0", "no", "f", "n"), "false"),
}

GENDERS: dict[str, str] = {"male": "male", "female": "female"}


def read_flags(cells: pa.Array) -> pa.Array:
    """`true` or `false` for each word, null for another."""
    return translate(cells, FLAGS)


def read_genders(cells: pa.Array) -> pa.Array:
    """`male` or `female` for each word, null for another."""
    return translate(cells, GENDERS)
