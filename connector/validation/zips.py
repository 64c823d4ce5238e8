"""Which postal codes survive as a number (api.md 2.1: sent as a number, returned as a string)."""

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"^(0|[1-9][0-9]{0,15})$"
_MOST = 2**53 - 1  # a JSON number beyond is another number to a reader that holds it as a double


def is_sendable_zip(cells: pa.Array) -> pa.Array:
    """Whether each text is the very text of a number (null where missing): not `02134`, `SW1A 1AA` or `12345-6789`."""
    has_form = pc.match_substring_regex(cells, _NUMBER)
    numbers = pc.if_else(has_form, cells, "0").cast(pa.int64())
    return pc.and_(has_form, pc.less_equal(numbers, _MOST))


def read_zips(cells: pa.Array) -> pa.Array:
    """The number of each postal code that can be sent, null for the others."""
    return pc.if_else(is_sendable_zip(cells), cells, None).cast(pa.int64())
