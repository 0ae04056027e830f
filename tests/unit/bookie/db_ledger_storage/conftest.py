"""Runs of distinguishable entries and a host, for every test of the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct

import pytest

from quire.wire.bookkeeper.run import Run
from simulation.machines.host import Host
from simulation.machines.world import Universe

HEAD = Struct("!qqqq")


def entry_of(ledger_id: int, entry_id: int, size: int = 40, version: int = 0) -> bytes:
    """Return an entry with a valid head. Its payload has its ids and version, and fills it up to `size` bytes."""
    payload = f"<{ledger_id}:{entry_id} v{version}>".encode()
    return (HEAD.pack(ledger_id, entry_id, entry_id - 1, 0) + payload * (size // len(payload) + 1))[: max(size, 32)]


def run_of(ledger_id: int, ids: Iterable[int], size: int = 40, version: int = 0) -> Run:
    return Run.of(ledger_id, [(each, entry_of(ledger_id, each, size, version)) for each in ids])


def records_of(ledger_id: int, ids: Iterable[int], size: int = 40, version: int = 0) -> bytes:
    """Return the result of reading these entries."""
    return b"".join(
        len(entry).to_bytes(4, "big") + entry for entry in (entry_of(ledger_id, each, size, version) for each in ids)
    )


@pytest.fixture
async def host(universe: Universe) -> Host:
    return universe.host("bookie")


@pytest.fixture(name="entry_of")
def entry_of_fixture() -> Callable[..., bytes]:
    return entry_of


@pytest.fixture(name="run_of")
def run_of_fixture() -> Callable[..., Run]:
    return run_of


@pytest.fixture(name="records_of")
def records_of_fixture() -> Callable[..., bytes]:
    return records_of
