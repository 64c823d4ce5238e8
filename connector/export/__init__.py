"""Exports: the list is read, certified, and only then published in a warehouse."""
