"""Emails from a message file, options or rows: drafted, checked, and sent at most once."""
