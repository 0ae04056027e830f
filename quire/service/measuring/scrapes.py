"""Scrapes of one server: the text is made in short steps, once for all that ask at about the same time, and bounded.

A scrape that arrives within SHARED_S of the begin of another gets the same text. The text is made by the scraper that
needs its next part first, so that a slow one holds up no other; it is freed when the last of them has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from quire.service.metrics import LINES_TOGETHER

SHARED_S: Final = 1.0
"""Seconds from the begin of a text during which other scrapes get it too."""
TEXTS_MAX: Final = 3
"""Texts that are read at the same time; another scrape is refused."""
PART_BYTES: Final = 64 << 10
"""Bytes from which a part of the text is sent."""
TEXT_BYTES_MAX: Final = 256 << 20


class ScrapeRefusedError(Exception):
    """Too many scrapes are being answered to slow clients, or the text is too large. Retry later, or expose less."""


class ScrapeText:
    """One text, made as far as a scraper needed it."""

    def __init__(self, lines: Iterator[str], began: float) -> None:
        self.began = began
        self.readers = 0
        self._lines = lines
        self._parts: list[bytes] = []
        self._unsent: list[str] = []
        self._unsent_size = 0
        self._size = 0
        self._done = False
        self._making = trio.Lock()

    async def part(self, index: int) -> bytes:
        """Return a part of the text, b"" behind the last one. Raises ScrapeRefusedError if the text is too large.

        A call that is cancelled leaves the text complete for the others."""
        while len(self._parts) <= index and not self._done:
            async with self._making:
                while len(self._parts) <= index and not self._done:
                    self._step()
                    await trio.lowlevel.checkpoint()
        return self._parts[index] if index < len(self._parts) else b""

    def _step(self) -> None:
        """Make some lines, or let the table make some of its values."""
        lines = 0
        for text in self._lines:
            self._unsent.append(text)
            self._unsent_size += len(text)
            lines += text.count("\n")
            if self._unsent_size >= PART_BYTES:
                self._cut()
                return
            if not text or lines >= LINES_TOGETHER:
                return
        self._cut()
        self._done = True

    def _cut(self) -> None:
        part = "".join(self._unsent).encode()
        self._unsent, self._unsent_size = [], 0
        self._size += len(part)
        if self._size > TEXT_BYTES_MAX:
            self._done = True
            raise ScrapeRefusedError(
                f"the metrics are larger than {TEXT_BYTES_MAX >> 20} MB: lower quireMaxTopicsInMetrics or "
                "quireMaxSubscriptionsInMetrics"
            )
        if part:
            self._parts.append(part)


class Scrapes:
    """The texts of one server that are being read. `lines`: begins a new one."""

    def __init__(self, lines: Callable[[], Iterator[str]]) -> None:
        self._lines = lines
        self._texts: list[ScrapeText] = []
        self.made = 0
        """Texts begun."""

    @contextmanager
    def text(self) -> Iterator[ScrapeText]:
        """Return a text for one scrape. Raises ScrapeRefusedError."""
        now = trio.current_time()
        text = next((each for each in self._texts if now - each.began <= SHARED_S), None)
        if text is None:
            if len(self._texts) >= TEXTS_MAX:
                raise ScrapeRefusedError(f"{TEXTS_MAX} scrapes are being answered already: retry later")
            self.made += 1
            text = ScrapeText(self._lines(), now)
            self._texts.append(text)
        text.readers += 1
        try:
            yield text
        finally:
            text.readers -= 1
            if not text.readers:
                self._texts.remove(text)
