"""State of the session with the metadata service. While it is away, open ledgers continue, and nothing is rolled,
trimmed or deleted."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from quire.metadata.store import MetadataStore


@runtime_checkable
class _Connected(Protocol):
    """A store with a connection that can be lost."""

    @property
    def is_connected(self) -> bool: ...


@runtime_checkable
class _Exclusive(Protocol):
    """A store that may belong to one process."""

    @property
    def is_exclusive(self) -> bool: ...


class MetadataSession:
    """Session of one broker."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._connected = store if isinstance(store, _Connected) else None
        self.is_exclusive = isinstance(store, _Exclusive) and store.is_exclusive
        """True if no other process can write to the store."""

    def is_up(self) -> bool:
        """Return False if a call would fail now. True does not guarantee success."""
        if self._connected is not None and not self._connected.is_connected:
            return False
        return not self._store.expired.is_set()
