"""The load of a source: read, map, check, plan, load, settle, and the report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
