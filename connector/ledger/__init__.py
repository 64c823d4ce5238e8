"""What is known of every identity in every base: the memory that survives the process (architecture 4)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
