"""Log lines about bad clients, few for each address: a flood of them must not fill the disk.

The first lines of an address in a minute are written. The others are counted, and the count is one line when the minute
is over. So are lines above a bound of all addresses together, in one count.
"""

from __future__ import annotations

from typing import Final

import trio

from quire.service.log import get_logger
from quire.service.neighbours.addresses import place_of
from quire.service.neighbours.windows import Windows

log = get_logger(__name__)

LINES_MAX: Final = 10
"""Lines of one kind about one address in a window."""
LINES_OF_ALL_MAX: Final = 300
"""Lines about all addresses in a window, those with counts aside."""
WINDOW_S: Final = 60.0
ADDRESSES_MAX: Final = 1000
"""Addresses counted at a time."""
_ALL: Final = ("", "")


class RareLines:
    """Lines of one server. Times are trio's."""

    def __init__(self, *, lines_max: int = LINES_MAX, all_max: int = LINES_OF_ALL_MAX) -> None:
        self._lines_max = lines_max
        self._all_max = all_max
        self._of_address: Windows[tuple[str, str]] = Windows(WINDOW_S, ADDRESSES_MAX)
        self._of_all: Windows[tuple[str, str]] = Windows(WINDOW_S, 1)

    def admits(self, event: str, peer: str, reason: str = "") -> bool:
        """Return whether `event` about the client `peer` (host:port) is written; if not, it is counted.

        `reason`: text of the server, one of few, which has lines of its own: so that the reasons that a client adds are
        seen although it repeats one of them."""
        now = trio.current_time()
        key = (f"{event}: {reason}" if reason else event, place_of(peer))
        self._write_counts(self._of_address.add(key, now), self._lines_max)
        if self._of_address.count(key, now) > self._lines_max:
            return False
        self._write_counts(self._of_all.add(_ALL, now), self._all_max)
        return self._of_all.count(_ALL, now) <= self._all_max

    def settle(self) -> None:
        """Write the counts of windows that are over. Called periodically; `admits` does it too."""
        now = trio.current_time()
        self._write_counts(self._of_address.ended(now), self._lines_max)
        self._write_counts(self._of_all.ended(now), self._all_max)

    def _write_counts(self, ended: list[tuple[tuple[str, str], int]], lines_max: int) -> None:
        counts = [(key, count - lines_max) for key, count in ended if count > lines_max]
        if len(counts) > LINES_MAX:  # as many lines as addresses would be a flood again
            counts = [(("", ""), sum(count for _, count in counts))]
        for (event, address), count in counts:
            log.warning("lines left out", of=event or "several", connection=address or "several", count=count)
