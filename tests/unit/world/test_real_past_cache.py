"""Writes of the real disk that bypass the page cache in a file that is otherwise written through it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from quire.world.doors import File
from quire.world.real import real_world
from quire.world.real_disk import _PAST_CACHE_BYTES, _PAST_CACHE_MIN

BLOCK = 4096
DATA = os.urandom(_PAST_CACHE_MIN + 3 * BLOCK)


def opened(path: Path) -> File:
    return real_world().disk.open(str(path), create=True)


def is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int, int]]:
    """Writes as (past the page cache, offset, bytes); the disk takes them all, whatever the folder is on."""
    found: list[tuple[bool, int, int]] = []
    written = os.pwrite
    written_parts = os.pwritev

    def pwrite(fd: int, data: Any, offset: int) -> int:
        direct = is_direct(fd)
        found.append((direct, offset, len(data)))
        return through(fd, lambda: written(fd, data, offset)) if direct else written(fd, data, offset)

    def pwritev(fd: int, parts: Sequence[Any], offset: int, flags: int = 0) -> int:
        found.append((is_direct(fd), offset, sum(map(len, parts))))
        return written_parts(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "pwritev", pwritev)
    return found


def through(fd: int, write: Callable[[], int]) -> int:
    """Write through the page cache, which every file system has."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    try:
        return write()
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)


@pytest.mark.parametrize("offset", [0, 1, 1024, BLOCK - 1, BLOCK, 3 * BLOCK + 77])
def test_all_parts_are_written_end_to_end_wherever_they_begin(tmp_path, offset):
    parts: list[bytes | memoryview] = [bytes([65 + index % 26]) * (1 + index * 7919 % 9000) for index in range(300)]
    parts.append(memoryview(os.urandom(_PAST_CACHE_BYTES + 5)))
    joined = b"".join(parts)
    file = opened(tmp_path / "f")
    file.pwrite(b"x" * offset, 0)
    assert file.pwritev_past_cache(parts, offset) == len(joined)
    assert file.pwritev_past_cache([joined], offset + len(joined)) == len(joined)
    file.pwrite(b"end", offset + 2 * len(joined))
    file.sync()
    assert (tmp_path / "f").read_bytes() == b"x" * offset + joined + joined + b"end"


def test_whole_blocks_bypass_the_page_cache_and_what_shares_a_block_with_others_does_not(tmp_path, calls):
    file = opened(tmp_path / "f")
    file.pwritev_past_cache([DATA[:BLOCK], DATA[BLOCK:]], 1024)
    last = len(DATA) + 1024 - 1024
    assert calls == [(False, 1024, 3072), (True, BLOCK, last - BLOCK), (False, last, 1024)]
    assert file.pread(len(DATA), 1024) == DATA
    del calls[:]
    file.pwritev_past_cache([DATA], 8 * BLOCK)
    assert calls == [(True, 8 * BLOCK, len(DATA))]


def test_a_large_write_bypasses_the_page_cache_a_bounded_piece_at_a_time(tmp_path, calls):
    opened(tmp_path / "f").pwritev_past_cache([bytes(_PAST_CACHE_BYTES), bytes(BLOCK)], 0)
    assert calls == [(True, 0, _PAST_CACHE_BYTES), (True, _PAST_CACHE_BYTES, BLOCK)]


def test_a_small_write_does_not_bypass_the_page_cache(tmp_path, calls):
    opened(tmp_path / "f").pwritev_past_cache([bytes(_PAST_CACHE_MIN - 1)], 0)
    assert calls == [(False, 0, _PAST_CACHE_MIN - 1)]


def test_other_writes_of_the_file_go_through_the_page_cache_afterwards_even_after_a_failure(tmp_path, monkeypatch):
    file = opened(tmp_path / "f")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, offset: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            file.pwritev_past_cache([DATA], 0)
    file.pwritev([b"abc"], 1)  # which a direct file refuses
    assert (tmp_path / "f").read_bytes() == b"\0abc"


def test_a_disk_that_refuses_it_is_written_through_the_page_cache_and_not_asked_again(tmp_path, monkeypatch):
    written = os.pwrite
    asked: list[int] = []

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if is_direct(fd):
            asked.append(offset)
            raise OSError(errno.EINVAL, "larger sectors")
        return written(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    file = opened(tmp_path / "f")
    for place in (0, len(DATA)):
        assert file.pwritev_past_cache([DATA], place) == len(DATA)
    assert asked == [0]
    assert (tmp_path / "f").read_bytes() == DATA + DATA


def test_a_file_system_without_direct_files_is_written_through_the_page_cache(tmp_path, monkeypatch):
    changed = fcntl.fcntl

    def refuse(fd: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not here")
        return changed(fd, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    opened(tmp_path / "f").pwritev_past_cache([DATA], 5)
    assert (tmp_path / "f").read_bytes() == bytes(5) + DATA


def test_a_write_past_the_page_cache_that_takes_less_is_continued(tmp_path, monkeypatch):
    written = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: written(fd, data[: 5 * BLOCK], offset))
    file = opened(tmp_path / "f")
    assert file.pwritev_past_cache([DATA], BLOCK) == len(DATA)
    assert (tmp_path / "f").read_bytes() == bytes(BLOCK) + DATA
