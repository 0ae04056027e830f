"""Three bookies of the original's were killed. Quire's bookies start on their folders, and the original's client finds
every ledger unchanged. How the data was made: ../golden/bookkeeper/README.md.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.interop import exchange
from tests.interop.java import run_tester
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster
from tests.support.zookeeper import own_root, run, shared_server

GOLDEN = Path(__file__).parents[1] / "golden/bookkeeper"
LEDGERS = 9


def load_tree(uri_root: str, snapshot: Path) -> None:
    """Make the persistent nodes of a recorded tree, below `uri_root` instead of /db."""
    nodes = json.loads(snapshot.read_text())

    async def main() -> None:
        store = await open_store(real_world(), ZooKeeperConfig(servers=(("127.0.0.1", shared_server().port),)))
        try:
            for path, node in sorted(nodes.items()):
                if not node["ephemeral"]:
                    value = base64.b64decode(node["data"])
                    await store.create(f"{uri_root}{path.removeprefix('/db')}", value, make_parents=True)
        finally:
            await store.aclose()

    run(main)


@pytest.fixture
def replayed(tmp_path: Path):
    root = own_root()
    load_tree(root, GOLDEN / "zk/running.json")
    cluster = BookieCluster(tmp_path, shared_server(), root=f"{root}/ledgers")
    for number in (1, 2, 3):
        shutil.copytree(GOLDEN / f"db/crashed/bk{number}", tmp_path / f"bk{number}")
        # The folders are relative, as they are in the cookies; the name is the old one, the port is not.
        folders = {"journalDirectories": f"bk{number}/journal", "ledgerDirectories": f"bk{number}/ledgers"}
        cluster.bookies.append(
            BookieProcess(tmp_path / f"bk{number}", cluster.uri, bookieId=f"127.0.0.1:328{number}", **folders)
        )
    try:
        cluster.start(*cluster.bookies)
        yield cluster
    finally:
        cluster.close()
    for bookie in cluster.bookies:
        bookie.check_log()


def test_the_original_verifies_what_our_bookies_replayed(replayed: BookieCluster, tmp_path: Path) -> None:
    listed = str(GOLDEN / "db/verify.jsonl")
    assert f"{LEDGERS} passed, 0 failed" in run_tester(replayed.uri, "verify", listed)
    # What was replayed was flushed and marked: a second start, after a kill, finds the same.
    for bookie in replayed.bookies:
        bookie.kill()
    replayed.start(*replayed.bookies)
    assert f"{LEDGERS} passed, 0 failed" in run_tester(replayed.uri, "verify", listed, "--v2")
    ledgers = exchange.read_list(GOLDEN / "db/verify.jsonl")
    assert len(ledgers) == LEDGERS
    exchange.verify(replayed.uri, "v2", ledgers, recover=True)
    assert f"{LEDGERS} passed, 0 failed" in run_tester(replayed.uri, "verify", listed, "--recover")
