"""Churn: after a list page is read, subscribers appear in and vanish from that list, at its head, middle or end."""

from dataclasses import dataclass

import orjson

from connector.sandbox.faults import Fate
from connector.sandbox.shelf import Shelf
from connector.sandbox.state import State

_SEARCHED = 1000  # how many neighbours of the middle are searched for a free id before the end has to do


@dataclass(frozen=True, slots=True)
class _Scene:
    """The list that was read, and what place 0 of it is on the shelf."""

    shelf: Shelf
    order: str
    base_id: int | None

    def read_id(self, place: int) -> int:
        return self.shelf.read_id(len(self.shelf) - 1 - place if self.order == "id_desc" else place)


def churn(state: State, base_id: int | None) -> None:
    """Deletes, then inserts, as the switches say; `base_id` is the base that was listed, None for all."""
    settings = state.settings
    if not settings.churn_insert and not settings.churn_delete:
        return
    for _ in range(_how_many(state, settings.churn_delete)):
        _delete(state, base_id)
    for _ in range(_how_many(state, settings.churn_insert)):
        _insert(state, base_id)


def _how_many(state: State, amount: float) -> int:
    whole = int(amount)
    return whole + (state.random.random() < amount - whole)


def _look(state: State, base_id: int | None) -> _Scene:
    order = state.settings.order
    return _Scene(state.store.shelf(by_email=order == "email", base_id=base_id), order, base_id)


def _place(state: State, count: int) -> int:
    if state.settings.order == "shuffled":
        return state.random.randrange(count)
    return {"head": 0, "middle": count // 2, "end": count - 1}[state.settings.churn_where]


def _delete(state: State, base_id: int | None) -> None:
    scene = _look(state, base_id)
    if len(scene.shelf):
        gone = scene.read_id(_place(state, len(scene.shelf)))
        state.truth.note_deleted(gone)
        state.store.remove(gone)


def _insert(state: State, base_id: int | None) -> None:
    """A new subscriber: in id order its id puts it in its place, in email order its email."""
    scene = _look(state, base_id)
    if base_id is None:
        base_id = state.store.base_of(scene.read_id(_place(state, len(scene.shelf)))) if len(scene.shelf) else 1
    base_id, base_name = state.store.bases.find_or_make(base_id, None)
    subscriber_id = _choose_id(state, scene)
    email = _choose_email(state, scene, subscriber_id)
    base = {"Id": base_id, "Name": base_name}
    wire = orjson.dumps({"Id": subscriber_id, "Base": base, "IsActive": True, "Email": email, "Gender": ""})
    state.truth.note_stored("churn_inserted", subscriber_id, base_id, None, Fate.NOBODY, wire)
    state.store.add(subscriber_id, base_id, email, "", wire)


def _choose_id(state: State, scene: _Scene) -> int:
    """In id order an unused id at the wanted end, or in the nearest gap above the middle; otherwise the next id."""
    shelf, where = scene.shelf, state.settings.churn_where
    if not len(shelf) or scene.order not in ("id", "id_desc"):
        return state.store.take_id(state.settings.id_step)
    is_low = where == ("head" if scene.order == "id" else "end")
    free: int | None = None
    if where == "middle":
        middle = shelf.read_ids(len(shelf) // 2, len(shelf) // 2 + _SEARCHED)
        free = next((each + 1 for each in middle[:-1] if each + 1 not in state.store), None)
    elif is_low:
        free = shelf.read_id(0) - 1
        while free > 0 and free in state.store:  # a neighbour in another base
            free -= 1
    return free if free is not None and free > 0 else state.store.take_id(state.settings.id_step)


def _choose_email(state: State, scene: _Scene, subscriber_id: int) -> str:
    """An email nobody has; in email order it sorts first, last, or just behind the one in the middle."""
    tag = f"churn-{state.truth.sequence + 1}"
    if scene.order != "email" or not len(scene.shelf):
        return f"{tag}.{subscriber_id}@example.net"
    where = state.settings.churn_where
    if where == "head":
        return f"!{10**12 - state.truth.sequence}.{tag}@example.net"
    if where == "end":
        return f"\U0010ffff{10**12 + state.truth.sequence}.{tag}@example.net"
    neighbour = state.store.sort_key(scene.read_id(len(scene.shelf) // 2))[0]
    return f"{neighbour.partition('@')[0]}.{tag}@example.net"
