import hashlib

import orjson

from connector.sandbox.store import SyntheticSubscribers

SEEDED = SyntheticSubscribers(first_id=100_001, count=500, step=3, base_id=7, base_name='Base "7"')


def test_each_is_written_from_its_id_the_same_each_time() -> None:
    written = [SEEDED.write(each) for each in SEEDED.ids]
    assert written == [SEEDED.write(each) for each in SEEDED.ids]
    people = [orjson.loads(each) for each in written]
    assert [each["Id"] for each in people] == list(SEEDED.ids)
    assert {each["Base"]["Name"] for each in people} == {'Base "7"'}
    assert len({each["Email"] for each in people}) == len({each["ClientUserId"] for each in people}) == 500


def test_each_is_found_by_email_and_client_user_id_and_no_other_is() -> None:
    for each in SEEDED.ids:
        assert SEEDED.find_email(SEEDED.email(each)) == SEEDED.find_client_user_id(f"seed-{each}") == each
        assert SEEDED.find_email(f"other.name.{each}@example.net") is None
        assert SEEDED.find_email(SEEDED.email(each + 1)) is SEEDED.find_client_user_id(f"seed-{each + 1}") is None
    for text in ("", "@", "seed-", "seed-x", "seed-0100001", "seed-²", "a.b.²@example.net", "9" * 40):
        assert SEEDED.find_email(text) is SEEDED.find_client_user_id(text) is None


def test_all_kinds_of_subscribers_are_there() -> None:
    people = [orjson.loads(SEEDED.write(each)) for each in SEEDED.ids]
    assert {each["Gender"] for each in people} == {"male", "female", ""}
    assert {each["IsActive"] for each in people} == {True, False}
    assert [each["IsActive"] for each in people] == [SEEDED.is_active(each) for each in SEEDED.ids]
    assert any(not each["FirstName"].isascii() for each in people)


def test_each_is_written_as_ever() -> None:
    """A list that was read once is to be the same list tomorrow, past the period of all that recurs."""
    seeded = SyntheticSubscribers(first_id=100_001, count=20_000, step=3, base_id=7, base_name='Base "7"')
    written = hashlib.sha256(b",".join(map(seeded.write, seeded.ids))).hexdigest()
    assert written == "0f53ac5561d179dcb84a1b6adb90de84c12a0f2e7f80b7a96d50055d2db8adec"
