"""A raw pipelining generator of bookie protocol version 2: it does next to nothing per entry, so that the bookie is
measured."""

from __future__ import annotations

import random
import socket
import time
from dataclasses import dataclass
from struct import Struct

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import master_key

KEY = master_key(b"")
ANSWER_SIZE = 28
"""Header of an add: length, header, rc, ledger id, entry id."""
CHUNK = 1 << 20
_ENTRY_HEAD = Struct("!qqqq")
LEDGERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Result of the adds."""

    first_ledger: int
    entries: int
    """Number of entries of each of LEDGERS ledgers."""
    size: int


def connect(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def adds(ledger_id: int, first: int, count: int, payload: bytes) -> bytes:
    """Return ADD frames, whose entries have an arbitrary digest, which a bookie does not check."""
    head = v2.add_head(_ENTRY_HEAD.size + len(payload), KEY)
    parts: list[bytes] = []
    for entry_id in range(first, first + count):
        parts += (head, _ENTRY_HEAD.pack(ledger_id, entry_id, entry_id - 1, 0), payload)
    return b"".join(parts)


def flood(port: int, first_ledger: int, size: int, window: int, seconds: float) -> tuple[Filled, float]:
    """Add to LEDGERS ledgers in turn with at most `window` adds unanswered; return the added entries and the seconds
    taken."""
    run = max(1, window // (2 * LEDGERS))
    payload = bytes(size)
    entries = 0
    unanswered = 0
    received = 0
    begun = time.perf_counter()
    with connect(port) as peer:
        while True:
            going = time.perf_counter() - begun < seconds
            while going and unanswered + run * LEDGERS <= window:
                peer.sendall(b"".join([adds(first_ledger + i, entries, run, payload) for i in range(LEDGERS)]))
                entries += run
                unanswered += run * LEDGERS
            if not unanswered:
                return Filled(first_ledger=first_ledger, entries=entries, size=size), time.perf_counter() - begun
            data = peer.recv(CHUNK)
            at = -received % ANSWER_SIZE
            bad = [data[(at + place) % ANSWER_SIZE :: ANSWER_SIZE].strip(b"\0") for place in range(8, 12)]
            if not data or any(bad):
                raise RuntimeError(f"the bookie refused an add of {size} bytes: {data[at : at + ANSWER_SIZE].hex()}")
            unanswered -= (received + len(data)) // ANSWER_SIZE - received // ANSWER_SIZE
            received += len(data)


def random_reads(port: int, filled: Filled, window: int, count: int) -> float:
    """Read `count` entries in a random order, none twice, with `window` requests unanswered; return the seconds
    taken."""
    places = random.Random(1).sample(range(LEDGERS * filled.entries), min(count, LEDGERS * filled.entries))
    requests = [v2.read_request(filled.first_ledger + place % LEDGERS, place // LEDGERS) for place in places]
    answer = ANSWER_SIZE + _ENTRY_HEAD.size + filled.size
    begun = time.perf_counter()
    with connect(port) as peer:
        sent = received = 0
        while received < len(requests) * answer:
            most = received // answer + window
            if sent < len(requests) and sent + window // 4 <= most:
                peer.sendall(b"".join(requests[sent:most]))
                sent = min(most, len(requests))
            data = peer.recv(CHUNK)
            if not data:
                raise RuntimeError("the bookie closed the connection")
            if received == 0 and int.from_bytes(data[8:12], "big"):
                raise RuntimeError("the bookie refused a read")
            received += len(data)
    return time.perf_counter() - begun
