"""Trees that Quire writes, in each layout of ledgers and version of their metadata, read by the original's shell."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.metadata import clusters
from quire.metadata.layouts import LAYOUTS
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata, LedgerState, SequenceLedgerIds
from quire.metadata.store import MetadataStore
from quire.world.real import real_world
from tests.interop.java import shell
from tests.support.zookeeper import ask, own_root, shared_server

VERSIONS = (1, 2, 3)


class ChosenId:
    """Ledger ids that the creator chooses."""

    async def next_id(self) -> int:
        await trio.lowlevel.checkpoint()
        return 1 << 40


async def make(store: MetadataStore, layout_name: str) -> list[int]:
    """Make a cluster with an open and a closed ledger of each version of metadata, and one with a long id if the layout
    permits it.
    """
    world, layout = real_world(), LAYOUTS[layout_name]
    await clusters.init_new_cluster(store, "/ledgers", rng=world.rng, layout=layout)
    sequence = SequenceLedgerIds(store, "/ledgers", layout=layout)
    manager = LedgerManager(store, ids=sequence, rng=world.rng, root="/ledgers", layout=layout)
    found = []
    for version in VERSIONS:
        for state in (LedgerState.OPEN, LedgerState.CLOSED):
            closed = state is LedgerState.CLOSED
            metadata = LedgerMetadata(
                format_version=version,
                ensemble_size=3,
                write_quorum=2,
                ack_quorum=2,
                state=state,
                last_entry_id=41 if closed else -1,
                length=4200 if closed else 0,
                fragments=(
                    Fragment(first_entry_id=0, bookies=("b:1", "b:2", "b:3")),
                    Fragment(first_entry_id=20, bookies=("b:1", "b:4", "b:3")),
                ),
            )
            found.append((await manager.create(metadata))[0])
    if layout_name != "flat":
        manager = LedgerManager(store, ids=ChosenId(), rng=world.rng, root="/ledgers", layout=layout)
        found.append((await manager.create(metadata))[0])
    return found


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_original_reads_what_we_wrote(layout: str, tmp_path: Path) -> None:
    chroot = own_root()
    made = ask(shared_server().config(chroot), partial(make, layout_name=layout))
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"metadataServiceUri=zk+{layout}://127.0.0.1:{shared_server().port}{chroot}/ledgers\n")
    told = shell(conf, "listledgers", "-m")
    described = dict(re.findall(r"^ledgerID: (\d+)\nLedgerMetadata\{(.*)\}", told, re.MULTILINE))
    assert sorted(map(int, described)) == sorted(made)
    for number, version in enumerate(VERSIONS):
        opened_one, closed_one = described[str(made[2 * number])], described[str(made[2 * number + 1])]
        assert f"formatVersion={version}, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=2, state=OPEN" in opened_one
        assert "state=CLOSED, length=4200, lastEntryId=41" in closed_one
        for each in (opened_one, closed_one):
            assert "{0=[b:1, b:2, b:3], 20=[b:1, b:4, b:3]}" in each
