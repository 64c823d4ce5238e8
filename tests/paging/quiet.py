"""A list of any length that nobody changes: what its reading costs in requests, those for dropped pages included."""

from dataclasses import dataclass

import numpy as np

from connector.paging.certificate import Certificate
from connector.paging.overlap import IdArray, PageRequest
from connector.paging.pager import Pager
from tests.paging.times import FINISHED, STARTED


@dataclass(slots=True)
class QuietList:
    """`count` ids from 0, in id order, the reverse (id_desc) or an order of their own (email)."""

    count: int
    order: str = "id"

    def read(self, *, ahead: int) -> tuple[Certificate, int]:
        """Read it honestly with full pages of 1000; returns the certificate and the number of requests."""
        rows, reading, asked, requests = self._arrange(), Pager(1000), list[PageRequest](), 0
        while (page := reading.decide_next()) is not None:
            wanted = [page, *reading.decide_ahead(ahead)]
            kept = [each for each, want in zip(asked, wanted, strict=False) if each == want] if reading.is_calm else []
            requests += len(wanted) - len(kept)
            asked = wanted[1:]
            ids = rows[page.offset : page.offset + page.limit]
            reading.take(ids, total=len(rows), offset=page.offset, limit=page.limit)
        return reading.certify(STARTED, FINISHED), requests

    def _arrange(self) -> IdArray:
        rows = np.arange(self.count, dtype=np.int64)
        if self.order == "email":
            np.random.default_rng(1).shuffle(rows)
        return rows[::-1] if self.order == "id_desc" else rows
