"""The rows of a page in one form or another: what a reading of the list asks of them, and no more.

Loads look at people one by one and read the service's own objects (`WIRE`); exports read columns (connector.export).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import numpy as np

from connector.fields import LARGEST_ID
from connector.pages import IdArray, Mask
from connector.protocol import Ambiguous, Listed, Refused, Rows, WireRows, parse_listed, read_field
from connector.protocol import Mask as WordMask


class Form(Protocol[Rows]):
    """One form of rows; every answer of it is the same as that of every other form for the same page."""

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: WordMask
    ) -> Listed[Rows] | Refused | Ambiguous:
        """Read a page of the list, or say what else the answer is, as `parse_listed` does (api.md 4.3)."""

    def read_ids(self, rows: Rows) -> IdArray | None:
        """The id of each row; None where one has no whole number of 64 bits as its Id."""

    def keep(self, rows: Rows, kept: Mask) -> Rows:
        """The rows of which `kept` says so."""

    def read_values(self, rows: Rows, name: str) -> Sequence[Any]:
        """The values of one field by its name, one a row: as the service wrote them, None where absent or null."""


class _WireForm:
    """Rows as the service's own objects."""

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: WordMask
    ) -> Listed[WireRows] | Refused | Ambiguous:
        """As `parse_listed`."""
        return parse_listed(status, headers, body, now, mask=mask)

    def read_ids(self, rows: WireRows) -> IdArray | None:
        """See `Form`."""
        ids = [row.get("Id") for row in rows]
        if not all(type(each) is int and abs(each) <= LARGEST_ID for each in ids):
            return None
        return np.array(ids, dtype=np.int64)

    def keep(self, rows: WireRows, kept: Mask) -> WireRows:
        """See `Form`."""
        return [row for row, is_kept in zip(rows, kept.tolist(), strict=True) if is_kept]

    def read_values(self, rows: WireRows, name: str) -> Sequence[Any]:
        """See `Form`."""
        return [read_field(row, name) for row in rows]


WIRE: Form[WireRows] = _WireForm()
"""Rows as lists of wire objects."""
