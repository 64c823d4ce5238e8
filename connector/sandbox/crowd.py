"""Many plausible subscribers that take no room: each is written from its id whenever somebody asks for it.

So a list of a million is there at once (control: seed), for tests of exports and of long lists.
"""

from dataclasses import dataclass
from functools import lru_cache

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


_ROW = (
    b'{"Id":%d,"Base":%b,"IsActive":%b,"Email":"%b%d@example.net",%b,"Phone":"+31%d","Tags":%b'
    b',"ClientUserId":"seed-%d",%b,"Zip":"%d","Line1":"Main Street %d","Line3":""},"Birthday":"%d-%b"}'
)
"""A subscriber. What recurs is written once, in the tables below, since a list of a million is asked for page by page:
each table has one entry for each place in the period of what it holds."""

_ACTIVE = tuple(b"true" if n else b"false" for n in range(10))
_MAILBOXES = tuple(f"{_FIRST[n % 13][1]}.{_LAST[n % 17]}.".lower().encode() for n in range(13 * 17))
_NAMES = tuple(
    f'"FirstName":"{_FIRST[n % 13][0]}","LastName":"{_LAST[n % 17]}","Gender":"{_GENDERS[n % 3]}"'.encode()
    for n in range(13 * 17 * 3)
)
_TAG_LISTS = tuple(tags.encode() for tags in _TAGS)
_ADDRESSES = tuple(
    '"CustomField1":"level {}","Address":{{"Country":"{}","City":"{}","State":"{}"'.format(
        n % 9, *_PLACES[n % 7]
    ).encode()
    for n in range(9 * 7)
)
_DAYS = tuple(b"%02d-%02d" % (1 + n % 12, 1 + n % 28) for n in range(84))


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
        n = (subscriber_id - self.first_id) // self.step
        return _ROW % (
            subscriber_id,
            _write_base(self.base_id, self.base_name),
            _ACTIVE[n % 10],
            _MAILBOXES[n % 221],
            subscriber_id,
            _NAMES[n % 663],
            200000000 + n % 99999989,
            _TAG_LISTS[n % 5],
            subscriber_id,
            _ADDRESSES[n % 63],
            10000 + n % 89989,
            n % 997,
            1940 + n % 67,
            _DAYS[n % 84],
        )
