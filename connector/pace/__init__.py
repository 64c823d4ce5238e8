"""How fast, how many at once, and when not at all: found from what the service does; pure, on a clock passed in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
