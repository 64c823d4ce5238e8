"""Exports: read the list, certify it, and only then publish it in a warehouse."""
