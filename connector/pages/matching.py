"""Whether listed subscribers are what was asked for: how the service's own filters match is not shown (service-api.md
4.3)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from connector.fields import normalise_email
from connector.pages.id_set import Mask

ReadValues = Callable[[str], Sequence[Any]]
"""Gives the values of a field by its name, one for each row of a page: as they came, None where absent or null."""

Match = Callable[[ReadValues], Mask]


def build_match(asked: Mapping[str, object]) -> Match | None:
    """A test of the rows of a page for `asked`, field name to value; None where nothing is asked.

    Emails are compared as identities, the gender "" as none at all (null or absent), everything else exactly. An email
    with blanks around it equals only itself: whether the service's filter finds it by the other, no trial can tell.
    """
    wanted = {name: _plain(name, value) for name, value in asked.items()}
    if not wanted:
        return None

    def match(read: ReadValues) -> Mask:
        tests = [[_plain(name, value) == plain for value in read(name)] for name, plain in wanted.items()]
        matches: Mask = np.logical_and.reduce(np.array(tests, dtype=np.bool_))
        return matches

    return match


def _plain(name: str, value: object) -> object:
    """The form in which two values of the field are equal; the type is part of it, since True is not 1."""
    if name == "gender" and value is None:
        value = ""
    if isinstance(value, str):
        return normalise_email(value) if name == "email" and value == value.strip() else value
    return (type(value), value)
