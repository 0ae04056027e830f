"""Messages that clients move between topics in transactions, and the check that each arrives exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from simulation.common.checkers import Place, ViolationError, require
from simulation.common.pulsar_client import Connection

LOOK_S = 0.5
"""Virtual time between two looks at what arrived."""


class Sink:
    """The topic that messages are moved to, as a reader finds it. A message there names the place it was moved from."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._found: dict[Place, bytes] = {}

    async def read(self, connection: Connection, arrival: Callable[[Connection], Awaitable[None]]) -> None:
        """Read the topic from its beginning, until the connection breaks. `arrival` waits for the next message."""
        self._found.clear()
        await connection.subscribe(self._topic, "reader", 1, pb.CommandSubscribe.Exclusive, durable=False)
        connection.flow(1, 1_000_000)
        while True:
            while connection.messages:
                _, got = connection.messages.popleft()
                self._found[got.ledger_id, got.entry_id] = got.payload
            await arrival(connection)

    @property
    def moved(self) -> Counter[bytes]:
        """Return what was found."""
        return Counter(self._found.values())

    async def settle(self, source: dict[Place, bytes], *, liveness_s: float, quiet_s: float) -> int:
        """Wait until every message of `source` was moved, and see that no more is; return how many were. Raises
        ViolationError."""
        wanted = Counter(b"%d:%d" % place for place in source)
        with trio.move_on_after(liveness_s):
            while self.moved != wanted:
                twice = {place: count for place, count in self.moved.items() if count > wanted[place]}
                if twice:
                    raise ViolationError("AllOrNothing", f"in the sink more than once, or never sent: {twice}")
                await trio.sleep(LOOK_S)
        found = self.moved
        require(
            found == wanted, "NobodyWaitsForEver", f"not moved: {sorted(wanted - found)[:5]}, {len(wanted - found)}"
        )
        await trio.sleep(quiet_s)
        require(self.moved == wanted, "AllOrNothing", f"too much: {self.moved - wanted}")
        return sum(found.values())
