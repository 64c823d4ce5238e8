"""Rows of a page as columns: how exports read the list (connector.listing)."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.export.columns import build_columns
from connector.export.decoding import decode_page
from connector.export.names import INVALID
from connector.fields import LARGEST_ID
from connector.pages import IdArray, Mask
from connector.service import Ambiguous, ListPage, Refused, parse_listed
from connector.service import Mask as WordMask

_DECODERS = 2  # pages that are decoded at once: more of them only wait for the service, or for each other

_BROKEN = object()  # beyond a double, which JSON keeps as null: equal to nothing that can be asked for


def parse_columns(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: WordMask = str
) -> ListPage[pa.RecordBatch] | Refused | Ambiguous:
    """As `parse_listed`: at the parser's speed if the page is as api.md has it, and otherwise value by value."""
    page = decode_page(body) if 200 <= status < 300 else None
    if page is not None:
        return page
    answer = parse_listed(status, headers, body, now, mask=mask)
    if not isinstance(answer, ListPage):
        return answer
    return ListPage(build_columns(answer.subscribers), answer.total_count, answer.offset, answer.limit)


class Columns:
    """Rows as a record batch of `PAGE_SCHEMA`, a `Form`; made by `open_columns`."""

    def __init__(self, decoder: Executor) -> None:
        self._decoder = decoder

    async def parse(
        self, status: int, headers: Mapping[str, str], body: bytes, now: datetime, *, mask: WordMask
    ) -> ListPage[pa.RecordBatch] | Refused | Ambiguous:
        """`parse_columns` in a thread: the parser lets others run, so that the next page comes in meanwhile."""
        work = partial(parse_columns, status, headers, body, now, mask=mask)
        return await asyncio.get_running_loop().run_in_executor(self._decoder, work)

    def read_ids(self, rows: pa.RecordBatch) -> IdArray | None:
        """See `Form`."""
        ids = rows.column("id")
        if ids.null_count:
            return None
        numbers = cast(IdArray, np.from_dlpack(ids))  # `to_numpy` imports pandas
        return None if (numbers < -LARGEST_ID).any() else numbers

    def keep(self, rows: pa.RecordBatch, kept: Mask) -> pa.RecordBatch:
        """See `Form`. Rows that stand together, as the new ones of a page do, are not copied."""
        places = np.flatnonzero(kept)
        if len(places) and places[-1] - places[0] == len(places) - 1:
            return rows.slice(places[0], len(places))
        return rows.filter(pa.array(kept))

    def read_values(self, rows: pa.RecordBatch, name: str) -> Sequence[Any]:
        """See `Form`."""
        values: list[Any] = rows.column(name).to_pylist()
        broken = rows.column(INVALID)
        for row in np.flatnonzero(pc.is_valid(broken)).tolist() if broken.null_count < len(broken) else ():
            kept = json.loads(broken[row].as_py())
            if name in kept:
                values[row] = _BROKEN if kept[name] is None else kept[name]
        return values


@contextmanager
def open_columns() -> Iterator[Columns]:
    """The form of columns, with the threads that it decodes in; none of them is left at the end."""
    with ThreadPoolExecutor(_DECODERS, thread_name_prefix="connector decodes") as decoder:
        yield Columns(decoder)
