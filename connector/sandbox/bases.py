"""The subscriber bases: a base that a request names and that is not there yet is made."""


class Bases:
    """Ids and names of the bases; ids count from 1."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._ids: dict[str, int] = {}

    def find_or_make(self, base_id: int | None, name: str | None) -> tuple[int, str]:
        """(Id, Name) of the base: an unknown Id makes `Base <Id>`, an unknown Name takes the next Id."""
        if base_id is None:
            wanted = name or ""
            known = self._ids.get(wanted)
            return (known, wanted) if known is not None else self.keep(max(self._names, default=0) + 1, wanted)
        known_name = self._names.get(base_id)
        return (base_id, known_name) if known_name is not None else self.keep(base_id, f"Base {base_id}")

    def keep(self, base_id: int, name: str) -> tuple[int, str]:
        """Records a base under its Id; of two with one name, the first is found by it."""
        self._names.setdefault(base_id, name)
        self._ids.setdefault(name, base_id)
        return base_id, self._names[base_id]

    def items(self) -> list[tuple[int, str]]:
        """All of them, (Id, Name), by Id."""
        return sorted(self._names.items())
