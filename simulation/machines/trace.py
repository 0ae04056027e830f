"""Trace: the history of a run, and its digest. The same seed must give the same digest, on any machine with this lock
file."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import trio

Field: TypeAlias = str | int | float | bool | bytes | None
"""Values with a stable text: their `repr` contains no address and no order of hashes."""


def now() -> float:
    """Return the virtual seconds since the run began; 0.0 outside of one, so that disks and maps can be tested without
    a loop."""
    return trio.current_time() if trio.lowlevel.in_trio_run() else 0.0


class Trace:
    """Events, in the order in which they happened: one line each, hashed as they come.

    `keep`: also keep the lines, for a story or to find where two histories part.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._keep = keep
        self.lines: list[str] = []
        self.count = 0
        """Events so far."""

    def event(self, host: str, name: str, /, **fields: Field) -> None:
        """Record that `name` (past tense, such as `LedgerFenced`) happened on `host` ("" for the world's own
        events)."""
        text = "".join(f" {key}={value.hex() if isinstance(value, bytes) else value}" for key, value in fields.items())
        line = f"{now():.9f} {host} {name}{text}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.count += 1
        if self._keep:
            self.lines.append(line)

    def digest(self) -> str:
        """Return the digest of everything so far, 64 hex digits."""
        return self._hash.hexdigest()
