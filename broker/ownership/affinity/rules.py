"""The brokers that may have a bundle, by all rules at once (pure)."""

from __future__ import annotations

from broker.ownership.affinity.spread import Placed, Spread, namespace_of
from broker.ownership.isolation import Isolation


class PlacementRules:
    """Isolation policies, and the spreading of anti-affinity groups among the brokers that these leave."""

    __slots__ = ("_isolation", "_spread")

    def __init__(self, isolation: Isolation, spread: Spread) -> None:
        self._isolation = isolation
        self._spread = spread

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self._isolation) or bool(self._spread)

    def allowed(self, bundle: str, placed: Placed) -> set[str]:
        """Return those of the brokers, which are the keys of `placed`, that may have a bundle (`namespace/range`)."""
        left = self._isolation.allowed(namespace_of(bundle), placed)
        return self._spread.allowed(bundle, left, placed)
