"""Checks of rows that a load is about to create: an inactive subscriber is not created as active, and a subscriber is
not created under a second client_user_id (architecture 4.7).

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
from connector.rows import PlannedChunk
from connector.states import State
from connector.subscribers.checks import DECIMAL_ID_PATTERN, NEEDLESS_DECIMALS_MESSAGE
from connector.subscribers.identity import digest_identity, split_digests

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
    return [spelling for spelling in (plain, f"{plain}.0", *padded) if spelling != text]


def find_inactive(session: Session, planned: PlannedChunk, indices: Sequence[int]) -> list[int]:
    """Return the indices of rows that say active and whose identities the list shows as inactive. If the job does not
    suppress such rows, return none, and record their identities to be counted."""
    if not indices or "is_active" not in planned.subscribers:
        return []
    inactive = session.access.inactive_identities
    active_mask = planned.subscribers["is_active"].iloc[list(indices)].eq(True).fillna(False).to_numpy(dtype=bool)
    inactive_mask = inactive.find(planned.identities[list(indices)]) & active_mask
    found = [index for index, is_inactive in zip(indices, inactive_mask.tolist(), strict=True) if is_inactive]
    if session.policy.is_suppressing_inactive:
        return found
    inactive.reactivated.update(split_digests(planned.identities[found]))
    return []


class MistakenIds:
    """Finds rows of one base whose subscriber is probably in the base under another client_user_id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._has_known: bool | None = None  # whether the base had subscribers before the run (None: not asked yet)

    async def find_problems(
        self, planned: PlannedChunk, new: Sequence[int], listed: SweptRows | None
    ) -> dict[int, tuple[str, str]]:
        """Return code and message of a problem for each of the `new` rows (indices) whose subscriber is probably in the
        base under another client_user_id.

        `listed` is the listing that the base was recorded from, or None if filters have looked the rows up.
        """
        policy = self._session.policy
        if policy.identity != _FIELD or not policy.is_looking:
            return {}
        texts = dict(zip(new, planned.subscribers[_FIELD].iloc[list(new)].tolist(), strict=True))
        known = await self._find_spellings(list(texts.values()), is_listed=listed is not None)
        problems = dict[int, tuple[str, str]]()
        for index, text in texts.items():
            if text in known:
                words = f"'{text}' looks like the known id '{known[text]}': correct the column"
                problems[index] = "other_spelling", words
            elif re.fullmatch(DECIMAL_ID_PATTERN, text):
                problems[index] = "id", f"ClientUserId {NEEDLESS_DECIMALS_MESSAGE}"
        if "email" not in planned.subscribers:
            return problems
        remaining = [index for index in new if index not in problems]
        values = zip(remaining, planned.subscribers["email"].iloc[remaining].tolist(), strict=True)
        emails = {index: email for index, email in values if isinstance(email, str) and email.strip()}
        others = await self._find_emails(list(emails.values()), listed)
        for index, email in emails.items():
            if email in others:
                words = f"'{email}' is in the base already, with the client_user_id '{others[email]}'"
                problems[index] = "other_id", f"{words}: correct the id, or the email"
        return problems

    async def _find_spellings(self, ids: Sequence[str], *, is_listed: bool) -> dict[str, str]:
        """Return the ids that are another spelling of a known id, each with the known one.

        `is_listed`: a listing has recorded the base's subscribers in the ledger. Otherwise the plain spellings of
        unusual ids are looked up, too.
        """
        spellings = {text: list_spellings(text) for text in ids}
        if not any(spellings.values()):
            return {}
        known = await self._find_in_ledger({spelling for others in spellings.values() for spelling in others})
        found = {
            text: next((spelling for spelling in others if spelling in known), "") for text, others in spellings.items()
        }
        if not is_listed:
            unusual = {text: others[0] for text, others in spellings.items() if others and not found[text]}
            unusual = {text: plain for text, plain in unusual.items() if plain == str(int(Decimal(text)))}
            shown = await self._find_on_list(set(unusual.values()))
            found |= {text: plain for text, plain in unusual.items() if plain in shown}
        return {text: spelling for text, spelling in found.items() if spelling}

    async def _find_emails(self, emails: Sequence[str], listed: SweptRows | None) -> dict[str, str]:
        """Return the emails that a subscriber of the base has, each with the client_user_id of the subscriber, or "" if
        that is not known. A subscriber whom this run has created may share its email with another.

        `listed` is the listing that the base was recorded from, or None if filters have looked the rows up.
        """
        access, journal = self._session.access, self._session.journal
        by_identity = {digest_identity("email", email): email for email in emails}
        found = dict[bytes, int]()
        if listed is not None:
            reader = build_reader(access, ())
            for base in [
                listed_base
                for listed_base in listed.bases
                if reader.is_of_base({"Id": listed_base[0], "Name": listed_base[1]})
            ]:
                found |= listed.find_emails(base, list(by_identity))
        elif by_identity:
            keys = [
                LookupKey(identity, "email", email, in_any_spelling=True) for identity, email in by_identity.items()
            ]
            found = {identity: ids[0] for identity, ids in (await look_for(access, keys)).found_ids.items()}
        if not found:
            return {}
        account, ids = journal.base.account, list(found.values())
        holders = await journal.ask(lambda ledger: ledger.find_holders(account, ids))
        ours = {holder.subscriber_id for holder in holders if holder.run_key == journal.run_key}
        others = {
            by_identity[identity]: subscriber_id
            for identity, subscriber_id in found.items()
            if subscriber_id not in ours
        }
        return {email: self._read_client_user_id(subscriber_id) for email, subscriber_id in others.items()}

    def _read_client_user_id(self, subscriber_id: int) -> str:
        shown = self._session.access.state.shown_subscribers.read(subscriber_id) or {}
        return str(shown.get("ClientUserId") or "")

    async def _find_in_ledger(self, texts: set[str]) -> set[str]:
        """Return those of the ids that the ledger knew before the run, or that a look-up of the run has shown."""
        journal = self._session.journal
        base, run_key = journal.base, journal.run_key
        if self._has_known is None:
            first = await journal.ask(lambda ledger: ledger.find_confirmed_entries(base, b"", 1, before=run_key))
            self._has_known = bool(first)
        if not self._has_known:
            return set()
        by_identity = {digest_identity(_FIELD, text): text for text in texts}
        entries = await journal.find_entries(list(by_identity))
        return {
            by_identity[identity]
            for identity, entry in entries.items()
            if entry.state is not State.REJECTED and entry.run_key != run_key
        }

    async def _find_on_list(self, texts: set[str]) -> set[str]:
        keys = {digest_identity(_FIELD, text): text for text in texts}
        if not keys:
            return set()
        result = await look_for(
            self._session.access, [LookupKey(digest, _FIELD, text) for digest, text in keys.items()]
        )
        return {keys[identity] for identity in result.found_ids}
