"""Reads the service's list: its pages, whether filters work and it is whole, and which subscribers it shows."""
