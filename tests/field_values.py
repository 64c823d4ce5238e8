"""Valid values of each kind of field, for the tests that every kind of field must pass."""

from typing import assert_never

from hypothesis import strategies as st

from connector.fields import FieldKind

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

VALUES_BY_KIND: dict[FieldKind, st.SearchStrategy[object]] = {
    FieldKind.NUMBER: st.integers(1, 2**63 - 1),
    FieldKind.FLAG: st.booleans(),
    FieldKind.TEXT: _TEXTS,
    FieldKind.NULLABLE_TEXT: _TEXTS,
    FieldKind.EMAIL: st.emails(),
    FieldKind.GENDER: st.sampled_from(["male", "female", ""]),
    FieldKind.TAGS: st.lists(_TEXTS, max_size=4),
    FieldKind.COUNTRY: st.sampled_from(["NL", "GB"]),
    FieldKind.ZIP: st.integers(0, 2**53 - 1),
    FieldKind.DATE: st.dates().map(str),
}
"""Hypothesis strategies for the values that a create can send, by the kind of the field."""

CELL_BY_KIND: dict[FieldKind, str] = {
    FieldKind.NUMBER: "17",
    FieldKind.FLAG: "yes",
    FieldKind.TEXT: "text",
    FieldKind.NULLABLE_TEXT: "text",
    FieldKind.EMAIL: "a@x.com",
    FieldKind.GENDER: "male",
    FieldKind.TAGS: "a, b",
    FieldKind.COUNTRY: "nl",
    FieldKind.ZIP: "10115",
    FieldKind.DATE: "2000-01-01",
}
"""A valid cell of a source, for each kind of field."""

IS_DASH_MISSING_BY_KIND: dict[FieldKind, bool] = {
    FieldKind.NUMBER: False,
    FieldKind.FLAG: False,
    FieldKind.TEXT: False,
    FieldKind.NULLABLE_TEXT: False,
    FieldKind.EMAIL: False,
    FieldKind.GENDER: True,
    FieldKind.TAGS: False,
    FieldKind.COUNTRY: True,
    FieldKind.ZIP: True,
    FieldKind.DATE: True,
}
"""Whether a cell with only `-` means a missing value. In a field of digits, such as a phone number, this cell always
means a missing value."""

REFUSED_CELL_BY_KIND: dict[FieldKind, object] = {
    FieldKind.NUMBER: "seven",
    FieldKind.FLAG: "perhaps",
    FieldKind.TEXT: "a\x00b",
    FieldKind.NULLABLE_TEXT: "a\x00b",
    FieldKind.EMAIL: "ann",
    FieldKind.GENDER: "m",
    FieldKind.TAGS: ["a", "b\x07"],
    FieldKind.COUNTRY: "Narnia",
    FieldKind.ZIP: "no zip",
    FieldKind.DATE: "2001-02-29",
}
"""A cell, after the mapping, that is invalid for every field of the kind."""

CELLS_WITH_ONE_VALUE_BY_KIND: dict[FieldKind, tuple[object, object]] = {
    FieldKind.NUMBER: ("17", "17"),
    FieldKind.FLAG: ("yes", "TRUE"),
    FieldKind.TEXT: ("text", "text"),
    FieldKind.NULLABLE_TEXT: ("text", "text"),
    FieldKind.EMAIL: ("jose\u0301@x.com", "jos\u00e9@x.com"),
    FieldKind.GENDER: ("male", "MALE"),
    FieldKind.TAGS: (["a", "b"], ["a", "b"]),
    FieldKind.COUNTRY: ("nl", "Netherlands"),
    FieldKind.ZIP: ("10115", "10115"),
    FieldKind.DATE: ("2000-01-01", "2000-01-01"),
}
"""Two cells, after the mapping, that mean the same value. If a kind has only one spelling of a value, the two cells are
equal."""


def write_as_service(kind: FieldKind, value: object) -> object:
    """Return a sent value as the service may write it."""
    match kind:
        case FieldKind.ZIP:
            return str(value)
        case FieldKind.NUMBER:  # the service may write 4.0 as 4
            return int(value) if isinstance(value, float) and value.is_integer() else value
        case FieldKind.TEXT | FieldKind.NULLABLE_TEXT | FieldKind.EMAIL | FieldKind.GENDER | FieldKind.COUNTRY:
            return value
        case FieldKind.FLAG | FieldKind.TAGS | FieldKind.DATE:
            return value
        case _:
            assert_never(kind)
