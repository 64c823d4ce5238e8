"""Decides which page of the list to request next, and whether the pages prove that the list was read completely. All
code is pure, and uses only the ids of rows."""
