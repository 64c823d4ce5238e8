"""Moves subscribers into and out of an email-marketing service, and says what it does not know."""

__version__ = "0.1.0"
