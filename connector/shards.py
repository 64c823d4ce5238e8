"""A shard is one of N equal ranges of the digests of identities. No subscriber is in two shards (architecture 4.16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_SHARDS = 1000

_PREFIX_BYTES = 8  # number of bytes at the beginning of a digest that decide its shard
_DIGEST_BYTES = 16
_PREFIX_RANGE = 1 << (8 * _PREFIX_BYTES)
_END_OF_DIGESTS = b"\xff" * (_DIGEST_BYTES + 1)  # larger than every digest


@dataclass(frozen=True, slots=True)
class Shard:
    """The shard number `index` (from 1) of `count` shards. The shard has the digests from `smallest_digest` to
    `end_digest`, without `end_digest`."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that `I/N` names. Raises ValueError for any other text."""
        index_text, _, count_text = text.partition("/")
        are_numbers = all(part.isascii() and part.isdecimal() for part in (index_text, count_text))
        if not (are_numbers and 1 <= int(index_text) <= int(count_text) <= MAX_SHARDS):
            raise ValueError(f"{text!r} is not a shard. Write I/N with I from 1 to N and N up to {MAX_SHARDS:,}: 2/4")
        return cls(int(index_text), int(count_text))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def is_whole(self) -> bool:
        """Whether the shard has all identities."""
        return self.count == 1

    @property
    def smallest_digest(self) -> bytes:
        """The smallest digest of the shard."""
        return self._smallest_prefix_number.to_bytes(_PREFIX_BYTES, "big") + bytes(_DIGEST_BYTES - _PREFIX_BYTES)

    @property
    def end_digest(self) -> bytes:
        """The smallest digest of the next shard. For the last shard, a value that is larger than every digest."""
        if self.index == self.count:
            return _END_OF_DIGESTS
        return Shard(self.index + 1, self.count).smallest_digest

    def overlaps(self, other: Shard) -> bool:
        """Return whether both shards may have the same digest. Shards with different counts always count as
        overlapping."""
        return self.count != other.count or self.index == other.index

    def has_digest(self, digest: bytes) -> bool:
        """Return whether the digest of an identity is in the shard."""
        return self.smallest_digest <= digest < self.end_digest

    def build_digest_mask(self, digests: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
        """Return the mask of the digests (S16) that are in the shard."""
        import numpy as np  # imported here, so that the help of a command does not wait for NumPy

        eight_byte_numbers = np.frombuffer(np.ascontiguousarray(digests).tobytes(), dtype=">u8")
        prefix_numbers = eight_byte_numbers.reshape(-1, _DIGEST_BYTES // _PREFIX_BYTES)[:, 0]
        largest_prefix_number = self.index * _PREFIX_RANGE // self.count - 1
        return (prefix_numbers >= np.uint64(self._smallest_prefix_number)) & (
            prefix_numbers <= np.uint64(largest_prefix_number)
        )

    def map_digest_into_shard(self, digest: bytes) -> bytes:
        """Return the digest that has, in the range of this shard, the same relative position as `digest` has among all
        digests."""
        offset = int.from_bytes(digest[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0"), "big") // self.count
        return (self._smallest_prefix_number + offset).to_bytes(_PREFIX_BYTES, "big") + digest[_PREFIX_BYTES:]

    def divide(self, limit: int) -> int:
        """Return this shard's part of a limit that all shards share. The sum of all parts is the limit."""
        quotient, remainder = divmod(limit, self.count)
        return quotient + (self.index <= remainder)

    @property
    def _smallest_prefix_number(self) -> int:
        return (self.index - 1) * _PREFIX_RANGE // self.count


SINGLE_SHARD = Shard()
"""The only shard of an ordinary run."""
