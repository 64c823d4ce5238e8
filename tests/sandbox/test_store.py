"""The store against a plain list that does the same slowly, and the synthetic subscribers in it."""

import hashlib
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from connector.sandbox.store import SubscriberStore, SyntheticSubscribers
from connector.sandbox.truth import Journal

SEEDED_EMAIL = SyntheticSubscribers(100_009, 1, 1, 1, "x").email(100_009)
EMAILS = st.sampled_from(["a@x.org", "A@x.org ", "b@x.org", "", SEEDED_EMAIL])
CLIENTS = st.sampled_from(["", "1", " 1", "k", "K", "seed-100005"])


class StoreMachine(RuleBasedStateMachine):
    """Adds, replaces, removes, hides and shows at random; every way of finding must agree with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SubscriberStore()
        self.model: dict[int, dict[str, Any]] = {}
        self.shown_at: dict[int, float] = {}
        self.now = 0.0

    @rule(base=st.integers(1, 2), email=EMAILS, client=CLIENTS, lag=st.sampled_from([None, 1.0, 5.0]))
    def add(self, base: int, email: str, client: str, lag: float | None) -> None:
        new = self.store.take_id(3)
        made = {"Id": new, "Base": {"Id": base, "Name": "x"}, "Email": email, "ClientUserId": client}
        self.store.add(new, base, email, client, orjson.dumps(made), None if lag is None else self.now + lag)
        self.model[new] = made
        self.shown_at[new] = self.now + (lag or 0.0)

    @rule(count=st.integers(1, 12), base=st.integers(1, 2))
    def seed(self, count: int, base: int) -> None:
        seeded = SyntheticSubscribers(self.store.take_id(1), count, 1, base, "x")
        self.store.add_synthetic(seeded)
        for each in seeded.ids:
            self.model[each] = orjson.loads(seeded.write(each))
            self.shown_at[each] = self.now

    @rule(pick=st.integers(0, 1000), email=EMAILS, client=CLIENTS)
    def replace(self, pick: int, email: str, client: str) -> None:
        if self.model:
            each = sorted(self.model)[pick % len(self.model)]
            self.model[each] = self.model[each] | {"Email": email, "ClientUserId": client}
            self.store.replace(each, orjson.dumps(self.model[each]))

    @rule(pick=st.integers(0, 1000))
    def remove(self, pick: int) -> None:
        if self.model:
            each = sorted(self.model)[pick % len(self.model)]
            self.store.remove(each)
            del self.model[each]

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.store.show(self.now)

    @invariant()
    def every_order_holds_the_visible_ones(self) -> None:
        visible = [each for each in sorted(self.model) if self.shown_at[each] <= self.now]
        for base in (None, 1, 2):
            mine = [each for each in visible if base is None or self.model[each]["Base"]["Id"] == base]
            by_email = sorted(mine, key=lambda each: (self.model[each]["Email"].strip().lower(), each))
            assert self.store.sort(by_email=False, base_id=base).read_ids(0, 10**6) == mine
            assert self.store.sort(by_email=True, base_id=base).read_ids(0, 10**6) == by_email

    @invariant()
    def each_is_found_by_email_and_client_user_id(self) -> None:
        for each, subscriber in self.model.items():
            assert orjson.loads(self.store.read_wire(each)) == subscriber
            if subscriber["Email"].strip():
                assert each in self.store.find_email(subscriber["Email"])
            if subscriber["ClientUserId"].strip():
                assert each in self.store.find_client_user_id(subscriber["ClientUserId"])

    @invariant()
    def duplicates_are_those_of_the_model(self) -> None:
        groups: dict[tuple[int, str], list[int]] = {}
        for each, subscriber in sorted(self.model.items()):
            value = subscriber["Email"].strip().lower() or f"#{subscriber['ClientUserId'].strip()}"
            if value != "#":
                groups.setdefault((subscriber["Base"]["Id"], value), []).append(each)
        found = sorted(each["ids"] for each in self.store.duplicates("email"))
        assert found == sorted(ids for ids in groups.values() if len(ids) > 1)


TestStore = StoreMachine.TestCase


def test_a_torn_last_line_is_dropped_and_the_next_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\nto")
    journal = Journal(path)
    journal.append(b"two")
    assert journal.read_lines() == [b"one", b"two"]
    journal.clear()
    journal.append(b"three")
    journal.close()
    assert path.read_bytes() == b"three\n"


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
