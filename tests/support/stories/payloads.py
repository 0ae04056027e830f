"""Entries of the ledgers of stories: entry n is `payload(n)`."""

from __future__ import annotations

import socket

import trio

from quire.ledger import LedgerClient
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from tests.support.bookie_process import BookieProcess


def payload(number: int) -> bytes:
    return b"%d " % number + bytes([number % 256]) * (number * 37 % 400)


async def check(client: LedgerClient, ledger_id: int, count: int, *, recover: bool = True, more: int = 0) -> int:
    """The ledger has the first `count` entries, unharmed, and at most `more` behind them. Returns how many."""
    reader = await client.open(ledger_id, recover=recover)
    found = reader.last_entry_id + 1
    assert count <= found <= count + more, f"{found} entries"
    entries = await reader.read(0, found - 1)
    assert [bytes(each) for each in entries] == [payload(each) for each in range(found)]
    reader.close()
    return found


def rc_of_read(bookie: BookieProcess, ledger_id: int, entry_id: int) -> Rc:
    """Return the bookie's own answer, without a client that would ask the next bookie."""
    with socket.create_connection(("127.0.0.1", bookie.port), timeout=10) as peer:
        peer.sendall(v2.read_request(ledger_id, entry_id))
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
            frame += peer.recv(1 << 16)
    (answer,) = v2.decode_responses(frame)
    assert isinstance(answer, v2.ReadResponse)
    return Rc(answer.rc)


async def has(bookie: BookieProcess, ledger_id: int, entry_id: int) -> bool:
    """Return whether the bookie itself has the entry."""
    return await trio.to_thread.run_sync(rc_of_read, bookie, ledger_id, entry_id) is Rc.OK
