"""Emails as .eml files (RFC 5322, MIME): what a message amounts to, and what a file that people have says of one."""

from connector.mail.eml.reading import read_eml
from connector.mail.eml.writing import write_eml

__all__ = ["read_eml", "write_eml"]
