"""Payloads and keys of a load (pure, but for the file)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from quire.cli.messages.access import FlagsError
from quire.cli.messages.records import unescape

_LETTERS = bytes(range(65, 91))


class Payloads:
    """Payloads, chosen at random where there are several. Given the same seed, they are the same."""

    def __init__(self, pool: Sequence[bytes], rng: random.Random) -> None:
        self._pool = pool
        self._rng = rng
        self.size_max = max(map(len, pool))

    def take(self, count: int) -> list[bytes]:
        """Return payloads."""
        return [self._pool[0]] * count if len(self._pool) == 1 else self._rng.choices(self._pool, k=count)


def letters(size: int, rng: random.Random) -> bytes:
    """Return a text of capital letters, which pulsar-perf sends."""
    return bytes(rng.choices(_LETTERS, k=size))


def half_random(size: int, ratio: float, rng: random.Random) -> bytes:
    """Return random bytes, and zeros behind them. OpenMessaging's randomBytesRatio is the part of random ones."""
    count = int(size * ratio)
    return rng.randbytes(count) + bytes(size - count)


def from_file(path: str, delimiter: str) -> list[bytes]:
    """Return the payloads in a file of text. Raises FlagsError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FlagsError(f"--payload-file {path}: {error}") from None
    found = [part.encode() for part in text.split(unescape(delimiter) or "\n")]
    while found and not found[-1]:
        found.pop()  # behind the last line end
    if not found:
        raise FlagsError(f"--payload-file {path} is empty")
    return found


class Keys:
    """Keys as --message-key-generation-mode makes them."""

    def __init__(self, mode: str, rng: random.Random) -> None:
        self._mode = mode
        self._rng = rng
        self._next = 0

    def take(self, count: int) -> list[str] | None:
        """Return keys; None: messages have none."""
        if not self._mode:
            return None
        if self._mode == "random":
            return [str(self._rng.randrange(-(1 << 31), 1 << 31)) for _ in range(count)]
        first = self._next
        self._next += count
        return [str(number) for number in range(first, self._next)]
