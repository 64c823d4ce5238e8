"""The store against a plain dict that does the same slowly, and the seeded subscribers in the store."""

import hashlib
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from connector.sandbox.people import SyntheticSubscribers
from connector.sandbox.store import SubscriberStore

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
        made = {"Id": new, "Base": {"Id": base, "Name": "x"}, "Email": email, "ClientUserId": client, "IsActive": False}
        self.store.add(new, base, email, client, orjson.dumps(made), None if lag is None else self.now + lag)
        self.model[new] = made
        self.shown_at[new] = self.now + (lag or 0.0)

    @rule(count=st.integers(1, 12), base=st.integers(1, 2))
    def seed(self, count: int, base: int) -> None:
        block = SyntheticSubscribers(self.store.take_id(1), count, 1, base, "x")
        self.store.add_block(block)
        for each, wire in zip(block.ids, block.write(block.ids), strict=True):
            self.model[each] = orjson.loads(wire)
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
    def the_lists_hold_the_visible_subscribers_in_order(self) -> None:
        visible = [each for each in sorted(self.model) if self.shown_at[each] <= self.now]
        assert (self.store.list_visible(), len(self.store)) == (visible, len(self.model))
        for base in (1, 2):
            mine = [each for each in visible if self.model[each]["Base"]["Id"] == base]
            assert self.store.list_visible(base) == mine
        active = [each for each in visible if self.model[each]["IsActive"]]
        assert self.store.scan(lambda each: bool(each["IsActive"]), is_by_person=True) == active

    @invariant()
    def each_subscriber_is_found_by_email_and_client_user_id(self) -> None:
        for each, subscriber in self.model.items():
            assert self.store.read(each) == subscriber
            for field in ("Email", "ClientUserId"):
                assert not subscriber[field].strip() or each in self.store.find(field, subscriber[field])

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


def test_seeded_subscribers_are_written_as_ever() -> None:
    """A list that was read once must be the same list tomorrow, past the period of everything that recurs."""
    block = SyntheticSubscribers(first_id=100_001, count=20_000, step=3, base_id=7, base_name='Base "7"')
    written = hashlib.sha256(b",".join(block.write(block.ids))).hexdigest()
    assert written == "0f53ac5561d179dcb84a1b6adb90de84c12a0f2e7f80b7a96d50055d2db8adec"
