"""What the service lists, kept so that a source can be laid beside it: columns in memory, values in a file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
