"""Look-ups over HTTP, with unusual texts and every setting of the sandbox's filters. `fake_list` has the other
cases."""

from pathlib import Path

import pytest

from connector.listing.access import LookupKey
from connector.listing.lookup import look_up_by_filters
from connector.load.lookups import look_up_all
from connector.sandbox import SandboxProcess
from tests.load.sessions import BASE, build_key, run_with_sandbox
from tests.sandbox.client import SandboxClient

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
"""A text of each class. Number 1 is on the list and looked up, number 2 is looked up and not on the list, and number 3
is the control."""

KEYS = ("k{}", "K{}", "1234{}", "007{}", "a/b {}")


def fill_sandbox(sandbox: SandboxProcess, *, base: int = BASE, numbers: tuple[int, ...] = (1, 3)) -> dict[str, int]:
    """Create numbers 1 and 3 of each class, with an email and a client_user_id. Return their ids by email."""
    ids = {}
    for key_number in numbers:
        for index, text in enumerate(TEXTS):
            key = KEYS[index % len(KEYS)].format(f"{key_number}-{index}")
            reply = SandboxClient(sandbox).create(text.format(key_number), base={"Id": base}, ClientUserId=key)
            ids[text.format(key_number)] = reply.json["Subscriber"]["Id"]
    return ids


def build_keys(person_number: int) -> list[LookupKey]:
    return [build_key(text.format(person_number)) for text in TEXTS]


@pytest.mark.parametrize("order", ["id", "shuffled"])
@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_listed_and_absent_subscribers_are_recognised_with_any_filters(
    sandbox: SandboxProcess, tmp_path: Path, filters: str, order: str
) -> None:
    ids = fill_sandbox(sandbox)
    sandbox.switch(filters=filters, order=order)
    listed_keys, absent_keys = build_keys(1), build_keys(2)

    result = run_with_sandbox(sandbox, tmp_path, lambda session: look_up_all(session.access, listed_keys + absent_keys))

    assert result.found_ids == {key.identity: (ids[key.value],) for key in listed_keys}
    assert result.absent_identities == {key.identity for key in absent_keys}


@pytest.mark.parametrize("filters", ["exact", "icase", "partial"])
def test_client_user_ids_are_found_only_with_the_same_capitals(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    fill_sandbox(sandbox)
    sandbox.switch(filters=filters)
    listed_keys, absent_keys = (
        [
            build_key(KEYS[index % len(KEYS)].format(f"{key_number}-{index}"), "client_user_id")
            for index in range(len(TEXTS))
        ]
        for key_number in (1, 2)
    )
    other_case = build_key("k1-1", "client_user_id")  # K1-1 is another subscriber

    result = run_with_sandbox(
        sandbox, tmp_path, lambda session: look_up_by_filters(session.access, [*listed_keys, *absent_keys, other_case])
    )

    assert set(result.found_ids) == {key.identity for key in listed_keys}
    assert result.absent_identities - {other_case.identity} == {key.identity for key in absent_keys}
    # Unless the filter is exact, the only match of an answer may be the first of several.
    assert (other_case.identity in result.absent_identities) == (filters == "exact")
