"""Many plausible subscribers that take no room: each is written from its id whenever somebody asks for it.

So a list of a million is there at once (control: seed), for tests of exports and of long lists.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import orjson

_FIRST = (
    ("Ana", "Ana"), ("Björn", "Bjorn"), ("Chloé", "Chloe"), ("Дмитрий", "Dmitry"), ("Ελένη", "Eleni"),
    ("Fatima", "Fatima"), ("张伟", "Wei"), ("חנה", "Hannah"), ("Işıl", "Isil"), ("José", "Jose"), ("किरण", "Kiran"),
    ("Łukasz", "Lukasz"), ("محمد", "Muhammad"),
)  # fmt: skip
_LAST = (
    "Anders", "Brook", "Castillo", "Dimitrov", "Eriksen", "Fontaine", "Garcia", "Hoffmann", "Ivanova", "Jansen",
    "Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Quinn",
)  # fmt: skip
_PLACES = (
    ("DE", "Berlin", "Berlin"), ("FR", "Lyon", ""), ("US", "Portland", "OR"), ("JP", "大阪", "Osaka"),
    ("BR", "São Paulo", "SP"), ("GB", "Leeds", ""), ("GR", "Αθήνα", ""),
)  # fmt: skip
_GENDERS = ("female", "male", "")
_TAGS = ('["news"]', '["news","shop"]', "[]", '["vip"]', '["shop","beta"]')

_SHAPES = 4_420  # so many differ in more than their id and phone; a multiple of 13 x 17, by which mailboxes recur


@cache
def _write_shapes() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """What stands between base, id, number of the phone, id again, and the end: written once, since a list of a million
    is asked for page by page."""
    return [_write_shape(number) for number in range(_SHAPES)]


def _write_shape(number: int) -> tuple[bytes, bytes, bytes, bytes]:
    (first, plain), last = _FIRST[number % len(_FIRST)], _LAST[number % len(_LAST)]
    country, city, state = _PLACES[number % len(_PLACES)]
    parts = (
        f',"IsActive":{"true" if _is_active(number) else "false"},"Email":"{f"{plain}.{last}".lower()}.',
        f'@example.net","FirstName":"{first}","LastName":"{last}","Gender":"{_GENDERS[number % 3]}","Phone":"+31',
        f'","Tags":{_TAGS[number % 5]},"ClientUserId":"seed-',
        (
            f'","CustomField1":"level {number % 9}","Address":{{"Country":"{country}","City":"{city}","State":"{state}"'
            f',"Zip":"{10000 + 20 * number}","Line1":"Main Street {number % 997}","Line3":""}}'
            f',"Birthday":"{1940 + number % 67}-{1 + number % 12:02}-{1 + number % 28:02}"}}'
        ),
    )
    active, names, tags, rest = (part.encode() for part in parts)
    return active, names, tags, rest


def _is_active(number: int) -> bool:
    return number % 10 > 0


@lru_cache(maxsize=64)  # one base a crowd, and a million people in it
def _write_base(base_id: int, name: str) -> bytes:
    return orjson.dumps({"Id": base_id, "Name": name})


@dataclass(frozen=True, slots=True)
class Crowd:
    """`count` subscribers of one base with the ids `first_id`, `first_id + step`, and so on."""

    first_id: int
    count: int
    step: int
    base_id: int
    base_name: str

    @property
    def ids(self) -> range:
        """The ids that the crowd had when it was made; some may have been removed since."""
        return range(self.first_id, self.first_id + self.count * self.step, self.step)

    def email(self, subscriber_id: int) -> str:
        """The email of one of them, all in lower case, different for each id."""
        place = self._place(subscriber_id)
        first, last = _FIRST[place % len(_FIRST)][1], _LAST[place % len(_LAST)]
        return f"{first}.{last}.{subscriber_id}@example.net".lower()

    def is_active(self, subscriber_id: int) -> bool:
        """Whether one of them is: nine of ten are."""
        return _is_active(self._place(subscriber_id))

    def find_email(self, email: str) -> int | None:
        """The id whose email is `email` (trimmed, lower case), if one of them has it."""
        digits = email.partition("@")[0].rpartition(".")[2]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        subscriber_id = int(digits)
        return subscriber_id if subscriber_id in self.ids and self.email(subscriber_id) == email else None

    def find_client_user_id(self, key: str) -> int | None:
        """The id whose ClientUserId, in lower case, is `key`."""
        digits = key.removeprefix("seed-")
        if not key.startswith("seed-") or not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        return int(digits) if f"seed-{int(digits)}" == key and int(digits) in self.ids else None

    def _place(self, subscriber_id: int) -> int:
        """0 for the first, 1 for the next: what varies goes by it, so that no step makes all alike."""
        return (subscriber_id - self.first_id) // self.step

    def write(self, subscriber_id: int) -> bytes:
        """The subscriber as the service writes it, JSON."""
        (wire,) = self.write_all((subscriber_id,))
        return wire

    def write_all(self, subscriber_ids: Iterable[int]) -> list[bytes]:
        """Several of them."""
        begin, base, shapes = b'{"Id":', b',"Base":' + _write_base(self.base_id, self.base_name), _write_shapes()
        wires = []
        for each in subscriber_ids:
            place = (each - self.first_id) // self.step
            active, names, tags, rest = shapes[place % _SHAPES]
            digits, phone = b"%d" % each, b"%d" % (200_000_000 + place % 99_999_989)
            wires.append(b"".join((begin, digits, base, active, digits, names, phone, tags, digits, rest)))
        return wires
