"""Reads files and databases as chunks of text. This package knows no fields of subscribers."""
