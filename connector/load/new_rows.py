"""Checks the rows that a load is about to create. The checks prevent two faults: an inactive subscriber is created as
active, or a subscriber is created under a second client_user_id (architecture 4.7).

pandas writes `42.0` for the client_user_id `42`, and Excel drops the zeros of `00042`. Another program may replace all
ids. The ledger and the list do not contain the new id, so the row would create the subscriber a second time.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from connector.listing.access import LookupKey
from connector.listing.base_reader import SweptRows, build_reader
from connector.load.lookups import look_up_all
from connector.load.session import Session
from connector.rows import PlannedChunk
from connector.states import find_traits
from connector.subscribers.checks import DECIMAL_ID_PATTERN, NEEDLESS_DECIMALS_MESSAGE
from connector.subscribers.identity import digest_identity, split_digests

_CLIENT_USER_ID = "client_user_id"
_WHOLE_NUMBER_PATTERN = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?|[0-9](\.[0-9]{1,18})?[eE]\+?[0-9]{1,2}", re.ASCII)
_MAX_DIGITS = 12  # spellings with leading zeros are looked up to this number of digits


def list_other_spellings(text: str) -> list[str]:
    """Return the other spellings of an id that is a whole number: without a decimal point, with `.0`, and with leading
    zeros. Return an empty list for any other id."""
    text = text.strip()
    if (
        _WHOLE_NUMBER_PATTERN.fullmatch(text) is None
        or (decimal_value := Decimal(text)) != decimal_value.to_integral_value()
        or decimal_value < 0
    ):
        return []
    shortest_spelling = str(int(decimal_value))
    padded_spellings = [
        shortest_spelling.zfill(digit_count) for digit_count in range(len(shortest_spelling) + 1, _MAX_DIGITS + 1)
    ]
    return [
        spelling for spelling in (shortest_spelling, f"{shortest_spelling}.0", *padded_spellings) if spelling != text
    ]


def find_inactive_indexes(session: Session, planned_chunk: PlannedChunk, indexes: Sequence[int]) -> list[int]:
    """Return the indexes of active rows whose identities the list shows as inactive. If the job does not suppress
    inactive subscribers, only record the identities of these rows for the report, and return an empty list.
    """
    if not indexes or "is_active" not in planned_chunk.subscribers:
        return []
    inactive_identities = session.list_access.inactive_identities
    active_mask = planned_chunk.subscribers["is_active"].iloc[list(indexes)].eq(True).fillna(False).to_numpy(dtype=bool)
    inactive_mask = inactive_identities.build_digest_mask(planned_chunk.identities[list(indexes)]) & active_mask
    inactive_indexes = [
        index for index, is_inactive in zip(indexes, inactive_mask.tolist(), strict=True) if is_inactive
    ]
    if session.policy.is_suppressing_inactive:
        return inactive_indexes
    inactive_identities.reactivated.update(split_digests(planned_chunk.identities[inactive_indexes]))
    return []


class MistakenIds:
    """Finds rows whose subscriber probably exists in the base with another client_user_id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Whether the base had subscribers before the run; None: not known yet.
        self._had_subscribers: bool | None = None

    async def find_mistaken_ids(
        self, planned_chunk: PlannedChunk, new_row_indexes: Sequence[int], listing_rows: SweptRows | None
    ) -> dict[int, tuple[str, str]]:
        """Find new rows whose subscribers probably exist in the base with another client_user_id. Return the problem of
        each found row (its code and its message), by the index of the row.

        `listing_rows` are the subscribers of the list, or None if the run has used filters instead of a listing.
        """
        policy = self._session.policy
        if policy.identity_field != _CLIENT_USER_ID or not policy.looks_up_first:
            return {}
        id_by_index = dict(
            zip(
                new_row_indexes,
                planned_chunk.subscribers[_CLIENT_USER_ID].iloc[list(new_row_indexes)].tolist(),
                strict=True,
            )
        )
        known_ids = await self._find_spellings(list(id_by_index.values()), has_listing=listing_rows is not None)
        problems = dict[int, tuple[str, str]]()
        for index, text in id_by_index.items():
            if text in known_ids:
                message = f"'{text}' looks like the known id '{known_ids[text]}': correct the column"
                problems[index] = "other_spelling", message
            elif re.fullmatch(DECIMAL_ID_PATTERN, text):
                problems[index] = "id", f"ClientUserId {NEEDLESS_DECIMALS_MESSAGE}"
        if "email" not in planned_chunk.subscribers:
            return problems
        remaining_indexes = [index for index in new_row_indexes if index not in problems]
        values = zip(
            remaining_indexes, planned_chunk.subscribers["email"].iloc[remaining_indexes].tolist(), strict=True
        )
        email_by_index = {index: email for index, email in values if isinstance(email, str) and email.strip()}
        client_user_id_by_email = await self._find_client_user_ids_by_email(list(email_by_index.values()), listing_rows)
        for index, email in email_by_index.items():
            if email in client_user_id_by_email:
                message = (
                    f"'{email}' is in the base already, with the client_user_id '{client_user_id_by_email[email]}'"
                )
                problems[index] = "other_id", f"{message}: correct the id, or the email"
        return problems

    async def _find_spellings(self, ids: Sequence[str], *, has_listing: bool) -> dict[str, str]:
        """Return the ids that are another spelling of a known id. The values of the dict are the known ids.

        With `has_listing`, a listing has recorded the base's subscribers in the ledger. Otherwise also search the
        list for the shortest spelling of each id, such as `42` for `00042`.
        """
        spellings_by_id = {text: list_other_spellings(text) for text in ids}
        if not any(spellings_by_id.values()):
            return {}
        known_ids = await self._find_in_ledger(
            {spelling for other_spellings in spellings_by_id.values() for spelling in other_spellings}
        )
        known_id_by_text = {
            text: next((spelling for spelling in other_spellings if spelling in known_ids), "")
            for text, other_spellings in spellings_by_id.items()
        }
        if not has_listing:
            shortest_spelling_by_id = {
                text: other_spellings[0]
                for text, other_spellings in spellings_by_id.items()
                if other_spellings
                if not known_id_by_text[text] and other_spellings[0] == str(int(Decimal(text)))
            }
            listed_ids = await self._find_on_list(set(shortest_spelling_by_id.values()))
            known_id_by_text |= {
                text: shortest_spelling
                for text, shortest_spelling in shortest_spelling_by_id.items()
                if shortest_spelling in listed_ids
            }
        return {text: spelling for text, spelling in known_id_by_text.items() if spelling}

    async def _find_client_user_ids_by_email(
        self, emails: Sequence[str], listing_rows: SweptRows | None
    ) -> dict[str, str]:
        """Return the client_user_id of each subscriber of the base whose email is in `emails`, by email. "" stands for
        a client_user_id that is not known. Leave out subscribers that this run has created, because two rows of the
        source may share an email.

        `listing_rows` are the subscribers of the list, or None if the run has used filters instead of a listing.
        """
        list_access, ledger_writer = self._session.list_access, self._session.ledger_writer
        email_by_identity = {digest_identity("email", email): email for email in emails}
        found_ids = dict[bytes, int]()
        if listing_rows is not None:
            reader = build_reader(list_access, ())
            for base in listing_rows.bases:
                if reader.is_of_base({"Id": base[0], "Name": base[1]}):
                    found_ids |= listing_rows.find_ids_by_email(base, list(email_by_identity))
        elif email_by_identity:
            keys = [
                LookupKey(identity, "email", email, ignores_case=True) for identity, email in email_by_identity.items()
            ]
            found_ids = {identity: ids[0] for identity, ids in (await look_up_all(list_access, keys)).found_ids.items()}
        if not found_ids:
            return {}
        account, ids = ledger_writer.base.account, list(found_ids.values())
        known_entries = await ledger_writer.execute(lambda ledger: ledger.find_entries_with_ids(account, ids))
        ids_of_this_run = {entry.subscriber_id for entry in known_entries if entry.run_key == ledger_writer.run_key}
        client_user_id_by_email = dict[str, str]()
        for identity, subscriber_id in found_ids.items():
            if subscriber_id not in ids_of_this_run:
                shown_values = list_access.state.shown_subscribers.read(subscriber_id) or {}
                client_user_id_by_email[email_by_identity[identity]] = str(shown_values.get("ClientUserId") or "")
        return client_user_id_by_email

    async def _find_in_ledger(self, client_user_ids: set[str]) -> set[str]:
        """Return the ids among `client_user_ids` that the ledger had before the run, or that a look-up of the run has
        shown."""
        ledger_writer = self._session.ledger_writer
        base, run_key = ledger_writer.base, ledger_writer.run_key
        if self._had_subscribers is None:
            known_entries = await ledger_writer.execute(
                lambda ledger: ledger.find_confirmed_entries(base, b"", 1, before_run_key=run_key)
            )
            self._had_subscribers = bool(known_entries)
        if not self._had_subscribers:
            return set()
        client_user_id_by_identity = {
            digest_identity(_CLIENT_USER_ID, client_user_id): client_user_id for client_user_id in client_user_ids
        }
        entries = await ledger_writer.find_entries(list(client_user_id_by_identity))
        return {
            client_user_id_by_identity[identity]
            for identity, entry in entries.items()
            if find_traits(entry.state).subscriber_may_exist and entry.run_key != run_key
        }

    async def _find_on_list(self, client_user_ids: set[str]) -> set[str]:
        """Look `client_user_ids` up on the list, and return the ids that the list shows."""
        client_user_id_by_identity = {
            digest_identity(_CLIENT_USER_ID, client_user_id): client_user_id for client_user_id in client_user_ids
        }
        if not client_user_id_by_identity:
            return set()
        keys = [
            LookupKey(identity, _CLIENT_USER_ID, client_user_id)
            for identity, client_user_id in client_user_id_by_identity.items()
        ]
        result = await look_up_all(self._session.list_access, keys)
        return {client_user_id_by_identity[identity] for identity in result.found_ids}
