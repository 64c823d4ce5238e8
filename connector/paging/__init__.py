"""Decides which page of the list to request next, and what all pages prove together. All code is pure, and uses only
the ids of rows."""
