"""Reads the service's list: its pages, whether filters work and it is whole, and which subscribers it shows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
