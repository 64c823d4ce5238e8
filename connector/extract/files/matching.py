"""The files of a pattern (`inbox/*.csv`) as one source: each in its turn, every row under its own file's name."""

import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import pandas as pd

from connector.errors import ConfigurationError, SourceError
from connector.extract.chunk import Chunk, Source
from connector.extract.closing import Closing

_TEXT = pd.StringDtype(na_value=np.nan)

Opener = Callable[[str], Source]


class MatchedFiles(Closing):
    """Several files of rows, opened by `open_files`; `columns` are those of all, in the order in which they come.

    A file's rows have no value in the columns that it lacks; record numbers begin anew with each file.
    """

    def __init__(self, name: str, paths: Sequence[str], opener: Opener) -> None:
        self.name = name
        self._opener = opener
        self.columns_by_file: dict[str, tuple[str, ...]] = {}
        for path in paths:
            with opener(path) as source:
                self.columns_by_file[path] = source.columns
        self.columns = tuple(dict.fromkeys(name for columns in self.columns_by_file.values() for name in columns))
        self._open: Source | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Give the records of every file, file by file, once. Raises SourceError."""
        for path, columns in self.columns_by_file.items():
            with self._opener(path) as source:
                self._open = source
                if source.columns != columns:
                    raise SourceError(f"{path}: its columns have changed since the run began; run again")
                for chunk in source.chunks():
                    yield self._widen(chunk)

    def close(self) -> None:
        """Let go of the file that is open, if any; may be called more than once."""
        if self._open is not None:
            self._open.close()

    def _widen(self, chunk: Chunk) -> Chunk:
        if tuple(chunk.frame.columns) == self.columns:
            return chunk
        frame = chunk.frame.reindex(columns=pd.Index(self.columns))
        return replace(chunk, frame=frame.astype(_TEXT))


def open_files(path: str | PathLike[str], opener: Opener) -> Source:
    """Open the file of this path or, if there is none and it is a pattern (`*`, `?`, `[…]`, `**`), those that match.

    Files come in the order of their names; hidden ones match only a pattern that begins with a dot. Raises SourceError
    if no file matches, and as `opener` does for any of them.
    """
    name = fspath(path)
    if not glob.has_magic(name) or Path(name).exists():
        return opener(name)
    base, pattern = _split(Path(name))
    found = sorted(glob.glob(pattern, root_dir=base, recursive=True))  # noqa: PTH207 - Path's takes hidden files too
    paths = [str(base / each) for each in found if not (base / each).is_dir()]
    if not paths:
        raise SourceError(f"{name}: no file matches; check the pattern, or whether the files have come")
    return MatchedFiles(name, paths, opener)


def refuse_lacking(source: Source, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if one of a source's files lacks a column that others have, and that is needed."""
    by_file: dict[str, tuple[str, ...]] = getattr(source, "columns_by_file", {})
    lacking = [(path, name) for path, there in by_file.items() for name in columns if name not in there]
    if lacking:
        path, name = lacking[0]
        more = f" ({len(lacking) - 1} more are missing in these files)" if len(lacking) > 1 else ""
        raise ConfigurationError(
            f"{path}: has no column {name}, which other files of {source.name} have{more}; its columns: "
            f"{', '.join(by_file[path])}. Give every file the columns that are mapped, or narrow the pattern"
        )


def _split(path: Path) -> tuple[Path, str]:
    """The folder that is there as it is written, brackets and all, and the pattern within it."""
    parts = list(path.parts)
    base = Path(path.anchor or ".")
    parts = parts[1:] if path.anchor else parts
    while len(parts) > 1 and (base / parts[0]).is_dir():
        base /= parts.pop(0)
    return base, str(Path(*parts))
