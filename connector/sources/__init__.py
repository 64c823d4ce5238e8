"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
