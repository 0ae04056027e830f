"""Ledgers as bookies store them, and which entries of a plan are read from there. Pure: facts in, decisions out.

Why this is hard: a bookie answers whoever asks, and cannot say what a broker would say. It has entries that are not
confirmed, messages of transactions that were aborted, and nothing of a ledger that was deleted. An address in the
metadata may lead to a bookie of another cluster, whose ledgers have the same numbers and valid digests. So entries are
read from bookies only where nothing of this can happen, and everything else is left to the broker.

    readVia     closed ledgers    the open ledger    no bookie to be used, or reached
    auto        bookies           broker             broker, with a line in the log
    bookies     bookies           bookies            an error
    broker      broker            broker

Entries above the end of a plan are never asked for, and that end is at or before the last entry that the owner of the
topic reported as confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from quire.metadata.errors import MalformedMetadataError
from quire.metadata.ledger_metadata import NO_ENTRY, Fragment, LedgerMetadata, LedgerState
from quire.spark.options.parse import ReadVia
from quire.spark.planning.logs import LedgerRange
from quire.wire.bookkeeper.entry import DigestType

STANDALONE_BOOKIE: Final = "standalone:3181"
"""Id of the bookie in the process of a standalone server. It has no port."""

_NUMBER = re.compile(r"\b(ensembleSize|writeQuorumSize|ackQuorumSize|length|lastEntryId)=(\d+)")
_STATE = re.compile(r"\bstate=(\w+)")
_DIGEST = re.compile(r"\bdigestType=(\w+)")
_ENSEMBLES = re.compile(r"\bensembles=\{(.*?)\}")
_ENSEMBLE = re.compile(r"(\d+)=\[([^\]]*)\]")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger that a task may read from its bookies. Pickles."""

    ledger_id: int
    metadata: LedgerMetadata


def parse_metadata(text: str) -> LedgerMetadata:
    """Parse ledger metadata as brokers show them. Raises ValueError.

    The ledger's password is not shown. Only digests of the type HMAC need it.
    Source: the form of BookKeeper's LedgerMetadata.toSafeString.

    >>> shown = "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, state=OPEN, "
    >>> parse_metadata(shown + "digestType=CRC32C, password=OMITTED, ensembles={0=[one:3181]}}").fragments
    (Fragment(first_entry_id=0, bookies=('one:3181',)),)
    """
    numbers = {name: int(number) for name, number in _NUMBER.findall(text)}
    state, digest, ensembles = _STATE.search(text), _DIGEST.search(text), _ENSEMBLES.search(text)
    if state is None or digest is None or ensembles is None:
        raise ValueError(f"not ledger metadata: {text[:200]!r}")
    closed = state[1] == LedgerState.CLOSED.name
    try:
        return LedgerMetadata(
            ensemble_size=numbers["ensembleSize"],
            write_quorum=numbers["writeQuorumSize"],
            ack_quorum=numbers["ackQuorumSize"],
            fragments=tuple(
                Fragment(int(first), tuple(part.strip() for part in bookies.split(",")))
                for first, bookies in _ENSEMBLE.findall(ensembles[1])
            ),
            state=LedgerState[state[1]],
            last_entry_id=numbers.get("lastEntryId", NO_ENTRY) if closed else NO_ENTRY,
            length=numbers.get("length", 0) if closed else 0,
            digest_type=DigestType[digest[1]],
        )
    except (KeyError, MalformedMetadataError) as error:
        raise ValueError(f"ledger metadata with an unknown part ({error}): {text[:200]!r}") from None


def stored_ledgers(stats: Mapping[str, object]) -> dict[int, StoredLedger]:
    """Return the ledgers of `GET .../internalStats?metadata=true` that bookies have, with readable metadata, by id."""
    found = {}
    ledgers = stats.get("ledgers")
    for item in ledgers if isinstance(ledgers, list) else ():
        if not isinstance(item, Mapping):
            continue
        try:
            ledger_id = int(item["ledgerId"])
            found[ledger_id] = StoredLedger(ledger_id, parse_metadata(str(item.get("metadata") or "")))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own loopback address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("[::1]"), is_loopback("bookie-1")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def why_not(ledger: StoredLedger, *, local: bool) -> str | None:
    """Return why a ledger's entries cannot be read from its bookies; None if they can.

    `local`: the brokers are on this machine's loopback address, so bookies may be there too."""
    metadata = ledger.metadata
    if metadata.digest_type is DigestType.HMAC:
        return f"ledger {ledger.ledger_id} has digests of the type MAC, which need the ledger's password"
    for fragment in metadata.fragments:
        for bookie in fragment.bookies:
            if bookie == STANDALONE_BOOKIE:
                return "the bookie of a standalone server is in its process and has no port"
            address = _ADDRESS.fullmatch(bookie)
            if address is None:
                return f"the id of bookie {bookie!r} is not its address"
            if is_loopback(address[1]) and not local:
                return f"bookie {bookie} is on the loopback address of another machine"
    return None


@dataclass(frozen=True, slots=True)
class BookieLedgers:
    """Ledgers that a task reads from bookies, and why others are not."""

    ledgers: tuple[StoredLedger, ...]
    refused: tuple[str, ...]
    """Reasons, each once."""


def wanted_ledgers(ranges: Iterable[LedgerRange], tail: int, read_via: ReadVia) -> set[int]:
    """Return the ids of ledgers that are to be read from bookies, if they can. `tail`: id of the last ledger of the
    log, -1: none."""
    if read_via == "broker":
        return set()
    return {part.ledger_id for part in ranges if read_via == "bookies" or part.ledger_id != tail}


def choose(
    ranges: Iterable[LedgerRange],
    known: Mapping[int, StoredLedger],
    *,
    tail: int,
    read_via: ReadVia,
    local: bool,
) -> BookieLedgers:
    """Choose the ledgers to read from bookies.

    A ledger that is not in `known` (offloaded, or deleted since) is left to the broker without a reason, and so is one
    whose final end is before the end of its range: the broker reports what is missing."""
    ranges = list(ranges)
    last = {part.ledger_id: part.last for part in ranges}
    found: list[StoredLedger] = []
    refused: dict[str, None] = {}
    for ledger_id in sorted(wanted_ledgers(ranges, tail, read_via)):
        ledger = known.get(ledger_id)
        if ledger is None:
            continue
        closed = ledger.metadata.state is LedgerState.CLOSED
        if closed and last[ledger_id] > ledger.metadata.last_entry_id:
            continue
        if not closed and read_via == "auto":
            continue
        reason = why_not(ledger, local=local)
        if reason is None:
            found.append(ledger)
        else:
            refused[reason] = None
    return BookieLedgers(tuple(found), tuple(refused))
