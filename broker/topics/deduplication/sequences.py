"""Sequence ids of the producers of one topic: which sends are new (pure).

    pushed      highest sequence id given to the log, by producer name
    persisted   highest sequence id that is durable

A send at or below `pushed` is a duplicate: it was stored before, or is on its way. Before a producer is admitted, what
its name pushed on another connection is settled, so what is on its way came on the same connection before it. Of a
chunked message all parts have one sequence id, which counts when its last part is stored.

What holds:
- PersistedIsStored: `persisted` names only what the log has, so nothing that is lost is taken for a duplicate.
- NamesAreBounded: of producers that are not connected, those that left longest ago are forgotten above `names_max`.

Source: Pulsar's MessageDeduplication. As there a batch counts as a duplicate if its lowest id is one, and then has the
highest id that its producer names. Java's client names it. The C++, Python and Go clients do not, and a batch of theirs
has one id, the lowest: in older Go clients the next batch has the next id, whatever the number of messages. Different
here: parts of a chunked message that is stored are duplicates too, not its last part alone; a replay takes the id of a
chunked message from its last part alone, as a message that a crash cut off is not stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

SNAPSHOT_BYTES_MAX = 384 * 1024
"""Maximum bytes of a snapshot: it may go into the cursor's node, and ZooKeeper refuses values of a million bytes."""
BYTES_PER_NAME = 24
SURELY_FIT = 100
"""Producers whose names are surely not too long together."""
_NEGATIVE = 1 << 63
NONE = -1
"""Answered as the last sequence id of an unknown producer."""


class Sequences:
    """See the module."""

    __slots__ = ("_left_at", "_names_max", "persisted", "pushed")

    def __init__(self, names_max: int) -> None:
        self.pushed: dict[str, int] = {}
        self.persisted: dict[str, int] = {}
        self._left_at: dict[str, float] = {}
        """Producers that are not connected, in the order they left."""
        self._names_max = names_max

    def recover(self, stored: Iterable[tuple[str, int]], now: float) -> None:
        """Learn sequence ids from a snapshot or an entry, oldest first."""
        for name, sequence_id in stored:
            # As the original: the last one counts, not the highest.
            self.pushed[name] = self.persisted[name] = sequence_id
            self.left(name, now)

    def push_all(self, name: str, ids: Sequence[int]) -> bool:
        """Note a whole run of single messages as pushed if that needs no look at each of them: all are new, without
        gaps."""
        first, last = ids[0], ids[-1]
        if last >= _NEGATIVE or last - first != len(ids) - 1:
            return False
        pushed = self.pushed.get(name)
        if (pushed is not None and first <= pushed) or (len(ids) > 2 and list(ids) != list(range(first, last + 1))):
            return False
        self.pushed[name] = last
        return True

    def push(self, name: str, lowest: int, highest: int, *, completes: bool = True) -> bool:
        """Judge one send: return whether it is new, and note it as pushed if so.

        `completes`: it is not a part of a chunked message, or the last one."""
        lowest, highest = signed(lowest), signed(highest)
        pushed = self.pushed.get(name)
        if pushed is not None and lowest <= pushed:
            return False
        if completes:
            self.pushed[name] = max(lowest, highest)
        return True

    def stored(self, name: str, lowest: int, highest: int) -> None:
        """Note a send as durable."""
        if lowest <= highest < _NEGATIVE:
            self.persisted[name] = highest
        else:
            self.persisted[name] = max(signed(lowest), signed(highest))

    def is_settled(self, name: str) -> bool:
        """Return whether everything that this producer pushed is durable."""
        return self.pushed.get(name) == self.persisted.get(name)

    def last(self, name: str) -> int:
        """Return the last durable sequence id of a producer; NONE if it is unknown."""
        return self.persisted.get(name, NONE)

    # Producers

    def joined(self, name: str) -> None:
        """Note that the producer is connected."""
        self._left_at.pop(name, None)

    def left(self, name: str, now: float) -> None:
        """Note that the producer is not connected any more."""
        self._left_at.pop(name, None)
        if name not in self.pushed:
            return
        self._left_at[name] = now
        while len(self.pushed) > self._names_max and self._left_at:
            oldest = next(iter(self._left_at))
            if not self.is_settled(oldest):
                break
            self._forget(oldest)

    def purge(self, before: float) -> int:
        """Forget the producers that left before that time; return how many."""
        gone = [name for name, at in self._left_at.items() if at < before and self.is_settled(name)]
        for name in gone:
            self._forget(name)
        return len(gone)

    def _forget(self, name: str) -> None:
        del self._left_at[name]
        self.pushed.pop(name, None)
        self.persisted.pop(name, None)

    def snapshot(self) -> dict[str, int]:
        """Return what is to be stored: at most `names_max` producers, and SNAPSHOT_BYTES_MAX, connected ones first."""
        persisted, left_at = self.persisted, self._left_at
        if len(persisted) <= min(self._names_max, SURELY_FIT):
            return dict(persisted)
        names = [name for name in persisted if name not in left_at]
        names += [name for name in persisted if name in left_at]
        del names[self._names_max :]
        lengths = list(accumulate(map(len, map(str.encode, names))))  # no call of a function per name
        fitting = bisect_right(
            range(len(names)), SNAPSHOT_BYTES_MAX, key=lambda index: lengths[index] + (index + 1) * BYTES_PER_NAME
        )
        return {name: persisted[name] for name in names[:fitting]}


def signed(sequence_id: int) -> int:
    """Return an id of the wire, an unsigned number of 64 bits, as the original and the snapshot have it.

    >>> signed((1 << 64) - 2)
    -2
    """
    return sequence_id - (_NEGATIVE << 1) if sequence_id >= _NEGATIVE else sequence_id
