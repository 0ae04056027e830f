"""A tree of files as messages, and messages as a tree again. Pure, but for `scan` and `write`.

One message a line, with its line end: the payloads of a file, end to end, are the file. So line ends of every kind, a
missing last one, and bytes that are no text in any encoding come back as they were. An empty file is one empty message
with line number 0; a line longer than PIECE_MAX travels in pieces, each counted as a line.

Paths are bytes, as the file system has them. A key is text: the path with everything that is not UTF-8, and `%`,
percent-encoded, so that it can be turned back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

PIECE_MAX = 1 << 20
"""Longest payload in bytes."""


class Line(NamedTuple):
    """One message. `number` counts from 1 within its file; 0 is the one message of an empty file."""

    key: str
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    """The text files of a tree by key, in order, and the skipped paths."""

    files: dict[str, bytes]
    binary: int = 0
    links: int = 0
    other: int = 0
    """Skipped: neither file nor link, or not readable, or deleted since it was listed."""


def key_of(path: bytes) -> str:
    """Return the message key for a path: the path itself where it is UTF-8 without `%`.

    >>> key_of(b"docs/100%.md"), key_of(b"caf\\xe9")
    ('docs/100%25.md', 'caf%E9')
    """
    text = path.replace(b"%", b"%25").decode("utf-8", "surrogateescape")
    return "".join(f"%{ord(char) - 0xDC00:02X}" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in text)


def path_of(key: str) -> bytes:
    """Return the path for a key."""
    return unquote_to_bytes(key)


def is_binary(content: bytes) -> bool:
    """Return whether content is binary: text in any byte encoding has no NUL."""
    return b"\0" in content


def lines_of(key: str, content: bytes, piece_max: int = PIECE_MAX) -> Iterator[Line]:
    """Yield the messages of one file, in order."""
    if not content:
        yield Line(key, 0, b"")
        return
    number = start = 0
    while start < len(content):
        end = content.find(b"\n", start, start + piece_max) + 1
        if end == 0:
            end = min(start + piece_max, len(content))
        number += 1
        yield Line(key, number, content[start:end])
        start = end


def count_lines(content: bytes) -> int:
    """Return how many messages `lines_of` makes of it."""
    return sum(1 for _ in lines_of("", content)) if content else 1


def walk(root: bytes) -> list[bytes]:
    """Yield every path under `root`, relative to it, sorted; links are listed and not followed."""
    found: list[bytes] = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in [*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]:
            found.append(os.path.relpath(os.path.join(folder, name), root))
    return sorted(found)


def scan(root: bytes, paths: Iterable[bytes]) -> Tree:
    """Read the files at `paths` under `root`."""
    files: dict[str, bytes] = {}
    binary = links = other = 0
    for path in paths:
        full = os.path.join(root, path)
        try:
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                continue
            if not stat.S_ISREG(mode):
                other += 1
                continue
            with open(full, "rb") as file:
                content = file.read()
        except OSError:
            other += 1
            continue
        if is_binary(content):
            binary += 1
        else:
            files[key_of(path)] = content
    return Tree(files, binary, links, other)


@dataclass(slots=True)
class Rebuilder:
    """Rebuilder of the tree from deliveries and acknowledgements, which detects missing and misordered messages.

    A delivery is new if its (key, number) was not delivered before; the new deliveries of a key must come in order,
    without a gap. Used under a lock."""

    expected: int
    """Messages in all, repetitions not counted."""
    first_number: dict[str, int]
    """By key: 0 for an empty file, else 1. A key that is not in it was never published."""
    delivered: dict[str, int] = field(default_factory=dict)
    """By key: the highest number delivered."""
    content: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By key and number: payloads that were acknowledged."""
    acknowledged: int = 0
    repeated: int = 0
    out_of_order: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Keys that were never published."""

    @classmethod
    def of(cls, tree: Tree) -> Rebuilder:
        return cls(
            expected=sum(count_lines(content) for content in tree.files.values()),
            first_number={key: 1 if content else 0 for key, content in tree.files.items()},
        )

    @property
    def complete(self) -> bool:
        return self.acknowledged >= self.expected

    def deliver(self, key: str, number: int) -> bool:
        """Note a delivery; True if it is the first of this message."""
        first = self.first_number.get(key)
        if first is None:
            self.strange.append(key)
            return False
        last = self.delivered.get(key, first - 1)
        if number <= last:
            self.repeated += 1
            return False
        if number != last + 1:
            self.out_of_order.append(f"{key}: line {number} came after line {last}")
        self.delivered[key] = number
        return True

    def acknowledge(self, key: str, number: int, payload: bytes) -> None:
        """Note that a consumer acknowledged a message it was delivered."""
        lines = self.content.setdefault(key, {})
        if number not in lines:
            lines[number] = payload
            self.acknowledged += 1

    def file(self, key: str) -> bytes:
        """Return the acknowledged lines of a file, in order."""
        lines = self.content.get(key, {})
        return b"".join(lines[number] for number in sorted(lines))


def write(root: bytes, rebuilder: Rebuilder) -> None:
    """Write the rebuilt files under `root`."""
    for key in rebuilder.content:
        full = os.path.join(root, path_of(key))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(rebuilder.file(key))


def differences(original: Tree, root: bytes, found: Sequence[bytes]) -> list[str]:
    """Return the differences between `original` and the files `found` under `root`, one line each."""
    told: list[str] = []
    rebuilt = {key_of(path): path for path in found}
    for key, content in original.files.items():
        path = rebuilt.pop(key, None)
        if path is None:
            told.append(f"{key}: missing")
            continue
        with open(os.path.join(root, path), "rb") as file:
            other = file.read()
        if other != content:
            at = next(
                (i for i, (a, b) in enumerate(zip(content, other, strict=False)) if a != b),
                min(len(content), len(other)),
            )
            told.append(f"{key}: differs from byte {at} on ({len(content)} bytes published, {len(other)} came back)")
    told.extend(f"{key}: was never published" for key in rebuilt)
    return told
