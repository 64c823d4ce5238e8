"""An export divided into Parquet files: by a column, a folder as Hive has it (`base_id=7/connector-RUN.parquet`), by
the workers that write it (`connector-RUN_2_ab12cd.parquet`), or by both.

The manifest in it, `_connector.json`, names the run that is in place and its files. On a disk the new folder is made
beside the present one, and the two change places in one step. A store has no such step: the new files are put first,
then the manifest, which alone decides, and then the files of earlier runs are deleted. So who reads the files of the
manifest's run sees all of one run.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from connector.driver_words import say_safely
from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.dataset_places import MANIFEST, PART, DatasetPlace, PartPlace
from connector.warehouse.parquet import ROW_GROUP, ParquetFormat
from connector.warehouse.runs import ExportRun, ExportStart, RowChanges, StagedPart

_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_PARTS = 500
"""Each is an open file until the end; systems allow a process 1,024, some 256 of which a run uses for other things."""
_MOST_WAITING = 4 * ROW_GROUP
"""Rows of all parts that wait for a row group: about 100 MB."""


class DividedFiles:
    """Parquet files of one writer: one (`by` None), or one for each value of the column `by`. `place` names where they
    go, `open_file` opens one by its name, `stem` is the name without its suffix."""

    def __init__(
        self, place: object, open_file: Callable[[str], BinaryIO], schema: pa.Schema, by: str | None, stem: str
    ) -> None:
        self._place, self._open_file, self._by, self._stem = place, open_file, by, stem
        self._schema = schema if by is None else schema.remove(schema.get_field_index(by))
        self._waiting: list[pa.Table] = []
        self._files: dict[str, ParquetFormat] = {}
        self.rows: dict[str, int] = {}
        """The rows of each file, by its name."""

    def add(self, table: pa.Table) -> None:
        """Take rows, and divide them as soon as they would make a row group."""
        self._waiting.append(table)
        if sum(each.num_rows for each in self._waiting) >= ROW_GROUP:
            self._divide()

    def close(self, run: ExportRun | None) -> None:
        """Write what waits, and the end of each file; raises OSError, ArrowException and RunAborted."""
        self._divide()
        for file in self._files.values():
            file.close(run)
        self._files.clear()

    def forget(self) -> None:
        """Begin again: what was written is thrown away with its files."""
        for file in self._files.values():
            with suppress(OSError, ValueError, pa.ArrowException):  # what could not be finished is thrown away
                file.close(None)
        self._files.clear()
        self.rows.clear()
        self._waiting.clear()

    def _divide(self) -> None:
        """Write the rows that wait, each value's to its own file."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        table = pa.concat_tables(waiting)
        if self._by is None:
            self._write(f"{self._stem}.parquet", table)
            return
        table = table.combine_chunks()
        encoded = table[self._by].combine_chunks().dictionary_encode(null_encoding="encode")
        counted = pc.value_counts(encoded.indices)
        rows = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
        ordered = table.take(pc.sort_indices(encoded.indices)).drop_columns([self._by])
        values, start = encoded.dictionary.to_pylist(), 0
        for index in sorted(rows):
            folder = _name_folder(self._by, values[index])
            self._write(f"{folder}/{self._stem}.parquet", ordered.slice(start, rows[index]))
            start += rows[index]
        if sum(file.waiting for file in self._files.values()) > _MOST_WAITING:
            for file in self._files.values():
                file.flush()

    def _write(self, name: str, table: pa.Table) -> None:
        if name not in self._files:
            if len(self._files) == _MOST_PARTS:
                raise RunAborted(
                    f"The list has more than {_MOST_PARTS} values of {self._by}, each of which would be a file of "
                    f"{self._place}: leave out --partition-by, and export to one file."
                )
            self._files[name] = ParquetFormat(self._open_file(name), self._schema)
        self._files[name].write(table)
        self.rows[name] = self.rows.get(name, 0) + table.num_rows


class DatasetWriter:
    """A Writer of a data set, divided by the column `by`, which Hive's readers take from the names of its folders, or
    by nothing but the workers.

    Raises ConfigurationError when rows are first staged for a folder with files that no export wrote.
    """

    def __init__(self, place: DatasetPlace, schema: pa.Schema, by: str | None) -> None:
        self._place, self._by, self._schema = place, by, schema
        self._manifest: Mapping[str, Any] | None = None
        self._files = DividedFiles(place, place.open_part, schema, by, "")
        self._adopted: dict[str, int] = {}
        self._run_id = ""
        self._is_committing = False

    def prepare(self, beginning: ExportStart) -> None:
        """See whether the folder can be written, and whether it is an export's."""
        self._run_id = beginning.run_id
        self._files = DividedFiles(
            self._place, self._place.open_part, self._schema, self._by, _name_stem(beginning.run_id)
        )
        self._place.prepare()
        self._manifest = _parse_manifest(self._place.read_manifest())
        if strange := self._find_strange():
            raise ConfigurationError(
                f"{self._place} holds {strange}, which no export wrote, and was left as it is: name another folder, or "
                "move that elsewhere."
            )

    @property
    def is_committing(self) -> bool:
        """Whether the new files are about to take their place, which may still happen."""
        return self._is_committing

    @property
    def has_target(self) -> bool:
        """Whether a data set is there."""
        return self._manifest is not None

    def interrupt(self) -> None:
        """End a publishing soon, if its manifest is not there yet."""
        self._place.interrupt()

    def start(self) -> None:
        """Begin a new data set."""
        self._forget()

    def add(self, table: pa.Table) -> None:
        """Take rows."""
        with _described(self._place):
            self._files.add(table)

    @property
    def tag(self) -> str:
        """What the names of its parts begin with."""
        return self._run_id

    def adopt(self, parts: Sequence[StagedPart]) -> None:
        """Take the files of these parts for the data set's own."""
        self._adopted = {name: rows for part in parts for name, rows in part.rows.items()}

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the data set that is there, if it was certified and filtered so."""
        if self._manifest is None:
            return None
        certificate = self._manifest["certificate"]
        is_such = certificate["verdict"] == "complete" and certificate["filters"].get("asked", {}) == dict(filters)
        return int(self._manifest["rows"]) if is_such else None

    def publish(self, run: ExportRun) -> RowChanges:
        """Finish the files and let them take the place of earlier ones, which an incomplete run leaves alone."""
        if self.has_target and not run.certificate.is_complete:
            raise RunAborted(f"{self._place} has an export, and an incomplete one replaces nothing.")
        if strange := self._find_strange():  # it came while the list was read
            raise RunAborted(f"{self._place} was left as it is: another program put {strange} there meanwhile.")
        with _described(self._place):
            self._files.close(run)
            self._is_committing = True
            self._place.publish(_build_manifest(run, self._by, self._files.rows | self._adopted), self._adopted)
        self._adopted = {}
        self.discard()
        return RowChanges(inserted=run.rows)

    def discard(self) -> None:
        """Forget what was staged."""
        self._forget()
        self._place.discard()

    def _find_strange(self) -> str:
        """Return the name of a file that no export wrote, or ""."""
        names = sorted(self._place.list_files())
        is_ours = self._manifest is not None
        return next((name for name in names if not (PART.fullmatch(name) or (name == MANIFEST and is_ours))), "")

    def _forget(self) -> None:
        self._files.forget()
        adopted, self._adopted = self._adopted, {}
        self._place.clear(adopted)


class DatasetPartWriter:
    """A PartWriter of files of a data set, which the process that publishes it adopts."""

    def __init__(self, place: PartPlace, schema: pa.Schema, by: str | None, name: str) -> None:
        self._place = place
        self._files = DividedFiles(place, place.open_part, schema, by, _name_stem(name))

    is_committing = False

    def start(self) -> None:
        """Do nothing: a file is opened with its first row."""

    def add(self, table: pa.Table) -> None:
        """Take rows."""
        with _described(self._place):
            self._files.add(table)

    def finish(self) -> StagedPart:
        """Let the files be where they are to be published. Raises RunAborted."""
        with _described(self._place):
            self._files.close(None)
            self._place.put_in_place()
        return StagedPart(dict(self._files.rows))

    def interrupt(self) -> None:
        """Do nothing: it is done in a moment."""

    def discard(self) -> None:
        """Remove what is not finished."""
        self._files.forget()
        self._place.discard()


@contextmanager
def _described(place: object) -> Iterator[None]:
    """Turn a failure to write into RunAborted, which says what the target is like."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RunAborted(
            f"Could not write {place}: {say_safely(error)}. Its {MANIFEST} names all files of one run; run it again."
        ) from error


def _name_stem(run: str) -> str:
    return f"connector-{run}"


def _name_folder(column: str, value: object) -> str:
    return f"{column}={_NULL if value is None else value}"


def _build_manifest(run: ExportRun, by: str | None, rows: Mapping[str, int]) -> bytes:
    said = {
        "run_id": run.run_id,
        "job": run.job,
        "exported_at": run.exported_at.isoformat(),
        "partition_by": by,
        "rows": run.rows,
        "files": [{"path": name, "rows": number} for name, number in sorted(rows.items())],
        "certificate": run.certificate.as_report(),
    }
    return json.dumps(said, indent=1).encode() + b"\n"


def _parse_manifest(data: bytes | None) -> Mapping[str, Any] | None:
    """Return what an export's manifest says; None where it is missing, or no export wrote it."""
    try:
        said = json.loads(data or b"null")
    except ValueError:
        return None
    keys = {"run_id", "rows", "files", "certificate"}
    return said if isinstance(said, dict) and keys <= said.keys() and isinstance(said["certificate"], dict) else None
