"""bookie/settings/reads_and_flushes.py: bytes read ahead, and written between two syncs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bookie.settings.reads_and_flushes import READ_AHEAD_BYTES
from quire.wire.bookkeeper import v2
from tests.unit.bookie.build import CONFIG, Client, add_frames, with_bookie

pytestmark = pytest.mark.seeded

PAYLOAD = bytes(4 << 10)


@pytest.mark.parametrize(
    ("size", "least", "most"), [(-1, 4, 8), (READ_AHEAD_BYTES, 4, 8), (64 << 10, 16, 32), (2 << 20, 1, 2)]
)
async def test_so_many_bytes_are_read_ahead_at_a_time(size: int, least: int, most: int) -> None:
    async with with_bookie(config=replace(CONFIG, read_ahead_batch_bytes=size, read_bytes_beside_adds=0)) as bookie:
        client = Client(bookie)
        await client.ask(add_frames(7, 0, 256, PAYLOAD))
        await bookie.checkpoint()
        for entry_id in range(256):
            await client.ask(v2.read_request(7, entry_id))
        assert least <= bookie.storage.stats.disk_reads <= most


@pytest.mark.parametrize(("size", "least", "most"), [(0, 1, 1), (256 << 10, 4, 9), (32 << 20, 1, 1)])
async def test_a_flush_syncs_its_entry_log_after_so_many_bytes(
    size: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_bookie(config=replace(CONFIG, flush_sync_bytes=size)) as bookie:
        client = Client(bookie)
        for ledger_id in range(8):
            await client.ask(add_frames(ledger_id, 0, 256, PAYLOAD))
        writer, syncs = bookie.storage.of(0)._logs._flushed, 0
        sync = writer._sync

        def counted(log: Any) -> None:
            nonlocal syncs
            syncs += 1
            sync(log)

        monkeypatch.setattr(writer, "_sync", counted)
        await bookie.checkpoint()
        assert least <= syncs <= most
