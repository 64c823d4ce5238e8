"""The subscriber bases: a base that a request names and that is not there yet is made."""


def fold_name(name: str) -> str:
    """What names have in common that differ in capitals and surrounding blanks alone."""
    return name.strip().casefold()


class Bases:
    """Ids and names of the bases; ids count from 1."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._folded: dict[str, int] = {}

    def find_or_make(self, base_id: int | None, name: str | None, *, is_folded: bool = False) -> tuple[int, str]:
        """(Id, Name) of the base: an unknown Id makes `Base <Id>`, an unknown Name takes the next Id.

        With `is_folded` a name is found in any capitals and with any blanks around it.
        """
        if base_id is None:
            wanted = name or ""
            known = self._ids.get(wanted)
            if known is None and is_folded:
                known = self._folded.get(fold_name(wanted))
            return self.keep(max(self._names, default=0) + 1, wanted) if known is None else (known, self._names[known])
        known_name = self._names.get(base_id)
        return (base_id, known_name) if known_name is not None else self.keep(base_id, f"Base {base_id}")

    def keep(self, base_id: int, name: str) -> tuple[int, str]:
        """Records a base under its Id; of two with one name, the first is found by it."""
        self._names.setdefault(base_id, name)
        self._ids.setdefault(name, base_id)
        self._folded.setdefault(fold_name(name), base_id)
        return base_id, self._names[base_id]

    def items(self) -> list[tuple[int, str]]:
        """All of them, (Id, Name), by Id."""
        return sorted(self._names.items())
