"""The public face of connector: reads the list, loads, plans and sends, from a script, a notebook or a thread."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
