"""CSV: a text in any encoding, cut into records and cells, and what in it is none.

`stream` makes UTF-8 of it (`encoding`, `letters` and `decoding` say how), `head` reads what stands at its beginning,
`records` finds where records end (`runaways`: where a quote never closed), `parse` makes columns of them, `source`
goes through the file. JSON Lines are texts, too, and read by the same stream.
"""

from connector.extract.csv.source import open_csv
from connector.extract.csv.stream import Readable, open_utf8, show_bytes

__all__ = ["Readable", "open_csv", "open_utf8", "show_bytes"]
