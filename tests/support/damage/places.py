"""The files of a data directory by kind, and the kinds of damage to one: a bit, a sector, a cut, its loss."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

SECTOR: Final = 512


class Damage(Enum):
    FLIP = "flipped bit"
    SECTOR = "random sector"
    ZERO = "zeroed sector"
    CUT = "cut"
    MISSING = "missing"


class Stop(Enum):
    """Ways in which the server whose files are damaged has ended."""

    CLEAN = "clean stop"
    KILLED = "kill -9"
    UNFLUSHED = "kill -9, nothing flushed"


_ROCKSDB: Final = (
    (r"\d+\.log", "log"),
    (r"\d+\.sst", "sst"),
    (r"MANIFEST-\d+", "MANIFEST"),
    (r"OPTIONS-\d+", "OPTIONS"),
    (r"LOG(\.old\.\d+)?", "LOG"),
    (r"(CURRENT|IDENTITY|LOCK|rocksdict-config\.json)", r"\1"),
)
_PATTERNS: Final = (
    *((rf"metadata/{pattern}", rf"metadata {kind}") for pattern, kind in _ROCKSDB),
    *((rf".*current/(locations|ledgers)/{pattern}", None) for pattern, _ in _ROCKSDB),
    (r".*current/[0-9a-f]+\.txn", "journal"),
    (r".*journal/current/VERSION", "journal VERSION"),
    (r".*ledgers/current/VERSION", "ledgers VERSION"),
    (r".*current/[0-9a-f]+\.log", "entry log"),
    (r".*/quire\.lock", "quire.lock"),
)
HARMLESS: Final = ("LOCK", "quire.lock", "DIRTY", " LOG", " OPTIONS", " IDENTITY", " rocksdict-config.json")
"""Ends of kinds whose damage loses nothing: a start that is refused for it is a false refusal."""


TURNS: Final = {"journal": 2, "log": 3, "MANIFEST": 2}
"""Number of places that are tried, by the last word of a kind."""


def kind_of(path: str) -> str:
    """Return the kind of a file, from its path below the data directory; a name without a pattern is its own kind."""
    for pattern, kind in _PATTERNS:
        if kind is not None and (match := re.fullmatch(pattern, path)):
            return match.expand(kind)
    if match := re.fullmatch(r".*current/(locations|ledgers)/([^/]+)", path):
        for pattern, kind in _ROCKSDB:
            if inner := re.fullmatch(pattern, match[2]):
                return f"{match[1]} {inner.expand(kind)}"
        return f"{match[1]} {match[2]}"
    return path.rpartition("/")[2] if not path.startswith("metadata/") else f"metadata {path.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True)
class Place:
    """One file: `index` counts those of its kind, the oldest first. `extent`: bytes up to the last that is not zero."""

    kind: str
    index: int
    path: str
    extent: int


def places(root: Path) -> list[Place]:
    """Return all files below `root`."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            relative = str(path.relative_to(root))
            found.setdefault(kind_of(relative), []).append((relative, len(path.read_bytes().rstrip(b"\0"))))
    return [
        Place(kind, index, path, extent)
        for kind, files in sorted(found.items())
        for index, (path, extent) in enumerate(files)
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """`shape` names the server; `turn` counts the places in the same file."""

    shape: str
    stop: Stop
    place: Place
    damage: Damage
    turn: int = 0

    @property
    def name(self) -> str:
        """Return the name of the case, which is also its seed."""
        return f"{self.shape}/{self.stop.value}/{self.place.kind}#{self.place.index}/{self.damage.value}/{self.turn}"


def cases_of(shape: str, stop: Stop, root: Path) -> Iterator[Case]:
    """Yield all cases for the files below `root`: one place of each damage, more where the place matters.

    Of harmless files only the newest one of each kind is damaged.
    """
    found = places(root)
    newest = {place.kind: place.index for place in found}
    for place in found:
        harmless = place.kind.endswith(HARMLESS)
        if harmless and place.index < newest[place.kind]:
            continue
        for damage in Damage:
            if damage is Damage.MISSING:
                yield Case(shape, stop, place, damage)
            elif place.extent and not (harmless and damage in (Damage.SECTOR, Damage.ZERO)):
                for turn in range(_turns(place, damage)):
                    yield Case(shape, stop, place, damage, turn)


def _turns(place: Place, damage: Damage) -> int:
    """Return the number of places at which this damage is tried: more where the place matters."""
    if place.kind == "lastMark":
        return 6 if damage is Damage.FLIP else 1
    return TURNS.get(place.kind.rpartition(" ")[2], 1)


def inflict(case: Case, root: Path) -> str:
    """Damage the file below `root`; return a description of the damage."""
    rng = random.Random(case.name)
    path = root / case.place.path
    if case.damage is Damage.MISSING:
        path.unlink()
        return "removed"
    data = bytearray(path.read_bytes())
    extent = case.place.extent
    at = rng.randrange(extent)
    if case.damage is Damage.FLIP:
        bit = rng.randrange(8)
        data[at] ^= 1 << bit
        done = f"bit {bit} of byte {at}"
    elif case.damage is Damage.CUT:
        del data[at:]
        done = f"cut to {at} of {extent} bytes"
    else:
        start = at - at % SECTOR
        size = min(SECTOR, len(data) - start)
        data[start : start + size] = rng.randbytes(size) if case.damage is Damage.SECTOR else bytes(size)
        done = f"{size} bytes at {start}"
    path.write_bytes(data)
    return done
