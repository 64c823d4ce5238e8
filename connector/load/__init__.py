"""Brings valid rows into the service: creates each at most once, and reports each one's outcome (architecture 4)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
