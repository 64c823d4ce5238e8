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


@lru_cache(maxsize=64)  # one base a crowd, and a million people in it
def _write_base(base_id: int, name: str) -> str:
    return orjson.dumps({"Id": base_id, "Name": name}).decode()


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
        n = self._place(subscriber_id)
        country, city, state = _PLACES[n % 7]
        base = _write_base(self.base_id, self.base_name)
        is_active = "true" if n % 10 else "false"
        return (
            f'{{"Id":{subscriber_id},"Base":{base},"IsActive":{is_active}'
            f',"Email":"{self.email(subscriber_id)}","FirstName":"{_FIRST[n % 13][0]}","LastName":"{_LAST[n % 17]}"'
            f',"Gender":"{_GENDERS[n % 3]}","Phone":"+31{200000000 + n % 99999989}","Tags":{_TAGS[n % 5]}'
            f',"ClientUserId":"seed-{subscriber_id}","CustomField1":"level {n % 9}"'
            f',"Address":{{"Country":"{country}","City":"{city}","State":"{state}"'
            f',"Zip":"{10000 + n % 89989}","Line1":"Main Street {n % 997}","Line3":""}}'
            f',"Birthday":"{1940 + n % 67}-{1 + n % 12:02d}-{1 + n % 28:02d}"}}'
        ).encode()
