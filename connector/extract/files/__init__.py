"""Files of every format: opened, unpacked, told apart by what is in them, and read as chunks of text."""

from connector.extract.files.content import STANDARD_INPUT
from connector.extract.files.formats import FORMATS
from connector.extract.files.matching import open_files, refuse_lacking
from connector.extract.files.opening import open_file

__all__ = ["FORMATS", "STANDARD_INPUT", "open_file", "open_files", "refuse_lacking"]
