"""Prepares the process that is forked for each command: imports the program, and validates a row to fill the caches."""

import atexit
import gc
import io
import pkgutil
import tempfile
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest

_LIBRARIES = (
    "aiohttp", "duckdb", "encodings.idna", "encodings.utf_8_sig", "jinja2", "pandera.strategies.pandas_strategies",
    "psycopg", "pyarrow.parquet", "pymysql", "rich._emoji_codes", "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite.pysqlite", "uvloop",
)  # fmt: skip


def _import_all_modules() -> None:
    for name in _LIBRARIES:
        import_module(name)
    for package in map(import_module, ("connector", "pipelines")):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


def _validate_a_row() -> None:
    from pipelines.cli import cli

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        path = Path(folder) / "people.csv"
        path.write_text("email\nann@example.com\n")
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main(["validate", str(path), "--active"], standalone_mode=False)


_import_all_modules()
_validate_a_row()
tempfile.tempdir = None  # each forked command reads TMPDIR again
gc.freeze()  # the collector would touch, and so copy, every page that a fork shares
atexit.register(gc.unfreeze)  # DuckDB warns about frozen objects at the end
