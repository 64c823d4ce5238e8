"""Long lists, cut off by a result window or honest, and what a reading of each says with the evidence of rule 7."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from connector.listing.evidence import Suspect, gather_evidence
from connector.paging.certificate import Certificate, decide_cut_off
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager
from connector.service.wire import ListPage, ListQuery
from tests.paging.simulated import FINISHED, STARTED, SimulatedList

_FILTERS = ("id", "is_active", "base_id", "gender")


@dataclass(slots=True)
class LongList:
    """A simulated list of more than one page, asked by list queries; `known` are ids that a ledger has confirmed."""

    simulated: SimulatedList
    known: frozenset[int] = frozenset()
    asked: int = 0  # requests for evidence
    is_hidden: bool = True  # at each of them some subscribers were beyond the window

    @property
    def is_cut_off(self) -> bool:
        """Whether subscribers are there that no reading shows, and were whenever evidence was asked for."""
        return bool(self.simulated.window) and self.is_hidden and len(self.simulated.ids) > self.simulated.window

    @property
    def has_evidence(self) -> bool:
        """Whether the service would show more, asked otherwise: its filters work, and tell parts of the list apart, or
        reach ids beyond the last."""
        simulated = self.simulated
        is_dense = simulated.order in ("id", "id_desc") and len(simulated.id_steps) == 1 and not simulated.late
        return simulated.filters == "work" and (not simulated.is_homogeneous or is_dense)

    def read(self) -> tuple[Certificate, set[int]]:
        """Read it whole; returns the certificate, and the ids of the last sweep."""
        reading = Pager()
        while (page := reading.decide_next()) is not None:
            ids, total, offset, limit = self.simulated.answer(page)
            reading.take(np.array(ids, dtype=np.int64), total=total, offset=offset, limit=limit)
        certificate = reading.certify(STARTED, FINISHED)
        if certificate.is_complete:
            shown = reading.ids.tolist()
            suspect = Suspect(
                certificate,
                ListQuery(limit=1000),
                {},
                reading.ids,
                bases=Counter(int(str(self.simulated.people[each]["base_id"])) for each in shown),
                lacking=sorted(self.known.difference(shown)),
                seed=self.simulated.random.randbytes(8),
            )
            findings = asyncio.run(gather_evidence(self.ask, suspect, 5))
            certificate = decide_cut_off(certificate, findings, accepts_possible=False)
        return certificate, set(reading.ids.tolist())

    async def ask(self, query: ListQuery) -> ListPage:
        """One page of the list."""
        self.asked += 1
        self.is_hidden &= len(self.simulated.ids) > self.simulated.window
        filters = tuple((name, value) for name in _FILTERS if (value := getattr(query, name)) is not None)
        ids, total, offset, limit = self.simulated.answer(PageRequest(1, query.offset, query.limit), filters)
        return ListPage([self._write(each) for each in ids], total, offset, limit)

    def _write(self, each: int) -> dict[str, Any]:
        person = self.simulated.people[each]
        base = {"Id": person["base_id"]}
        return {"Id": each, "Base": base, "IsActive": person["is_active"], "Gender": person["gender"]}


def build_cut_off_list(seed: int) -> LongList:
    """A list of which a window shows a part: 1 to 1,500 subscribers are beyond it."""
    random = Random(seed)
    window = random.choice((1000, 1023, 1024, 2000, 2047, 9999 // 5, random.randrange(1000, 2500)))
    return _build(random, window + random.choice((1, 7, random.randrange(1, 1500))), window, (0, 0, 0.02, 0.2))


def build_honest_list(seed: int) -> LongList:
    """A list without a window: 5 % are empty, 5 % of a size that windows have."""
    random = Random(seed)
    drawn = random.random()
    count = (
        0 if drawn < 0.05 else random.choice((1000, 1024, 2000, 3000)) if drawn < 0.1 else random.randrange(900, 3500)
    )
    return _build(random, count, 0, (0.02, 0.2, 0.5))


def _build(random: Random, count: int, window: int, churns: Sequence[float]) -> LongList:
    churn = random.choice(churns)
    simulated = SimulatedList(
        random,
        count,
        random.choice(("id", "id", "id_desc", "email")),
        1000,
        inserts=churn * random.random(),
        deletes=churn * random.random(),
        touches=churn * random.random(),
        late=random.choice((0, 0, 0.5)),
        filters=random.choice(("work",) * 8 + ("ignored", "lossy")),
        window=window,
        lags=random.choice(((), (), (0, 2), (0, 1, 8))),
        id_steps=random.choice(((1,), (1,), (10,), (1, 5, 40))),
        is_homogeneous=random.random() < 0.3,
    )
    known = random.sample(simulated.ids, min(len(simulated.ids), 300)) if random.random() < 0.3 else ()
    return LongList(simulated, frozenset(known))
