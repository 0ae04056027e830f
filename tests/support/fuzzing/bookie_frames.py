"""Seeds of the bookie protocol in both versions, and conversations of mutated ones."""

from __future__ import annotations

import random
from functools import cache
from struct import pack

from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.auth import auth_message
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key
from tests.support.fuzzing.mutations import nested, spoiled, torn

KEY = master_key(b"fuzz")
_DIGEST = Digest(DigestType.CRC32C, b"fuzz")
LEDGERS = range(7000, 7100)


def entry(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    return _DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload


@cache
def seeds_2(ledger_id: int) -> tuple[bytes, ...]:
    """Return frames of version 2."""
    adds = [entry(ledger_id, number, b"p" * 10 * number) for number in range(20)]
    return (
        *(v2.add_head(len(each), KEY, flags) + each for flags in (0, v2.RECOVERY_ADD) for each in adds),
        v2.add_head(len(adds[3]), b"\0" * 20) + adds[3],
        v2.add_head(3, KEY) + b"abc",
        v2.add_head(30_000, KEY) + entry(ledger_id, 21, b"x" * 29_964),
        *(v2.read_request(ledger_id, number) for number in (0, 5, -1, 1 << 62)),
        v2.read_request(ledger_id, 0, v2.HIGH_PRIORITY),
        v2.batch_read_request(ledger_id, 0, 1, 10, 1 << 20),
        v2.batch_read_request(ledger_id, 0, 2, (1 << 31) - 1, (1 << 63) - 1),
        v2.batch_read_request(ledger_id, 3, 3, -1, -1),
        _framed(pack("!I", v2.header(v2.Opcode.AUTH)) + auth_message("plugin", b"secret")),
        _framed(pack("!I", v2.header(v2.Opcode.READ_LAC)) + pack("!q", ledger_id)),
        _framed(pack("!I", v2.header(v2.Opcode.GET_BOOKIE_INFO))),
        _framed(pack("!I", 0x01010000) + bytes(40)),
    )


@cache
def seeds_3(ledger_id: int) -> tuple[bytes, ...]:
    """Return frames of version 3."""
    entries = [entry(ledger_id, number, b"q" * 10 * number) for number in range(20)]
    adds = [
        b"".join(map(_joined, v3.add_requests(number, ledger_id, [number], KEY, [each], flags, write_flags)))
        for number, each in enumerate(entries)
        for flags, write_flags in ((0, 0), (v2.RECOVERY_ADD | v2.HIGH_PRIORITY, 0), (0, 1))
    ]
    return (
        *adds,
        *(v3.read_request(1, ledger_id, number) for number in (0, 5, -1)),
        v3.read_request(2, ledger_id, 0, v2.HIGH_PRIORITY),
        v3.read_request(3, ledger_id, 3, previous_lac=100, timeout_ms=50, piggyback=True),
        v3.read_request(3, ledger_id, -1, previous_lac=1 << 60, timeout_ms=(1 << 63), piggyback=True),
        v3.write_lac_request(4, ledger_id, 3, KEY, _DIGEST.seal_lac(ledger_id, 3)),
        v3.read_lac_request(5, ledger_id),
        v3.bookie_info_request(6, 3),
        v3.start_tls_request(7),
        v3.force_request(8, ledger_id),
        v3.list_of_entries_request(9, ledger_id),
        v3.auth_request(10, "plugin", b"secret"),
        _framed(b"\x0a\x06\x08\x03\x10\x01\x18\x01" + nested(b"\xa2\x06", 300)),
    )


@cache
def fences(ledger_id: int) -> tuple[bytes, ...]:
    """Return frames that fence the ledger, with which a conversation ends: later adds are refused."""
    return (
        v2.read_request(ledger_id, 0, v2.DO_FENCING, KEY),
        v2.read_request(ledger_id, -1, v2.DO_FENCING | v2.HIGH_PRIORITY, b"\1" * 20),
        v3.read_request(3, ledger_id, 0, v2.DO_FENCING, KEY),
    )


def _framed(body: bytes) -> bytes:
    return pack("!i", len(body)) + body


def _joined(frame: v2.Frame) -> bytes:
    return b"".join(frame) if isinstance(frame, tuple) else bytes(frame)


def conversation(rng: random.Random, length: int) -> tuple[list[bytes], list[bytes]]:
    """Return the frames of one connection: none that are sent first, and about `length`; the last one may be torn."""
    ledger_id = rng.choice(LEDGERS)
    of_2, of_3 = seeds_2(ledger_id), seeds_3(ledger_id)
    known = rng.choice((of_2, of_3, of_3, of_2 + of_3))
    frames = []
    share = rng.choice((0.1, 0.5))
    for _ in range(length):
        frame = rng.choice(known)
        if rng.random() < share:
            frame = _framed(spoiled(rng, frame[4:], [each[4:] for each in rng.choices(known, k=3)]))
        if len(frame) >= 8:
            frames.append(frame)
    if rng.random() < 0.02:
        frames.append(rng.choice(fences(ledger_id)))
    if rng.random() < 0.5:
        frames.append(torn(rng, rng.choice(known)))
    return [], frames
