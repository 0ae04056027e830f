"""Pacing: the moments at which a load sends, and a timer that keeps them.

Python's epoll waits for whole milliseconds, rounded up, so a task that sleeps 0.3 ms wakes up 0.7 ms late; a load of
batches of 1 ms would measure itself. A timerfd of Linux has nanoseconds. Elsewhere the timer is trio's.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time

import trio

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_TIMES = struct.Struct("@qqqq")


class Schedule:
    """Moments of messages that are `interval_s` apart, from `start` on. Times are seconds of time.monotonic."""

    def __init__(self, start: float, interval_s: float, count_max: int) -> None:
        """`count_max`: messages in all; 0: no end."""
        self._start = start
        self._interval_s = interval_s
        self._count_max = count_max
        self.taken = 0

    def due(self, count: int, window_s: float) -> float:
        """Return when the next messages are to be sent: after `window_s`, or when `count` of them are due."""
        return self.next + min(window_s, (count - 1) * self._interval_s)

    @property
    def done(self) -> bool:
        """Return whether all messages were taken."""
        return 0 < self._count_max <= self.taken

    @property
    def next(self) -> float:
        """Return the moment of the next message."""
        return self._start + self.taken * self._interval_s

    def skip(self, count: int) -> None:
        """Take messages, whether they are due or not."""
        self.taken += count

    def take(self, now: float, count_max: int) -> list[float]:
        """Return the moments of the messages that are due, at most `count_max`."""
        if self._count_max:
            count_max = min(count_max, self._count_max - self.taken)
        if self._interval_s > 0:
            count_max = min(count_max, int((now - self.next) / self._interval_s) + 1 if now >= self.next else 0)
            first = self.taken
            self.taken += max(count_max, 0)
            return [self._start + number * self._interval_s for number in range(first, self.taken)]
        self.taken += count_max
        return [now] * count_max


class PaceTimer:
    """Waits until moments of time.monotonic. Close it."""

    def __init__(self) -> None:
        self._fd = _timerfd() if sys.platform == "linux" else -1

    async def until(self, moment: float) -> None:
        """Return at `moment`, or at once if it has passed."""
        if moment - time.monotonic() <= 0:
            await trio.lowlevel.checkpoint()
        elif self._fd < 0:
            await trio.sleep(moment - time.monotonic())
        else:
            _set(self._fd, moment)
            await trio.lowlevel.wait_readable(self._fd)
            os.read(self._fd, 8)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> PaceTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _timerfd() -> int:
    """Return a new timer; -1: the system has none."""
    try:
        return int(_libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))
    except AttributeError:
        return -1


def _set(fd: int, moment: float) -> None:
    nanoseconds = max(int(moment * 1e9), 1)
    value = _TIMES.pack(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
    if _libc.timerfd_settime(fd, _ABSOLUTE, value, None) != 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")


_libc = ctypes.CDLL(None, use_errno=True)
