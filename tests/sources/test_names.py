"""Column names are there, and each once."""

import pytest

from connector.sources.header_row import name_columns


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["a", "b"], ("a", "b")),
        ([" a ", "b\t"], ("a", "b")),
        (["", "a", " "], ("column 1", "a", "column 3")),
        (["a", "a", "a"], ("a", "a (2)", "a (3)")),
        (["a", "a", "a (2)"], ("a", "a (3)", "a (2)")),
        (["column 2", ""], ("column 2", "column 2 (2)")),
        ([], ()),
    ],
)
def test_names(given: list[str], named: tuple[str, ...]) -> None:
    assert name_columns(given) == named
