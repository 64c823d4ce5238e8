"""Rows with a new client_user_id whose subscriber is probably in the base under another one (architecture 4.7).

pandas writes `42.0` for the id `42`, and Excel drops the zeros of `00042`. Another program may give everybody a new id.
Such an id is unknown to the ledger and to the list, so its row would create the subscriber a second time.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from connector.listing.access import LookupKey
from connector.listing.base_reader import SweptRows, build_reader
from connector.load.lookups import look_for
from connector.load.session import Session
from connector.states import State
from connector.subscribers.identity import digest_identity

_FIELD = "client_user_id"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?|[0-9](\.[0-9]{1,18})?[eE]\+?[0-9]{1,2}", re.ASCII)
_LONGEST = 12  # digits of an id whose leading zeros may have been lost


def list_spellings(text: str) -> list[str]:
    """Return other spellings of an id that is a whole number: plain, with `.0`, and with leading zeros. Empty for any
    other id."""
    text = text.strip()
    if _NUMBER.fullmatch(text) is None or (number := Decimal(text)) != number.to_integral_value() or number < 0:
        return []
    plain = str(int(number))
    padded = [plain.zfill(width) for width in range(len(plain) + 1, _LONGEST + 1)]
    return [each for each in (plain, f"{plain}.0", *padded) if each != text]


class MistakenIds:
    """Finds such rows among those that a load of one base is about to create."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._has_known: bool | None = None  # whether the base had subscribers before the run (None: not asked yet)

    async def find(self, ids: Sequence[str], *, is_listed: bool) -> dict[str, str]:
        """Return the ids that are another spelling of a known id, each with the known one.

        `is_listed`: a listing has recorded the base's subscribers in the ledger. Otherwise the plain spellings of
        unusual ids are looked up, too.
        """
        spellings = {text: list_spellings(text) for text in ids}
        if not any(spellings.values()):
            return {}
        known = await self._find_in_ledger({each for others in spellings.values() for each in others})
        found = {text: next((each for each in others if each in known), "") for text, others in spellings.items()}
        if not is_listed:
            unusual = {text: others[0] for text, others in spellings.items() if others and not found[text]}
            unusual = {text: plain for text, plain in unusual.items() if plain == str(int(Decimal(text)))}
            shown = await self._find_on_list(set(unusual.values()))
            found |= {text: plain for text, plain in unusual.items() if plain in shown}
        return {text: each for text, each in found.items() if each}

    async def find_emails(self, emails: Sequence[str], listed: SweptRows | None) -> dict[str, str]:
        """Return the emails that a subscriber of the base has, each with the client_user_id of the subscriber, or "" if
        that is not known. A subscriber whom this run has created may share its email with another.

        `listed` is the listing that the base was recorded from, or None if filters have looked the rows up.
        """
        access, journal = self._session.access, self._session.journal
        by_identity = {digest_identity("email", email): email for email in emails}
        found = dict[bytes, int]()
        if listed is not None:
            reader = build_reader(access, ())
            for base in [each for each in listed.bases if reader.is_of_base({"Id": each[0], "Name": each[1]})]:
                found |= listed.find_emails(base, list(by_identity))
        elif by_identity:
            keys = [LookupKey(each, "email", email, in_any_spelling=True) for each, email in by_identity.items()]
            found = {identity: ids[0] for identity, ids in (await look_for(access, keys)).found.items()}
        if not found:
            return {}
        account, ids = journal.base.account, list(found.values())
        holders = await journal.ask(lambda ledger: ledger.find_holders(account, ids))
        ours = {each.subscriber_id for each in holders if each.run_key == journal.run_key}
        others = {by_identity[identity]: each for identity, each in found.items() if each not in ours}
        return {email: self._read_client_user_id(each) for email, each in others.items()}

    def _read_client_user_id(self, subscriber_id: int) -> str:
        shown = self._session.access.state.shown.read(subscriber_id) or {}
        return str(shown.get("ClientUserId") or "")

    async def _find_in_ledger(self, texts: set[str]) -> set[str]:
        """Return those of the ids that the ledger knew before the run, or that a look-up of the run has shown."""
        journal = self._session.journal
        base, run_key = journal.base, journal.run_key
        if self._has_known is None:
            first = await journal.ask(lambda ledger: ledger.find_confirmed(base, b"", 1, before=run_key))
            self._has_known = bool(first)
        if not self._has_known:
            return set()
        by_identity = {digest_identity(_FIELD, text): text for text in texts}
        entries = await journal.ask(lambda ledger: ledger.find_entries(base, list(by_identity)))
        return {
            by_identity[identity]
            for identity, entry in entries.items()
            if entry.state is not State.REJECTED and entry.run_key != run_key
        }

    async def _find_on_list(self, texts: set[str]) -> set[str]:
        keys = {digest_identity(_FIELD, text): text for text in texts}
        if not keys:
            return set()
        result = await look_for(self._session.access, [LookupKey(each, _FIELD, text) for each, text in keys.items()])
        return {keys[identity] for identity in result.found}
