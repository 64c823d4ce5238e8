"""Cells, against Python's own csv module, on generated text."""

import csv
import io

from hypothesis import given, strategies as st

from connector.sources.csv import CsvDialect, parse_block
from connector.sources.csv_records import find_records

wild = st.text(alphabet='ab",\n\r ', max_size=40)


@given(wild, st.integers(1, 3))
def test_no_cell_holds_what_the_csv_module_does_not_find_in_its_record(text: str, width: int) -> None:
    block = text.encode()
    records = find_records(block, ",", is_last=True)
    parsed = parse_block(block, records, CsvDialect(",", width, "utf-8"))
    for row, place in zip(parsed.table.to_pylist(), parsed.places.tolist(), strict=True):
        record = block[records.starts[place] : records.stops[place]].decode()
        found = next(csv.reader(io.StringIO(record, newline=""), strict=True, skipinitialspace=True))
        # csv drops the spaces before bare cells as well; here they are kept: what they mean is not a parser's to say.
        assert [cell.lstrip(" ") for cell in row.values()] == [cell.lstrip(" ") for cell in found]
