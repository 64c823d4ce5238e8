"""Workbooks: a sheet as rows, after a look at what the sheet spans."""

from connector.extract.files.workbook.source import open_excel

__all__ = ["open_excel"]
