"""A CSV file as a source: blocks of bytes in, numbered chunks of texts out, memory bounded by the block.

Blocks are cut here at the ends of records and parsed one by one. pyarrow's own streaming reader is not used: it
reads 32 blocks ahead, from threads that crash the interpreter if it ends before they do (measured, pyarrow 26).
"""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from os import PathLike, fspath

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from connector.errors import SourceError
from connector.extract.chunk import Chunk, MalformedRow, Source
from connector.extract.closing import Closing
from connector.extract.csv.head import (
    count_titles,
    decide_delimiter,
    decide_quote,
    has_tails,
    parse_delimiter,
    parse_header,
)
from connector.extract.csv.parse import Failed, Format, Parsed, count_lines, parse_block
from connector.extract.csv.records import Records, find_blank, find_records
from connector.extract.csv.runaways import end_runaways, find_runaway
from connector.extract.csv.stream import Readable, Utf8Stream, advise_encoding, open_utf8, refuse_binary

_HEAD_BYTES = 1 << 18
_CHUNK_ROWS = 30_000  # aimed at; fewer cost pandera's fixed time per run too often, more only memory
_MOST_ROWS = 50_000
_LEAST_BLOCK, _MOST_BLOCK = 1 << 16, 1 << 23
_MOST_PENDING = 1 << 22  # a record that has not ended by then is looked at: a quote may never have been closed
_MOST_RECORD = 1 << 24  # a record of 16 MiB is a quote that was never closed

_TEXT = pd.StringDtype(na_value=np.nan)


class CsvSource(Closing):
    """A CSV file, opened by `open_csv`."""

    def __init__(self, name: str, stream: Utf8Stream, delimiter: str | None, chunk_bytes: int | None) -> None:
        self.name = name
        self._stream = stream
        self._line = 1
        self._number = 0
        head = stream.read(_HEAD_BYTES)
        is_whole = len(head) < _HEAD_BYTES
        refuse_binary(name, head)
        head, told = self._take_excel_hint(head)
        text = head.decode("utf-8", "replace")
        quote = decide_quote(text)
        chosen = delimiter or told or decide_delimiter(text, quote, is_whole=is_whole)
        titles = count_titles(text, chosen, quote)
        self._untold = [f"{name}: titles above its header were left out (lines: {titles})"] if titles else []
        self.columns, rest = self._take_header(head, chosen, quote, titles, is_whole=is_whole)
        is_tailed = has_tails(rest.decode("utf-8", "replace"), len(self.columns), chosen, quote, is_whole=is_whole)
        if is_tailed:
            self._untold.append(f"{name}: its rows end with a delimiter that the header has not; it was left out")
        self._form = Format(chosen, len(self.columns), stream.encoding, quote, has_tails=is_tailed)
        self._block_bytes = chunk_bytes or _choose_block(rest)
        self._ahead = BytesIO(rest)  # what was read to know the header, to be read again as rows
        self._pending = b""
        self._is_ended = False
        self._failure: SourceError | None = None  # met while reading on: told after the records before it

    def chunks(self) -> Iterator[Chunk]:
        """Give the file's records, in order, once; none for a file with a header only. Raises SourceError."""
        while True:
            block, records = self._read_block()
            if not len(records):
                return
            try:
                parsed = parse_block(block, records, self._describe_form())
            except (SourceError, pa.ArrowInvalid) as error:
                raise SourceError(f"{self.name}: cannot be read on from line {self._line}: {error}") from error
            yield from self._build_chunks(block, records, parsed)
            self._line += count_lines(block)
            self._number += int(parsed.is_record.sum())

    def close(self) -> None:
        """Let go of the file; may be called more than once."""
        self._stream.close()

    def _take_excel_hint(self, head: bytes) -> tuple[bytes, str | None]:
        """Excel writes `sep=;` above the header of a file with another delimiter than a country's own."""
        first, _, rest = head.partition(b"\n")
        hint = first.strip(b'\r"')
        if len(hint) != 5 or not hint.lower().startswith(b"sep="):
            return head, None
        self._line += 1
        return rest, parse_delimiter(chr(hint[4]))

    def _take_header(
        self, head: bytes, delimiter: str, quote: str, titles: int, *, is_whole: bool
    ) -> tuple[tuple[str, ...], bytes]:
        records = find_records(head, delimiter, is_last=is_whole, quote=quote)
        filled = np.flatnonzero(~find_blank(head, records, delimiter))
        if len(filled) <= titles:
            raise SourceError(f"{self.name}: no header: its first line does not end within {_HEAD_BYTES} bytes")
        place = int(filled[titles])
        if records.is_unclosed and place == len(records) - 1:
            raise SourceError(f"{self.name}: a quote in its header is never closed")
        record = head[records.starts[place] : records.stops[place]]
        try:
            if b"\0" in record:
                raise SourceError(f"{self.name}: its header holds a NUL byte; is it a text file?")
            columns = parse_header(record.decode("utf-8"), delimiter, self.name, quote)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.name}: its header is not {self._stream.encoding} (byte 0x{record[error.start]:02X}); "
                f"name the file's encoding: {advise_encoding(self._stream.advised)}"
            ) from None
        taken = int(records.nexts[place])
        self._line += count_lines(head[:taken])
        return columns, head[taken:]

    def _read_block(self) -> tuple[bytes, Records]:
        """Read until a record ends (at least) in what is at hand; what follows its end waits for the next block."""
        block, wanted = self._pending, self._block_bytes
        while True:
            if not self._is_ended and self._failure is None and len(block) < wanted:
                more = self._read_more(wanted - len(block))
                self._is_ended = not more and self._failure is None
                block += more
                continue
            records = self._find_records(block)
            if self._is_ended or len(records):
                break
            if self._failure is not None:
                raise self._failure
            if len(block) >= _MOST_RECORD:
                raise SourceError(
                    f"{self.name}: the record that begins on line {self._line} is longer than "
                    f"{_MOST_RECORD >> 20} MiB; look there for a quote that is never closed"
                )
            wanted = min(2 * len(block), _MOST_RECORD)
        end = int(records.nexts[-1]) if len(records) else 0
        self._pending = block[end:]
        return block[:end], records

    def _find_records(self, block: bytes) -> Records:
        form = self._form
        records = find_records(block, form.delimiter, is_last=self._is_ended, quote=form.quote)
        if len(records) == 0 and len(block) > _MOST_PENDING:
            line = find_runaway(block, form.delimiter, form.cells, form.quote, is_last=self._is_ended)
            if line:
                ended = find_records(block[:line], form.delimiter, is_last=True, quote=form.quote)
                return replace(ended, is_unclosed=False, broken=(0,))
        return end_runaways(block, records, form.delimiter, form.cells, form.quote)

    def _read_more(self, size: int) -> bytes:
        try:
            return self._ahead.read(size) or self._stream.read(size)
        except SourceError as error:
            said = str(error)
            self._failure = error if said.startswith(self.name) else SourceError(f"{self.name}: {said}")
            return b""

    def _describe_form(self) -> Format:
        """The encoding may have been found since the file was opened: by the first row that is not ASCII."""
        return replace(self._form, encoding=self._stream.encoding, advised=self._stream.advised)

    def _take_messages(self) -> tuple[str, ...]:
        remark, self._stream.remark = self._stream.remark, None
        told, self._untold = [*self._untold, *([f"{self.name}: {remark}"] if remark else [])], []
        return tuple(told)

    def _build_chunks(self, block: bytes, records: Records, parsed: Parsed) -> Iterator[Chunk]:
        numbers_of_records = self._number + np.cumsum(parsed.is_record)
        numbers = numbers_of_records[parsed.places]
        malformed = list(self._build_malformed(block, records, parsed.failed, numbers_of_records))
        table = parsed.table.rename_columns(list(self.columns))
        starts = range(0, max(1, table.num_rows), _MOST_ROWS)
        for start in starts:
            rows = table.slice(start, _MOST_ROWS)
            last = _MAX if start == starts[-1] else int(numbers[start + _MOST_ROWS - 1])
            with_it = tuple(row for row in malformed if row.number <= last)
            malformed = malformed[len(with_it) :]
            if rows.num_rows or with_it:
                frame = rows.to_pandas(types_mapper=lambda _: _TEXT)
                yield Chunk(
                    frame, numbers[start : start + _MOST_ROWS], with_it, self.name, messages=self._take_messages()
                )

    def _build_malformed(
        self, block: bytes, records: Records, failures: tuple[Failed, ...], numbers: npt.NDArray[np.int64]
    ) -> Iterator[MalformedRow]:
        line, since = self._line, 0
        for failed in failures:
            start = int(records.starts[failed.place])
            line, since = line + count_lines(block[since:start]), start
            yield MalformedRow(int(numbers[failed.place]), line, failed.raw, failed.code, failed.message)


_MAX = np.iinfo(np.int64).max


def _choose_block(text: bytes) -> int:
    """Bytes for about _CHUNK_ROWS rows, judged by the lines of the file's beginning."""
    lines = max(1, text.count(b"\n"))
    return min(max(_CHUNK_ROWS * len(text) // lines, _LEAST_BLOCK), _MOST_BLOCK)


def open_csv(
    path: str | PathLike[str],
    *,
    delimiter: str = "auto",
    encoding: str = "auto",
    chunk_bytes: int | None = None,
    stream: Readable | None = None,
) -> Source:
    """Open a CSV file, of whose cells nothing is guessed: each is text, an empty one is "".

    The header names the columns (an empty name becomes `column N`, a second `Email` becomes `Email (2)`); titles above
    it, lines of a single cell, are left out, and so is a delimiter that follows the last cell of each row and not of
    the header. Records of another width than the header's, with an undecodable or a NUL byte, with a quote that never
    closes or one that closes before its cell ends, or of more than a MiB, come as malformed. No records are blank lines
    (nothing, or spaces and tabs alone) and lines of just as many delimiters as the header has. A quote within quotes is
    written twice; a backslash is a backslash.

    What was left out, and the encoding that was found where none was named, the chunks' `messages` tell. An encoding
    that is not certain costs the rows with other than ASCII in them. `chunk_bytes` is the size of a block (chosen for
    about 30,000 rows); a longer record makes its block longer. A `stream` that is given
    is read in place of the file, and closed by the source; `path` is then its name alone.

    Raises SourceError for a file that is missing, a folder, empty, binary or without a header, ConfigurationError
    for a delimiter or an encoding that does not exist.
    """
    named = parse_delimiter(delimiter)
    utf8 = open_utf8(path, encoding, stream)
    try:
        return CsvSource(fspath(path), utf8, named, chunk_bytes)
    except BaseException:
        utf8.close()
        raise
