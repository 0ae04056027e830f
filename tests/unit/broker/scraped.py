"""Values of the metrics of a broker in memory."""

from __future__ import annotations

import re

from broker.metrics import register
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.unit.broker.peers import Room


class Scraped:
    """Metrics of a broker, read anew at each access."""

    def __init__(self, room: Room) -> None:
        self._metrics = Metrics()
        register(self._metrics, room.broker, ConnectionCounts(opened=5, closed=2), "c")

    def __getitem__(self, name: str) -> float:
        """Return the sum of a metric over its label sets."""
        text = self._metrics.exposition().decode()
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)
        assert values, f"no metric {name} in\n{text}"
        return sum(map(float, values))
