"""From the rows of a source to valid subscribers with an identity: headers, mapping, validation, suppression. Pure.

The face is lazy: a job file is checked by `rules` alone, without pandas, Arrow and pandera.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
