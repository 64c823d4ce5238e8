"""For databases whose texts hold no U+0000: such a text is null, and kept in `_invalid`, where JSON escapes it."""

import json

import pyarrow as pa
import pyarrow.compute as pc

from connector.export.names import INVALID


def move_nuls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without any NUL; itself, at the cost of one look at its bytes, where there is none."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = {name: _mark(column) for name, column in columns.items() if _may_hold(column)}
    broken: dict[int, dict[str, object]] = {}
    for name, marks in found.items():
        places = [place for place, mark in enumerate(marks.to_pylist()) if mark]
        for place in places:
            broken.setdefault(place, {})[name] = columns[name][place].as_py()
        if places:
            columns[name] = pc.if_else(pc.fill_null(marks, False), pa.scalar(None, columns[name].type), columns[name])
    if not broken:
        return batch
    columns[INVALID] = _add(columns[INVALID], broken)
    return pa.record_batch(list(columns.values()), schema=batch.schema)


def _may_hold(column: pa.Array) -> bool:
    texts = column.values if pa.types.is_list(column.type) else column
    if not pa.types.is_string(texts.type):
        return False
    data = texts.buffers()[2]
    return data is not None and b"\0" in data.to_pybytes()


def _mark(column: pa.Array) -> pa.Array:
    if not pa.types.is_list(column.type):
        return pc.match_substring(column, "\0")
    return pa.array(
        [each is not None and any("\0" in text for text in each) for each in column.to_pylist()], pa.bool_()
    )


def _add(invalid: pa.Array, broken: dict[int, dict[str, object]]) -> pa.Array:
    texts = invalid.to_pylist()
    for place, values in broken.items():
        texts[place] = json.dumps(json.loads(texts[place] or "{}") | values)
    return pa.array(texts, pa.string())
