"""Loads the recorded data of a Pulsar into a running cluster."""

from __future__ import annotations

from quire.ledger import LedgerClient
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.wire.bookkeeper.entry import DigestType
from tests.golden.pulsar_files import ROOT, entries, ledgers, nodes


async def load(moment: str, store: ZooKeeperStore, client: LedgerClient) -> None:
    """Load the nodes of managed ledgers unchanged, and ledgers with their ids, digests, custom metadata and entries.

    Open ledgers remain open.

    """
    for path, value in sorted(nodes(moment).items()):
        if path.startswith((f"{ROOT}/managed-ledgers", f"{ROOT}/admin")):
            await store.create(path.removeprefix(ROOT), value)
    for ledger_id, told in sorted(ledgers(moment).items()):
        writer = await client.create(
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=2,
            digest_type=DigestType[told["digest"]],
            custom_metadata=[(key, value.encode()) for key, value in told["customMetadata"].items()],
            ledger_id=ledger_id,
        )
        payloads = entries(moment).get(ledger_id, [])
        if payloads:
            writer.append(payloads)
            await writer.wait_confirmed(len(payloads) - 1)
        if told["state"] == "CLOSED":
            await writer.close()
