"""Turns the rows of a source into valid subscribers with an identity. The functions have no side effects."""
