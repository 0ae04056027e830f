"""A raw pipelining generator of bookie protocol version 2: it does next to nothing per entry, so that the bookie is
measured."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from struct import Struct

import numpy as np

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import master_key

KEY = master_key(b"")
ANSWER_SIZE = 28
"""Header of an add: length, header, rc, ledger id, entry id."""
CHUNK = 1 << 20
FILL_WINDOW = 2000
BATCH_ENTRIES = 100
"""Entries of a batch read, as Pulsar's dispatcherMaxReadBatchSize."""
BATCH_BYTES = 5 << 20
_ENTRY_HEAD = Struct("!qqqq")
_ID_AT = 36
"""Place in an ADD frame of the entry id, which the LAC follows."""
_BATCH_ANSWER = Struct("!iIiqqq")
_IDS = Struct("!qq")
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


class AddChunks:
    """ADD frames of LEDGERS ledgers in turn, `run` of each, made from one chunk whose entry ids are overwritten: making
    them afresh took as much of a processor as a bookie takes for them."""

    def __init__(self, first_ledger: int, run: int, payload: bytes) -> None:
        self._run = run
        frames = b"".join([adds(first_ledger + i, 0, run, payload) for i in range(LEDGERS)])
        self._frames = np.frombuffer(frames, np.uint8).reshape(LEDGERS, run, -1).copy()
        self._ids = self._frames[:, :, _ID_AT : _ID_AT + 16]

    def at(self, first: int) -> memoryview:
        """Return the frames of entries `first` to `first + run - 1` of each ledger, valid until the next call."""
        ids = np.arange(first, first + self._run)
        self._ids[:] = np.stack([ids, ids - 1], axis=1).astype(">i8").view(np.uint8)
        return self._frames.data


def flood(
    port: int, first_ledger: int, size: int, window: int, seconds: float = inf, *, entries_max: float = inf
) -> tuple[Filled, float]:
    """Add to LEDGERS ledgers in turn with at most `window` adds unanswered, for so many seconds or until each ledger
    has about `entries_max` entries; return the added entries and the seconds taken."""
    run = max(1, window // (2 * LEDGERS))
    chunks = AddChunks(first_ledger, run, bytes(size))
    entries = 0
    unanswered = 0
    received = 0
    begun = time.perf_counter()
    with connect(port) as peer:
        while True:
            going = time.perf_counter() - begun < seconds
            while going and entries < entries_max and unanswered + run * LEDGERS <= window:
                peer.sendall(chunks.at(entries))
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


def fill(port: int, first_ledger: int, ledgers: int, entries: int, size: int) -> None:
    """Add so many entries to each of so many ledgers, one ledger after the other."""
    payload = bytes(size)
    unanswered = 0
    received = 0
    with connect(port) as peer:
        for ledger_id in range(first_ledger, first_ledger + ledgers):
            peer.sendall(adds(ledger_id, 0, entries, payload))
            unanswered += entries
            is_last = ledger_id == first_ledger + ledgers - 1
            while unanswered > (0 if is_last else FILL_WINDOW):
                data = peer.recv(CHUNK)
                if not data or (received == 0 and int.from_bytes(data[8:12], "big")):
                    raise RuntimeError("the bookie refused an add")
                unanswered -= (received + len(data)) // ANSWER_SIZE - received // ANSWER_SIZE
                received += len(data)


def random_reads(port: int, filled: Filled, window: int, count: int, *, seed: int = 1) -> float:
    """Read `count` entries in a random order, none twice, with `window` requests unanswered; return the seconds
    taken."""
    places = random.Random(seed).sample(range(LEDGERS * filled.entries), min(count, LEDGERS * filled.entries))
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


def batch_reads(port: int, filled: Filled, seconds: float = inf) -> tuple[int, float]:
    """Read the ledgers from their start by batch reads, one request of each ledger unanswered, until all are read or
    the time is over; return the entries and the seconds taken."""
    size = 4 + _ENTRY_HEAD.size + filled.size
    count = 0
    begun = time.perf_counter()
    with connect(port) as peer:
        left = LEDGERS

        def ask(ledger_id: int, entry_id: int) -> None:
            peer.sendall(v2.batch_read_request(ledger_id, entry_id, 1, BATCH_ENTRIES, BATCH_BYTES))

        for ledger_id in range(filled.first_ledger, filled.first_ledger + LEDGERS):
            ask(ledger_id, 0)
        for body_size, ledger_id, entry_id in _batch_answers(peer):
            count += body_size // size
            following = entry_id + body_size // size
            if following < filled.entries and time.perf_counter() - begun < seconds:
                ask(ledger_id, following)
            else:
                left -= 1
                if not left:
                    return count, time.perf_counter() - begun
    raise RuntimeError("the bookie closed the connection")


def _batch_answers(peer: socket.socket) -> Iterator[tuple[int, int, int]]:
    """Yield the bytes of entries, ledger and first entry of each answer, whose bodies are dropped."""
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    head = b""
    while True:
        while len(head) < _BATCH_ANSWER.size:
            data = peer.recv(_BATCH_ANSWER.size - len(head))
            if not data:
                return
            head += data
        length, _, rc, ledger_id, entry_id, _ = _BATCH_ANSWER.unpack(head)
        if rc or length <= 32:
            raise RuntimeError(f"the bookie refused a batch read of ledger {ledger_id}, entry {entry_id}: {rc}")
        left = length - 32
        while left:
            got = peer.recv_into(view[: min(left, CHUNK)])
            if not got:
                return
            left -= got
        head = b""
        yield length - 32, ledger_id, entry_id


def paced(port: int, first_ledger: int, size: int, per_s: float, seconds: float) -> list[float]:
    """Add at this rate; return the milliseconds from the moment at which each add was due to its answer."""
    payload = bytes(size)
    total = int(per_s * seconds)
    took: list[float] = []
    sent = 0
    left = b""
    with connect(port) as peer:
        begun = time.perf_counter()
        while len(took) < total:
            now = time.perf_counter()
            due = min(total, int((now - begun) * per_s) + 1)
            if due > sent:
                frames = [adds(first_ledger + n % LEDGERS, n // LEDGERS, 1, payload) for n in range(sent, due)]
                peer.settimeout(60)
                peer.sendall(b"".join(frames))
                sent = due
            pause = begun + sent / per_s - time.perf_counter() if sent < total else 60.0
            peer.settimeout(max(pause, 1e-4))
            try:
                data = peer.recv(CHUNK)
            except TimeoutError:
                if sent == total:
                    raise
                continue
            if not data:
                raise RuntimeError("the bookie closed the connection")
            now = time.perf_counter()
            data = left + data
            whole = len(data) - len(data) % ANSWER_SIZE
            for start in range(0, whole, ANSWER_SIZE):
                if data[start + 8 : start + 12] != bytes(4):
                    raise RuntimeError(f"the bookie refused an add: {data[start : start + ANSWER_SIZE].hex()}")
                ledger_id, entry_id = _IDS.unpack_from(data, start + 12)
                took.append(1000 * (now - begun - (entry_id * LEDGERS + ledger_id - first_ledger) / per_s))
            left = data[whole:]
    return took
