"""Files of every format: opened, unpacked, told apart by what is in them, and read as chunks of text."""

from connector.extract.files.content import STANDARD_INPUT
from connector.extract.files.formats import FORMATS
from connector.extract.files.keeping import KeptInput, keep_input
from connector.extract.files.matching import open_files, refuse_lacking
from connector.extract.files.opening import open_file, open_kept

__all__ = [
    "FORMATS",
    "STANDARD_INPUT",
    "KeptInput",
    "keep_input",
    "open_file",
    "open_files",
    "open_kept",
    "refuse_lacking",
]
