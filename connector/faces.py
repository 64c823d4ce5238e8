"""A package's face that imports a module when one of its names is asked for (PEP 562).

A command's help or a usage error then pays for no library that it does not use.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

Face = Mapping[str, tuple[str, ...]]
"""The names of a face, by the module of the package that has them."""


def open_face(package: str, face: Face) -> Callable[[str], object]:
    """Return the `__getattr__` of the package."""
    homes = {name: module for module, names in face.items() for name in names}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get
