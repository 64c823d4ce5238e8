"""Valid values of each kind of field, for the tests that every kind of field must pass."""

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
"""The values as a create sends them."""

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
"""A cell of a source."""


def write_as_service(kind: FieldKind, value: object) -> object:
    """Return a sent value as the service may write it: a zip as a text, and a number without its decimals if all of
    them are zeros (4 for 4.0)."""
    if kind is FieldKind.ZIP:
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
