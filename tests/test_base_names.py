"""Names of bases: spellings of one name, names that a service may confuse, and the base of a listed row."""

import unicodedata

import pytest

from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.fields import fold_base_name, is_similar_base_name
from connector.ledger.store import Base
from connector.listing.base_reader import BaseReader


@pytest.mark.parametrize(
    ("requested_name", "listed_name", "relation"),
    [
        ("café zürich", unicodedata.normalize("NFD", "Café Zürich"), "same"),
        ("our News", " Our  News ", "same"),
        ("r&d  &quot;North&quot; <1>", "R&amp;D &#34;North&#34; &lt;1&gt;", "same"),
        ("R&amp;amp;D", "R&D", "same"),
        ("Café Zürich", "Cafe Zurich", "similar"),
        ("Kunden und Partner 2025 alle", "Kunden und Partner 2", "similar"),
        ("Kunden und Partner 2025", "Kunden und Partner…", "other"),
        ("Kunden und Partner der Firma", "Kunden und Partner der", "similar"),
        ("Newsletters", "Newsletter", "similar"),
        ("Newsletter", "News", "other"),
        ("Kunden 2025", "Kunden", "other"),
        ("Newsletter Süd", "Newsletter Nord", "other"),
    ],
)
def test_two_names_of_bases_are_the_same_or_similar_or_different(
    requested_name: str, listed_name: str, relation: str
) -> None:
    is_same = fold_base_name(requested_name) == fold_base_name(listed_name)
    is_similar = is_similar_base_name(requested_name, listed_name)
    assert (is_same, is_similar) == {"same": (True, True), "similar": (False, True), "other": (False, False)}[relation]


NO_ID_MESSAGE, NO_NAME_MESSAGE = "does not show the Id of", "does not show the name of"


@pytest.mark.parametrize(
    ("known_id", "requested_name", "listed_base", "expected_result"),
    [
        (7, None, {"Id": 7}, True),
        (7, None, {"Id": 8, "Name": "News"}, False),
        (7, "News", {"Id": 7}, True),
        (7, "News", {"Id": 7, "Name": "NEWS"}, True),
        (7, "News", {"Id": 7, "Name": "Old news"}, RunAborted("7 is no longer called News")),
        (7, "News", {"Id": 8, "Name": "News"}, ConfigurationError("several bases are called News (ids 7, 8)")),
        (7, "News", {"Id": 8, "Name": "Shop"}, False),
        (7, "News", {"Name": "Shop"}, False),
        (7, "News", {"Name": "News"}, ConfigurationError(NO_ID_MESSAGE)),
        (7, None, {"Name": "News"}, ConfigurationError(NO_ID_MESSAGE)),
        (7, None, {"Id": None}, ConfigurationError(NO_ID_MESSAGE)),
        (7, None, None, ConfigurationError(NO_ID_MESSAGE)),
        (None, "News", {"Id": 8, "Name": "Shop"}, False),
        (None, "News", {"Id": 8, "Name": "News"}, True),
        (None, "News", {"Id": 8}, ConfigurationError(NO_NAME_MESSAGE)),
    ],
    ids=str,
)
def test_a_listed_row_belongs_to_the_base_or_not_and_an_unclear_base_ends_the_run(
    known_id: int | None, requested_name: str | None, listed_base: object, expected_result: bool | ConnectorError
) -> None:
    reader = BaseReader(Base(1, "https://a.example", known_id, requested_name), requested_name, ["email"])
    try:
        result: bool | ConnectorError = reader.is_of_base(listed_base)
    except (ConfigurationError, RunAborted) as error:
        result = error
    assert type(result) is type(expected_result)
    assert str(expected_result) in str(result)
