"""Files of every format: opened, unpacked, told apart by what is in them, and read as chunks of text."""

from connector.extract.files.matching import find_lacking, open_files
from connector.extract.files.opening import open_file

__all__ = ["find_lacking", "open_file", "open_files"]
