"""Looks over HTTP, with any texts and any stance of the sandbox. `fake_list` has the other cases."""

from pathlib import Path
from typing import Any

import pytest

from connector.listing.lookup import look_by_filter
from connector.load.lookups import look_for
from connector.sandbox import SandboxProcess
from tests.load.sessions import BASE, look_at_sandbox, want
from tests.sandbox.calls import Calls

TEXTS = (
    "ann{}@x.org",
    "Bob{}@x.org",
    "cem{}@X.org",
    "an+n{}@x.org",
    "o'neil{}@x.org",
    "per%cent{}@x.org",
    "amp&is=a/{}@x.org",
    "jörg{}@x.org",
    "jörg{}@bücher.de",
    "ann{}@xn--bcher-kva.de",
)
"""Each a class of its own: whom the list has is number 1, who is looked for in vain number 2, the control number 3."""

KEYS = ("k{}", "K{}", "1234{}", "007{}", "a/b {}")


def fill(sandbox: SandboxProcess, *, base: int = BASE, numbers: tuple[int, ...] = (1, 3)) -> dict[str, int]:
    """Create numbers 1 and 3 of each class, with an email and a key, and give their ids by text."""
    ids = {}
    for number in numbers:
        for place, text in enumerate(TEXTS):
            key = KEYS[place % len(KEYS)].format(f"{number}-{place}")
            reply = Calls(sandbox).create(text.format(number), base={"Id": base}, ClientUserId=key)
            ids[text.format(number)] = reply.json["Subscriber"]["Id"]
    return ids


def all_wanted(number: int) -> list[Any]:
    return [want(text.format(number)) for text in TEXTS]


@pytest.mark.parametrize("order", ["id", "shuffled"])
@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_a_listed_subscriber_is_found_and_an_absent_one_is_missed_with_any_filters(
    sandbox: SandboxProcess, tmp_path: Path, filters: str, order: str
) -> None:
    ids = fill(sandbox)
    sandbox.switch(filters=filters, order=order)
    there, nobody = all_wanted(1), all_wanted(2)

    result = look_at_sandbox(sandbox, tmp_path, lambda session: look_for(session.access, there + nobody))

    assert result.found_ids == {subscriber.identity: (ids[subscriber.value],) for subscriber in there}
    assert result.absent_identities == {person.identity for person in nobody}


@pytest.mark.parametrize("filters", ["exact", "icase", "partial"])
def test_keys_are_found_by_their_filter_in_their_own_case(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    fill(sandbox)
    sandbox.switch(filters=filters)
    there = [want(KEYS[place % len(KEYS)].format(f"1-{place}"), "client_user_id") for place in range(len(TEXTS))]
    nobody = [want(KEYS[place % len(KEYS)].format(f"2-{place}"), "client_user_id") for place in range(len(TEXTS))]
    other = want("k1-1", "client_user_id")  # there is a K1-1, who is somebody else

    result = look_at_sandbox(
        sandbox, tmp_path, lambda session: look_by_filter(session.access, [*there, *nobody, other])
    )

    assert set(result.found_ids) == {person.identity for person in there}
    assert result.absent_identities - {other.identity} == {subscriber.identity for subscriber in nobody}
    # Unless the filter is exact, the only match of an answer may be the first of several.
    assert (other.identity in result.absent_identities) == (filters == "exact")
