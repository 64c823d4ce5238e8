"""Builds emails from the texts of a person, checks them, and sends each email at most once."""
