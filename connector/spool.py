"""Temporary files of a run. `Spool` stores objects in their order. `SpooledValues` stores rows of JSON values, and
reads each row by its index.

A file has no name, and no other user can read the file. The file is deleted when the process ends.
"""

import json
import os
import pickle
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, ClassVar

import orjson
import pyarrow as pa

from connector.errors import RunAborted
from connector.rows import CloseableResource

_SIZE_BYTES = 8  # number of bytes with the uncompressed size, before each compressed object


class _RecordFile(CloseableResource):
    """Records of bytes in a temporary file, by index from 0. The first record creates the file."""

    _record_noun: ClassVar[str]  # the noun for the records in messages

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._offsets = array("q", [0])

    def _write_records(self, records: Sequence[bytes]) -> int:
        """Append records, and return the index of the first new record. Raises RunAborted if the disk is full."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` or the end of this object closes the file
                weakref.finalize(self, self._file.close)
            self._file.write(b"".join(records))
            self._file.flush()
        except OSError as error:
            raise RunAborted(describe_full_disk(self._record_noun, error)) from None
        first_index = len(self._offsets) - 1
        for record in records:
            self._offsets.append(self._offsets[-1] + len(record))
        return first_index

    def _read_record(self, index: int) -> bytes:
        """Return the record at this index. Raises RunAborted if the file cannot be read."""
        start_offset, end_offset = self._offsets[index], self._offsets[index + 1]
        if self._file is None:
            raise IndexError(index)
        try:
            return os.pread(self._file.fileno(), end_offset - start_offset, start_offset)
        except OSError as error:
            raise RunAborted(describe_full_disk(self._record_noun, error)) from None

    def close(self) -> None:
        """Delete all records and the file. A second call does nothing."""
        if self._file is not None:
            with suppress(OSError):  # on a full disk, buffered records cannot be written, but nothing reads them again
                self._file.close()
        self._file, self._offsets = None, array("q", [0])


class Spool(_RecordFile):
    """Objects in the order in which they were appended."""

    _record_noun = "the rows of the source"

    def append(self, spooled_object: object) -> None:
        """Write one object. Raises RunAborted if the disk is full."""
        object_bytes = pickle.dumps(spooled_object, protocol=pickle.HIGHEST_PROTOCOL)
        size_field = len(object_bytes).to_bytes(_SIZE_BYTES, "little")
        self._write_records([size_field + pa.compress(object_bytes, codec="lz4", asbytes=True)])

    def read(self) -> Iterator[Any]:
        """Yield all objects in their order. Raises RunAborted if the file cannot be read."""
        for index in range(len(self._offsets) - 1):
            record = self._read_record(index)
            uncompressed_size = int.from_bytes(record[:_SIZE_BYTES], "little")
            yield pickle.loads(pa.decompress(record[_SIZE_BYTES:], uncompressed_size, codec="lz4"))  # noqa: S301 - written by this process


class SpooledValues(_RecordFile):
    """Rows of JSON values, by index from 0."""

    _record_noun = "values that the run reads again"

    def add(self, rows: Iterable[Sequence[object]]) -> int:
        """Append rows, and return the index of the first new row. Raises RunAborted if the disk is full."""
        return self._write_records([encode_values(row) for row in rows])

    def read(self, index: int) -> list[Any]:
        """Return the row at this index. Raises RunAborted if the file cannot be read."""
        return decode_values(self._read_record(index))


def describe_full_disk(content_noun: str, error: OSError) -> str:
    """Return the message for a temporary file when the disk is full. `content_noun` is for example "the rows of the
    plan"."""
    folder = tempfile.tempdir or "any temporary folder"
    return (
        f"{content_noun} cannot be kept in {folder} ({error.strerror}): make room in this folder, or set TMPDIR to "
        "another folder, and run again"
    )


def encode_values(row: Sequence[object]) -> bytes:
    """Return JSON values as bytes. Equal values have equal bytes."""
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # only the module `json` can write a lone surrogate, or a number beyond 64 bits
        return json.dumps(row).encode()


def decode_values(encoded_values: bytes) -> list[Any]:
    """Decode bytes of `encode_values`, and return the values."""
    try:
        values: list[Any] = orjson.loads(encoded_values)
    except orjson.JSONDecodeError:
        values = json.loads(encoded_values)
    return values
