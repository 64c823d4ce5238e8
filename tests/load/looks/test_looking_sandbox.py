"""Look-ups over HTTP, with unusual texts and every setting of the sandbox's filters. `fake_list` has the other
cases."""

from pathlib import Path

import pytest

from connector.listing.access import LookupKey
from connector.load.lookups import look_up_all
from connector.sandbox import SandboxProcess
from tests.load.sessions import BASE_ID, build_key, run_with_sandbox
from tests.sandbox.client import SandboxClient

EMAIL_PATTERNS = (
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

CLIENT_USER_ID_PATTERNS = ("k{}", "K{}", "1234{}", "007{}", "a/b {}")


def fill_sandbox(
    sandbox: SandboxProcess, *, base_id: int = BASE_ID, key_numbers: tuple[int, ...] = (1, 3)
) -> dict[str, int]:
    """Create a subscriber for each number of `key_numbers` and each pattern of an email. Each has a client_user_id.
    Return the ids of the subscribers by email."""
    ids_by_email = {}
    for key_number in key_numbers:
        for index, email_pattern in enumerate(EMAIL_PATTERNS):
            client_user_id = CLIENT_USER_ID_PATTERNS[index % len(CLIENT_USER_ID_PATTERNS)].format(
                f"{key_number}-{index}"
            )
            reply = SandboxClient(sandbox).create(
                email_pattern.format(key_number), base={"Id": base_id}, ClientUserId=client_user_id
            )
            ids_by_email[email_pattern.format(key_number)] = reply.json["Subscriber"]["Id"]
    return ids_by_email


def build_keys(key_number: int) -> list[LookupKey]:
    return [build_key(email_pattern.format(key_number)) for email_pattern in EMAIL_PATTERNS]


@pytest.mark.parametrize("order", ["id", "shuffled"])
@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_listed_and_absent_subscribers_are_recognised_with_any_filters(
    sandbox: SandboxProcess, tmp_path: Path, filters: str, order: str
) -> None:
    ids_by_email = fill_sandbox(sandbox)
    sandbox.switch(filters=filters, order=order)
    listed_keys, absent_keys = build_keys(1), build_keys(2)

    result = run_with_sandbox(sandbox, tmp_path, lambda session: look_up_all(session.access, listed_keys + absent_keys))

    assert result.found_ids == {key.identity: (ids_by_email[key.value],) for key in listed_keys}
    assert result.absent_identities == {key.identity for key in absent_keys}
