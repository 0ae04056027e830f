"""Times of the operations of a metadata store, by what they do and how they end.

Source: Pulsar's MetadataStoreStats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import trio

from quire.metadata.store import Create, Op, Put
from quire.service.measuring.summaries import Histogram

Operation: TypeAlias = Literal["get", "put", "del"]
"""Reads, with those of children; writes, with those of several nodes; deletions of one node."""
BOUNDS_MS: Final = (1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
STORE: Final = "metadata-store"
"""Label of the store; the original has another one for the configuration."""


class MetadataTimes:
    """Histograms of one store in milliseconds."""

    __slots__ = ("_failed", "_succeeded", "put_bytes")

    def __init__(self) -> None:
        self._succeeded = _histograms()
        self._failed = _histograms()
        self.put_bytes = 0
        """Bytes of the values written."""

    @contextmanager
    def of(self, operation: Operation) -> Iterator[None]:
        """Measure one operation."""
        began = trio.current_time()
        try:
            yield
        except BaseException:
            self._failed[operation].observe(1000 * (trio.current_time() - began))
            raise
        self._succeeded[operation].observe(1000 * (trio.current_time() - began))

    def all(self) -> Iterator[tuple[Sequence[str], Histogram]]:
        """Yield the histograms with their labels: store, operation, success or fail."""
        for status, histograms in (("success", self._succeeded), ("fail", self._failed)):
            for operation, histogram in histograms.items():
                yield (STORE, operation, status), histogram


def _histograms() -> dict[Operation, Histogram]:
    return {"get": Histogram(BOUNDS_MS), "put": Histogram(BOUNDS_MS), "del": Histogram(BOUNDS_MS)}


def bytes_put(ops: Sequence[Op]) -> int:
    """Return the bytes of the values that ops write."""
    return sum([len(op.value) for op in ops if isinstance(op, Create | Put)])


@runtime_checkable
class Timed(Protocol):
    """A store that measures its operations."""

    @property
    def times(self) -> MetadataTimes: ...
