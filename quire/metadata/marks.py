"""Paths and values of auto recovery in the metadata (pure).

    <root>/underreplication                                     empty
      LAYOUT                                                    type: "BASIC" LF version: 1 LF
      ledgers/hhhh/hhhh/hhhh/hhhh/urL<id as %010d>              replica: "<bookie>" LF (any number)  ctime: <ms> LF
      locks/urL<id as %010d>                                    ephemeral; bookieId: "<host of the worker>" LF
      disable                                                   empty; while it exists, auto recovery is suspended
      lostBookieRecoveryDelay                                   seconds, decimal
      auditorelection                                           bookieId: "<auditor>" LF
      auditorelection/V_<sequence>                              ephemeral; the same of one candidate
      checkallledgersctime, placementpolicycheckctime,
      replicascheckctime                                        protobuf binary, field 1: int64, milliseconds since 1970

The four levels are the 16 hex digits of the ledger id, so the last one names the ledger. The texts are protobuf's.

Source: BookKeeper's ZkLedgerUnderreplicationManager, ZkLedgerAuditorManager, DataFormats.proto;
tests/golden/bookkeeper/zk/underreplicated.json, disabled.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from quire.metadata.errors import MalformedMetadataError
from quire.wire.bookkeeper import varints

LAYOUT: Final = b'type: "BASIC"\nversion: 1\n'
LEVELS: Final = 4
"""Folders above the node of a ledger."""
VOTE_PREFIX: Final = "V_"

_FIELD: Final = re.compile(
    rb"\s*(?P<name>[A-Za-z_]\w*)\s*:\s*"
    rb"""(?:"(?P<double>(?:[^"\\\n]|\\(?:[abfnrtv\\'"?]|[0-7]{1,3}|x[0-9a-fA-F]{2}))*)\""""
    rb"""|'(?P<single>(?:[^'\\\n]|\\(?:[abfnrtv\\'"?]|[0-7]{1,3}|x[0-9a-fA-F]{2}))*)'"""
    rb"|(?P<number>-?\d+))\s*[,;]?\s*"
)
_HEX: Final = re.compile(r"[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Underreplicated:
    """A ledger that lacks copies."""

    ledger_id: int
    replicas: tuple[str, ...]
    """Bookies whose copies are missing or damaged; empty: the ledger violates the placement policy."""
    ctime_ms: int | None
    """Time of the last mark, in milliseconds since 1970; None if unknown."""


# --- paths


def folder_names(ledger_id: int) -> list[str]:
    """Return the four folders of a ledger's mark.

    >>> folder_names(5_000_000_000)
    ['0000', '0001', '2a05', 'f200']
    """
    digits = f"{ledger_id:016x}"
    return [digits[start : start + 4] for start in range(0, 16, 4)]


def node_name(ledger_id: int) -> str:
    """Return the name of a ledger's mark, and of its lock.

    >>> node_name(7)
    'urL0000000007'
    """
    return f"urL{ledger_id:010d}"


def parse_folders(names: Iterable[str]) -> int | None:
    """Return the ledger id that four folders stand for; None if they are not folders of marks.

    >>> parse_folders(["0000", "0001", "2a05", "f200"])
    5000000000
    """
    names = list(names)
    if len(names) != LEVELS or not all(_HEX.fullmatch(name) for name in names):
        return None
    ledger_id = int("".join(names), 16)
    return ledger_id if ledger_id < 1 << 63 else None


def parse_node_name(name: str) -> int | None:
    """Return the ledger id in the name of a mark or of a lock; None if it is another name."""
    digits = name.removeprefix("urL")
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def vote_number(name: str) -> int | None:
    """Return the sequence number of a candidate's node; None if it is another node.

    >>> vote_number("V_0000000012"), vote_number("x")
    (12, None)
    """
    digits = name.removeprefix(VOTE_PREFIX)
    if digits == name or re.fullmatch(r"-?\d+", digits, re.ASCII) is None:
        return None
    return int(digits)


# --- values


def encode_mark(replicas: Iterable[str], ctime_ms: int | None) -> bytes:
    lines = [_string("replica", replica) for replica in replicas]
    if ctime_ms is not None:
        lines.append(b"ctime: %d\n" % ctime_ms)
    return b"".join(lines)


def decode_mark(ledger_id: int, value: bytes) -> Underreplicated:
    """Decode a mark. MalformedMetadataError."""
    fields = _parse(value, {"replica": str, "ctime": int})
    ctimes = [number for number in fields["ctime"] if isinstance(number, int)]
    replicas = tuple([text for text in fields["replica"] if isinstance(text, str)])
    return Underreplicated(ledger_id, replicas, ctimes[-1] if ctimes else None)


def merge_mark(value: bytes, missing: Iterable[str], ctime_ms: int | None) -> bytes | None:
    """Return the mark with those of `missing` added that it does not name; None if it names them all.

    Raises: MalformedMetadataError.
    """
    old = decode_mark(0, value)
    replicas = tuple(dict.fromkeys((*old.replicas, *missing)))
    if len(replicas) == len(set(old.replicas)):
        return None
    return encode_mark(replicas, old.ctime_ms if ctime_ms is None else ctime_ms)


def encode_owner(bookie_id: str) -> bytes:
    """Return the value of a lock, of a candidate, or of the auditor."""
    return _string("bookieId", bookie_id)


def decode_owner(value: bytes) -> str | None:
    """Return the owner of a lock or a vote; None if it names none. MalformedMetadataError."""
    names = _parse(value, {"bookieId": str})["bookieId"]
    return str(names[-1]) if names else None


def check_layout(value: bytes) -> None:
    """Check that the marks have the one known layout; MalformedMetadataError if not."""
    fields = _parse(value, {"type": str, "version": int})
    if fields["type"][-1:] != ["BASIC"] or fields["version"][-1:] != [1]:
        raise MalformedMetadataError(f"unknown layout of the marks of under-replicated ledgers: {value!r}")


def encode_check_time(wall_ms: int) -> bytes:
    """Encode the time at which a check of all ledgers was done."""
    return b"\x08" + varints.encode(wall_ms)


def decode_check_time(value: bytes) -> int | None:
    """Decode a check's time in milliseconds since 1970; None if there is none. MalformedMetadataError."""
    if not value:
        return None
    number = value[1:]
    if value[0] != 8 or not 1 <= len(number) <= 10 or number[-1] & 128 or not all(byte & 128 for byte in number[:-1]):
        raise MalformedMetadataError(f"not the time of a check: {value!r}")
    return varints.decode_signed(number)


def encode_delay(seconds: int) -> bytes:
    return b"%d" % seconds


def decode_delay(value: bytes) -> int:
    """Decode the recovery delay: seconds, 0 or more. MalformedMetadataError."""
    try:
        seconds = int(value.decode("ascii"))
    except ValueError as error:
        raise MalformedMetadataError(f"not a recovery delay: {value!r}") from error
    if seconds < 0:
        raise MalformedMetadataError(f"a recovery delay cannot be {seconds} s")
    return seconds


def _string(name: str, text: str) -> bytes:
    """Return one line of protobuf's text form; ASCII, other bytes as three octal digits."""
    escaped = bytearray()
    for byte in text.encode():
        if byte in b'"\\':
            escaped += b"\\" + bytes([byte])
        elif 0x20 <= byte < 0x7F:
            escaped.append(byte)
        else:
            escaped += b"\\%03o" % byte
    return b'%s: "%s"\n' % (name.encode("ascii"), bytes(escaped))


def _parse(value: bytes, kinds: Mapping[str, type]) -> dict[str, list[str | int]]:
    """Return the values of each field, in order; MalformedMetadataError for anything but fields of `kinds`."""
    found: dict[str, list[str | int]] = {name: [] for name in kinds}
    position = 0
    while position < len(value):
        field = _FIELD.match(value, position)
        if field is None:
            if not value[position:].strip():
                break
            raise MalformedMetadataError(f"not protobuf text: {value[position : position + 80]!r}")
        position = field.end()
        name, number = field["name"].decode("ascii"), field["number"]
        if kinds.get(name) is not (str if number is None else int):
            raise MalformedMetadataError(f"an unknown field in {value[:200]!r}: {name}")
        if number is not None:
            found[name].append(int(number))
            continue
        text = field["double"] if field["double"] is not None else field["single"]
        try:
            raw = text.replace(b"\\?", b"?").decode("unicode_escape").encode("latin-1")
            found[name].append(raw.decode())
        except (UnicodeError, ValueError) as error:
            raise MalformedMetadataError(f"not UTF-8 in {value[:200]!r}: {name}") from error
    return found
