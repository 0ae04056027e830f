"""Covers bookie/scrubber/logs.py: what a scrub says about the header and the map of a log after a power cut."""

from __future__ import annotations

import random
from itertools import product
from typing import Any, cast

from bookie.db_ledger_storage.entry_log_format import Header, encode_header
from bookie.db_ledger_storage.log_writing.log_writer import OpenLog
from bookie.scrubber.logs import log_damage
from quire.world.doors import Disk, File

SECTOR = 512
RECORDS = bytes(range(1, 101)) * 9
DAMAGE = "its ledgers map does not match the checksum in its header"


class LogFile:
    """A file that keeps what was written since each sync, sector by sector; and the disk that it lies on."""

    def __init__(self, ledgers: int) -> None:
        self.content = bytearray(encode_header(Header()) + RECORDS)
        self.epochs: list[list[tuple[int, bytes]]] = [[]]
        self._log = OpenLog(0, cast(File, self))
        self._log.position = len(self.content)
        self._log.ledgers = {ledger_id: 1000 + ledger_id for ledger_id in range(ledgers)}

    def seal(self) -> None:
        self._log.seal()

    def pwrite(self, data: bytes, offset: int) -> None:
        start = 0
        while start < len(data):
            end = min(len(data), start + SECTOR - (offset + start) % SECTOR)
            self.epochs[-1].append((offset + start, data[start:end]))
            start = end

    def sync(self) -> None:
        self.epochs.append([])

    def cut(self, epoch: int, kept: tuple[bool, ...]) -> None:
        """Become what a power cut left: all before this sync, and these sectors of what it would have covered."""
        last = [each for each, is_kept in zip(self.epochs[epoch], kept, strict=True) if is_kept]
        for offset, data in [each for done in self.epochs[:epoch] for each in done] + last:
            self.content.extend(bytes(max(0, offset + len(data) - len(self.content))))
            self.content[offset : offset + len(data)] = data

    # --- the disk and the file, as the scrub reads them

    def open(self, path: str, **options: Any) -> LogFile:
        return self

    def sectors_read(self) -> None:
        return None

    def size(self) -> int:
        return len(self.content)

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    def close(self) -> None:
        return

    @property
    def damage(self) -> str:
        return log_damage(cast(Disk, self), "/ledgers", 0)


def sealed(ledgers: int) -> LogFile:
    file = LogFile(ledgers)
    file.seal()
    return file


def test_no_power_cut_during_the_sealing_of_a_log_looks_like_damage() -> None:
    for ledgers in (1, 100):
        parts = sealed(ledgers).epochs
        for epoch, writes in enumerate(parts):
            for kept in product((False, True), repeat=len(writes)):
                file = sealed(ledgers)
                file.cut(epoch, kept)
                assert file.damage == "", (ledgers, epoch, kept)


def test_every_flipped_bit_of_a_checksum_and_its_map_is_damage() -> None:
    rng = random.Random(1)
    file = sealed(100)
    file.cut(len(file.epochs) - 1, ())
    assert file.damage == ""
    map_offset = len(encode_header(Header()) + RECORDS)
    for at in [*range(1008, 1020), *rng.sample(range(map_offset, file.size()), 60)]:
        file.content[at] ^= 1 << rng.randrange(8)
        assert file.damage == DAMAGE, at
        file.content[:] = (whole := sealed(100)).content
        whole.cut(len(whole.epochs) - 1, ())
        file.content[:] = whole.content


def test_a_log_without_checksum_whose_named_map_was_never_written_is_not_damaged() -> None:
    """The original writes no checksum, and the map and its place in the header without a sync between them."""
    end = len(encode_header(Header()) + RECORDS)
    for tail in (b"", bytes(40), bytes(5000)):
        file = LogFile(1)
        file.content[:] = encode_header(Header(map_offset=end, ledgers=1)) + RECORDS + tail
        assert file.damage == "", len(tail)
    for map_offset, tail in ((end + 1, b""), (end - 1, b""), (end, b"\0" * 20 + b"\1" + b"\0" * 19), (end, b"\1")):
        file = LogFile(1)
        file.content[:] = encode_header(Header(map_offset=map_offset, ledgers=1)) + RECORDS + tail
        assert file.damage, (map_offset, tail)
