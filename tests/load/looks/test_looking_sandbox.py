"""People are looked up in a real service, under each of its stances: whoever is there is never missed."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from connector.listing import LookupResult, Sentinel, list_base, look_by_filter, sweep_for
from connector.load import Session
from connector.load.presence import estimate, look_for
from connector.sandbox import SandboxProcess
from connector.service import Created, encode_subscriber
from connector.subscribers import digest_identity
from tests.load.sessions import BASE, look_at_sandbox, told, want
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
    for each in numbers:
        for place, text in enumerate(TEXTS):
            key = KEYS[place % len(KEYS)].format(f"{each}-{place}")
            reply = Calls(sandbox).create(text.format(each), base={"Id": base}, ClientUserId=key)
            ids[text.format(each)] = reply.json["Subscriber"]["Id"]
    return ids


def all_wanted(number: int) -> list[Any]:
    return [want(text.format(number)) for text in TEXTS]


@pytest.mark.parametrize("order", ["id", "shuffled"])
@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_whoever_is_there_is_found_and_who_is_not_is_missed_whatever_the_filters_and_the_order(
    sandbox: SandboxProcess, tmp_path: Path, filters: str, order: str
) -> None:
    ids = fill(sandbox)
    sandbox.switch(filters=filters, order=order)
    there, nobody = all_wanted(1), all_wanted(2)

    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_for(session, there + nobody))

    assert sighting.found == {each.identity: (ids[each.value],) for each in there}
    assert sighting.missed == {each.identity for each in nobody}


@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_filters_alone_tell_all_they_can_and_nothing_wrong(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    ids = fill(sandbox)
    sandbox.switch(filters=filters)
    there, nobody = all_wanted(1), all_wanted(2)

    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_by_filter(session.access, there + nobody))

    is_of_use = filters != "ignored"
    assert sighting.found == ({each.identity: (ids[each.value],) for each in there} if is_of_use else {})
    # As `jörg@bücher.de` also goes by the A-label of its domain, and nobody is kept like that: it stays untold.
    assert sighting.missed == ({each.identity for each in nobody if "bücher" not in each.value} if is_of_use else set())


@pytest.mark.parametrize("filters", ["exact", "icase", "partial"])
def test_keys_are_found_by_their_filter_in_their_own_case(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    fill(sandbox)
    sandbox.switch(filters=filters)
    there = [want(KEYS[place % len(KEYS)].format(f"1-{place}"), "client_user_id") for place in range(len(TEXTS))]
    nobody = [want(KEYS[place % len(KEYS)].format(f"2-{place}"), "client_user_id") for place in range(len(TEXTS))]
    nobody.append(want("k1-1", "client_user_id"))  # there is a K1-1, who is somebody else

    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_by_filter(session.access, there + nobody))

    assert set(sighting.found) == {each.identity for each in there}
    assert sighting.missed == {each.identity for each in nobody}


def test_a_shuffled_list_of_many_pages_is_looked_up_by_filters(sandbox: SandboxProcess, tmp_path: Path) -> None:
    sandbox.seed(2500, base_name="Others")
    ids = fill(sandbox)
    sandbox.switch(order="shuffled")
    wanted = [want("ann1@x.org"), want("ann2@x.org")]

    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_for(session, wanted))

    assert sighting.found == {wanted[0].identity: (ids["ann1@x.org"],)}
    assert sighting.missed == {wanted[1].identity}


def test_the_cheaper_way_is_taken(sandbox: SandboxProcess, tmp_path: Path) -> None:
    sandbox.seed(9000, base_name="Others")
    fill(sandbox)

    async def look(session: Session) -> list[int]:
        spent = []
        for number in (1, 30):
            before = session.access.client.counts["list"].sent
            wanted = [want(f"nobody{each}@x.org") for each in range(number)]
            expected = await estimate(session, wanted)
            assert expected.is_filter_cheaper is (number == 1)
            assert len((await look_for(session, wanted)).missed) == number
            spent.append(session.access.client.counts["list"].sent - before)
        return spent

    requests = look_at_sandbox(sandbox, tmp_path, look)
    # The survey and five by filter; a sweep of ten pages, the end and the head, and nine for evidence.
    assert requests == [1 + 5, 12 + 9]


@pytest.mark.parametrize("filters", ["exact", "icase", "partial", "ignored"])
def test_an_identity_in_two_bases_is_found_in_its_own_only(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    fill(sandbox, base=8)
    mine = fill(sandbox, numbers=(3,))
    sandbox.switch(filters=filters)
    elsewhere, here = want("ann1@x.org"), want("ann3@x.org")

    async def look(session: Session) -> list[LookupResult]:
        wanted = [elsewhere, here]
        return [
            await sweep_for(session.access, wanted),
            await look_by_filter(session.access, wanted),
            await look_for(session, wanted),
        ]

    swept, filtered, looked = look_at_sandbox(sandbox, tmp_path, look)

    for sighting in (swept, looked, *([filtered] if filters != "ignored" else [])):
        assert sighting.found == {here.identity: (mine["ann3@x.org"],)}
        assert sighting.missed == {elsewhere.identity}


@pytest.mark.parametrize("filters", ["exact", "icase"])
def test_an_identity_twice_in_the_base_is_found_under_both_ids(
    sandbox: SandboxProcess, tmp_path: Path, filters: str
) -> None:
    sandbox.switch(filters=filters)
    first, again = fill(sandbox), fill(sandbox)
    both = tuple(sorted((first["ann1@x.org"], again["ann1@x.org"])))
    ann = want("ann1@x.org")

    async def look(session: Session) -> list[object]:
        listing = await list_base(session.access)
        looks = [await sweep_for(session.access, [ann]), await look_by_filter(session.access, [ann])]
        return [listing.doubled, *(each.found for each in looks)]

    assert look_at_sandbox(sandbox, tmp_path, look) == [2 * len(TEXTS), {ann.identity: both}, {ann.identity: both}]


def test_a_service_that_keeps_capitals_and_tells_them_apart_is_swept(sandbox: SandboxProcess, tmp_path: Path) -> None:
    sandbox.switch(alter_fields="Email")
    fill(sandbox)

    async def look(session: Session) -> tuple[LookupResult, LookupResult]:
        wanted = [*all_wanted(1), *all_wanted(2)]
        return await look_by_filter(session.access, wanted), await look_for(session, wanted)

    filtered, looked = look_at_sandbox(sandbox, tmp_path, look)

    assert told(filtered) == ({}, set())
    assert set(looked.found) == {each.identity for each in all_wanted(1)}
    assert looked.missed == {each.identity for each in all_wanted(2)}


async def create(session: Session, email: str) -> Sentinel:
    """A create by this run, whose answer makes a witness."""
    answer = await session.access.client.create_subscriber(encode_subscriber({"base_id": BASE, "email": email}))
    assert isinstance(answer, Created)
    made = Sentinel(session.clock.monotonic(), answer.subscriber_id, "email", email)
    session.access.sentinels.append(made)
    return made


def test_what_we_send_being_kept_in_capitals_is_noticed_though_older_people_are_not(
    sandbox: SandboxProcess, tmp_path: Path
) -> None:
    sandbox.seed(9000, base_name="Others")
    sandbox.switch(alter_fields="Email")

    async def look(session: Session) -> LookupResult:
        made = await create(session, "wit@x.org")
        await create(session, "lost@x.org")
        session.access.sentinels.pop()  # as if its answer had been lost
        sighting = await look_by_filter(session.access, [want("lost@x.org"), want("nobody@x.org")])
        assert told(sighting) == ({}, set())
        sighting = await look_for(session, [want("lost@x.org"), want("nobody@x.org")])
        assert sighting.lag_s == 0 < made.at
        return sighting

    sighting = look_at_sandbox(sandbox, tmp_path, look)
    assert set(sighting.found) == {digest_identity("email", "lost@x.org")}
    assert sighting.missed == {digest_identity("email", "nobody@x.org")}


def swept(session: Session) -> Coroutine[Any, Any, LookupResult]:
    return sweep_for(session.access, [want("nobody@x.org")])


def filtered(session: Session) -> Coroutine[Any, Any, LookupResult]:
    return look_by_filter(session.access, [want("nobody@x.org")])


@pytest.mark.parametrize("look", [swept, filtered])
def test_a_list_that_lags_is_known_to_until_it_shows_the_witness(
    sandbox: SandboxProcess, tmp_path: Path, look: Any
) -> None:
    fill(sandbox)

    async def look_on(session: Session) -> None:
        first = await create(session, "first@x.org")
        sandbox.switch(list_lag_ms=60_000)
        second = await create(session, "second@x.org")
        sighting = await look(session)
        assert sighting.latest_seen_at == first.at
        assert 0 < sighting.lag_s == sighting.started_at - second.at
        sandbox.switch(list_lag_ms=0)
        third = await create(session, "third@x.org")
        assert (await look(session)).latest_seen_at == third.at

    look_at_sandbox(sandbox, tmp_path, look_on)


@pytest.mark.parametrize(("filters", "is_told"), [("exact", False), ("icase", True), ("partial", True)])
def test_who_signed_up_in_other_capitals_is_never_missed_where_it_counts(
    sandbox: SandboxProcess, tmp_path: Path, filters: str, is_told: bool
) -> None:
    sandbox.seed(9000, base_name="Others")
    there = Calls(sandbox).create("Ann@X.org", base={"Id": BASE}).json["Subscriber"]["Id"]
    sandbox.switch(filters=filters)
    ann, nobody = (want(text, in_any_spelling=True) for text in ("ann@x.org", "nobody@x.org"))

    async def look(session: Session) -> tuple[LookupResult, LookupResult]:
        by_filter = await look_by_filter(session.access, [ann, nobody])
        return by_filter, await look_for(session, [ann, nobody])

    by_filter, by_any = look_at_sandbox(sandbox, tmp_path, look)
    assert told(by_filter) == (({ann.identity: (there,)}, {nobody.identity}) if is_told else ({}, set()))
    assert told(by_any) == ({ann.identity: (there,)}, {nobody.identity})


def test_hundreds_are_looked_up_by_filters_under_a_rate_limit(sandbox: SandboxProcess, tmp_path: Path) -> None:
    fill(sandbox)
    sandbox.switch(rate=2000, burst=20, retry_after="none")
    wanted = [want("ann1@x.org"), *(want(f"nobody{each}@x.org") for each in range(400))]
    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_by_filter(session.access, wanted))
    assert (len(sighting.found), len(sighting.missed)) == (1, 400)


def test_errors_of_the_list_are_tried_again(sandbox: SandboxProcess, tmp_path: Path) -> None:
    fill(sandbox)
    sandbox.switch(list_error=0.02, seed=3)
    wanted = [want(f"nobody{each}@x.org") for each in range(200)]
    sighting = look_at_sandbox(sandbox, tmp_path, lambda session: look_by_filter(session.access, wanted))
    assert len(sighting.missed) == 200
