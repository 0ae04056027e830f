"""Quire's side of an exchange of ledgers with the Java tester: the same payloads, the same lists."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from quire.ledger import LedgerClient, LedgerConfig, open_client
from quire.ledger.bookies.pool import WireProtocol
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.real import real_world
from tests.support.zookeeper import run

SIZES = (0, 1, 1000, 17, 64, 333)
MIXED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """A line of a list: the data of a ledger that its writer has."""

    ledger: int
    digest: str
    password: str
    entries: int
    size: int
    """Bytes of each payload, or MIXED."""
    closed: bool


def payload(ledger_id: int, entry_id: int, size: int) -> bytes:
    count = SIZES[entry_id % len(SIZES)] if size == MIXED else size
    return bytes((31 * ledger_id + 7 * entry_id + i) % 256 for i in range(count))


def read_list(path: Path) -> list[Exchanged]:
    return [Exchanged(**json.loads(line)) for line in path.read_text().splitlines() if line]


def write_list(path: Path, ledgers: list[Exchanged]) -> None:
    path.write_text("".join(json.dumps(asdict(ledger)) + "\n" for ledger in ledgers))


async def _write_one(
    client: LedgerClient, digest: str, quorum: tuple[int, int, int], count: int, closed: bool
) -> Exchanged:
    password = f"exchange-{digest}"
    writer = await client.create(
        ensemble_size=quorum[0],
        write_quorum=quorum[1],
        ack_quorum=quorum[2],
        digest_type=DIGEST_TYPES[digest],
        password=password.encode(),
    )
    entries = [payload(writer.ledger_id, each, MIXED) for each in range(count)]
    if closed and count:
        writer.append(entries)
        await writer.wait_confirmed(count - 1)
    elif not closed:
        for entry in entries:  # each tells the confirmation of the one before
            await writer.write(entry)
    if closed:
        await writer.close()
    return Exchanged(
        ledger=writer.ledger_id, digest=digest, password=password, entries=count, size=MIXED, closed=closed
    )


def write(
    uri: str, protocol: WireProtocol, *, quorum: tuple[int, int, int] = (3, 2, 2), count: int = 50
) -> list[Exchanged]:
    """Write a closed ledger per digest, an empty one, and one that its client leaves open."""
    written: list[Exchanged] = []

    async def main() -> None:
        async with open_client(real_world(), uri, LedgerConfig(protocol=protocol)) as client:
            for digest in DIGEST_TYPES:
                written.append(await _write_one(client, digest, quorum, count, True))
            written.append(await _write_one(client, "MAC", quorum, 0, True))
            written.append(await _write_one(client, "CRC32C", quorum, count, False))

    run(main)
    return written


async def verify_one(client: LedgerClient, ledger: Exchanged, *, recover: bool) -> None:
    """Check that every entry exists and is right, and that there is none behind the last."""
    reader = await client.open(
        ledger.ledger, password=ledger.password.encode(), recover=recover, digest_type=DIGEST_TYPES[ledger.digest]
    )
    last = ledger.entries - 1
    if ledger.closed or recover:
        assert reader.closed
        assert reader.last_entry_id == last
    else:
        # The last confirmation of an open ledger is told with the entry after it, which there is none.
        assert reader.last_entry_id in (last, last - 1)
    if ledger.entries:
        found = await reader.read_unconfirmed(0, last)
        assert [bytes(each) for each in found] == [
            payload(ledger.ledger, i, ledger.size) for i in range(ledger.entries)
        ]
    reader.close()


def verify(uri: str, protocol: WireProtocol, ledgers: list[Exchanged], *, recover: bool) -> None:
    """Check each ledger with `verify_one`."""

    async def main() -> None:
        async with open_client(real_world(), uri, LedgerConfig(protocol=protocol)) as client:
            for ledger in ledgers:
                await verify_one(client, ledger, recover=recover)

    run(main)
