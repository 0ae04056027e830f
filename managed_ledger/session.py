"""Whether the metadata service is known to be away. Then open ledgers serve on, and nothing is rolled, trimmed or deleted."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from quire.metadata.store import MetadataStore


@runtime_checkable
class _Connected(Protocol):
    """A store with a connection that can break."""

    @property
    def is_connected(self) -> bool: ...


class MetadataSession:
    """Of one broker."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._connected = store if isinstance(store, _Connected) else None

    def is_up(self) -> bool:
        """False: a call would fail now. True does not promise that it will not."""
        if self._connected is not None and not self._connected.is_connected:
            return False
        return not self._store.expired.is_set()
