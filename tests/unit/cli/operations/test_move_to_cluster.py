"""move-to-cluster: nodes of a standalone server become those of a cluster; tests/cluster/test_move_to_cluster.py tests
the whole on processes."""

from __future__ import annotations

import errno
import io
import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from quire.cli.operations import move_to_cluster as module
from quire.cli.operations.context import OperationContext
from quire.cli.operations.move_to_cluster import COUNTER, moved, renamed
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.output import Output
from quire.metadata import ledger_codec
from quire.metadata.bookies import Cookie, decode_cookie, encode_cookie
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.local.tree import Tree, Znode
from quire.metadata.store import Kind
from quire.servers.cluster_config import SHELL
from quire.world.real import real_world
from quire.world.real_disk import RealDisk

OLD, NEW = "standalone:3181", "bk1:3181"
LEDGER = HIERARCHICAL.path("/ledgers", 1005)
METADATA = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    fragments=(Fragment(0, (OLD,)),),
    state=LedgerState.CLOSED,
    last_entry_id=9,
    length=90,
    custom_metadata=(("component", b"managed-ledger"),),
)


def standalone_tree() -> Tree:
    """Return what a standalone server has stored."""
    values = {
        "/ledgers/INSTANCEID": b"i",
        "/ledgers/LAYOUT": HIERARCHICAL.value,
        "/ledgers/idgen": b"2000",
        f"/ledgers/cookies/{OLD}": b"cookie",
        LEDGER: ledger_codec.encode(METADATA),
        "/admin/clusters/standalone": b"{}",
        "/admin/policies/public/default": b"policies",
        "/managed-ledgers/public/default/persistent/orders": b"log",
        "/managed-ledgers/public/default/persistent/orders/audit": b"cursor",
        COUNTER: b"",
    }
    nodes: dict[str, Znode] = {}
    for path, value in values.items():
        parts = path.split("/")[1:]
        for depth in range(1, len(parts)):
            nodes.setdefault("/" + "/".join(parts[:depth]), Znode(b"", 0, 0, 0))
        nodes[path] = Znode(value, 3, 0, 4 if path == COUNTER else 0)
    names: dict[str, dict[str, None]] = {}
    for path in nodes:
        above, _, name = path.rpartition("/")
        names.setdefault(above or "/", {})[name] = None
    return Tree({"/": Znode(b"", 0, 0, 0), **nodes}, names)


def test_nodes_are_the_same_but_for_what_a_cluster_has_otherwise() -> None:
    tree = standalone_tree()
    found = moved(tree, OLD, NEW)
    order = list(found)
    for path in order:
        above = path.rpartition("/")[0]
        assert not above or order.index(above) < order.index(path), "parents come first"
    assert ledger_codec.decode(found[LEDGER]).fragments == (Fragment(0, (NEW,)),)
    assert found["/ledgers/idgen"] == b""
    assert "/ledgers/idgen-long/HOB-0000000001" in found
    assert f"/ledgers/cookies/{OLD}" not in found
    assert "/admin/clusters/standalone" not in found, "initialize-cluster-metadata makes it, with addresses"
    kept = (
        "/managed-ledgers/public/default/persistent/orders/audit",
        "/admin/policies/public/default",
        "/ledgers/INSTANCEID",
    )
    for path in kept:
        assert found[path] == tree.nodes[path].value


def test_only_the_bookie_of_a_ledger_is_renamed() -> None:
    after = ledger_codec.decode(renamed(ledger_codec.encode(METADATA), OLD, NEW))
    assert after == replace(METADATA, fragments=(Fragment(0, (NEW,)),))


class Move:
    """A data directory, and the configuration of its bookie."""

    def __init__(self, folder: Path, tree: MemoryTree) -> None:
        self.journal, self.ledgers = str(folder / "bookie/journal"), str(folder / "bookie/ledgers")
        self.store = MemoryStore(tree)
        self.tree: Tree | None = None
        self.out = io.StringIO()
        cookie = Cookie(
            bookie_id=OLD,
            journal_directories=("bookie/journal",),
            ledger_directories=("bookie/ledgers",),
            instance_id="i",
        )
        for each in (self.journal, self.ledgers):
            (Path(each) / "current").mkdir(parents=True, exist_ok=True)
            (Path(each) / "current/VERSION").write_bytes(encode_cookie(cookie))

    async def run(self, *, dry_run: bool = False, **changed: object) -> int:
        keys = {
            "metadataServiceUri": "zk+hierarchical://zk1:2181/pulsar/ledgers",
            "advertisedAddress": "bk1",
            "journalDirectories": (self.journal,),
            "ledgerDirectories": (self.ledgers,),
        } | changed

        async def no_store(*_: object) -> MemoryStore:
            return self.store

        shell = Shell(
            world=real_world(1),
            config=SHELL.build(keys),
            output=Output(self.out, self.out, as_json=True),
            ask=lambda question: False,
            open_store=no_store,
        )
        operation = OperationContext(shell=shell, store=self.store, dry_run=dry_run, timeout_s=10)
        tree = standalone_tree() if self.tree is None else self.tree
        return await module._move(operation, RealDisk(), tree, self.journal, self.ledgers)


async def test_a_move_creates_all_nodes_and_the_cookie_and_leaves_no_marker(tmp_path: Path) -> None:
    move = Move(tmp_path, MemoryTree())
    assert await move.run(dry_run=True) == 0
    assert await move.store.get("/pulsar") is None
    assert await move.run() == 0
    assert json.loads(move.out.getvalue().splitlines()[-1])["ledgers"] == 1
    assert await move.store.get("/pulsar/quire-move") is None
    stored = await move.store.get(f"/pulsar/ledgers/cookies/{NEW}")
    assert stored is not None
    cookie = decode_cookie(stored.value)
    assert (cookie.bookie_id, cookie.journal_directories, cookie.instance_id) == (NEW, (move.journal,), "i")
    for folder in (move.journal, move.ledgers):
        assert (Path(folder) / "current/VERSION").read_bytes() == stored.value
    assert await SequenceLedgerIds(move.store, "/pulsar/ledgers").next_id() == 1 << 32, "above all old ids"
    name = await move.store.create(f"/pulsar{COUNTER}/-", kind=Kind.EPHEMERAL, sequential=True)
    assert int(name.rpartition("-")[2]) >= 4, "no generated producer name is given twice"


async def test_a_move_that_was_cut_is_repeated_and_another_store_is_refused(tmp_path: Path, monkeypatch) -> None:
    move = Move(tmp_path, MemoryTree())
    monkeypatch.setattr(module, "NODES_AT_ONCE", 3)
    multi, count = move.store.multi, 0

    async def fails_once(ops):
        nonlocal count
        count += 1
        if count == 3:
            raise MetadataUnavailableError("cut")
        return await multi(ops)

    monkeypatch.setattr(move.store, "multi", fails_once)
    with pytest.raises(MetadataUnavailableError):
        await move.run()
    version = (Path(move.ledgers) / "current/VERSION").read_bytes()
    assert decode_cookie(version).bookie_id == OLD, "the directory is still the standalone server's"
    assert await move.run() == 0
    assert await move.store.get("/pulsar/managed-ledgers/public/default/persistent/orders/audit") is not None
    with pytest.raises(ShellError, match="the store has /pulsar/ledgers already"):
        await move.run()


def cut_at_write(store: MemoryStore, number: int) -> Any:
    """Return a `multi` of which call `number` fails."""
    multi, numbers = store.multi, count(1)

    async def fails(ops: Any) -> Any:
        if next(numbers) == number:
            raise MetadataUnavailableError("cut")
        return await multi(ops)

    return fails


async def test_a_standalone_server_that_ran_between_two_runs_of_a_move_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is cut at each of its writes."""
    monkeypatch.setattr(module, "NODES_AT_ONCE", 2)
    log, folder = "/managed-ledgers/public/default/persistent/orders", "/pulsar"
    cut_at = 0
    while True:
        cut_at += 1
        move = Move(tmp_path / str(cut_at), MemoryTree())
        monkeypatch.setattr(move.store, "multi", cut_at_write(move.store, cut_at))
        try:
            await move.run()
            break
        except MetadataUnavailableError:
            pass
        if decode_cookie((Path(move.ledgers) / "current/VERSION").read_bytes()).bookie_id == OLD:
            # It starts again, and publishes, makes a topic and deletes a subscription.
            move.tree = standalone_tree()
            move.tree.nodes[log] = move.tree.nodes[log]._replace(value=b"more")
            del move.tree.nodes[f"{log}/audit"]
            move.tree.nodes[f"{log}2"] = Znode(b"new", 0, 0, 0)
        assert await move.run() == 0, cut_at
        if move.tree is not None:
            assert (found := await move.store.get(folder + log)) is not None
            assert found.value == b"more", cut_at
            assert await move.store.get(f"{folder}{log}/audit") is None, cut_at
            assert await move.store.get(f"{folder}{log}2") is not None, cut_at
        assert await move.store.get("/pulsar/quire-move") is None
        assert await move.store.get(f"/pulsar/ledgers/cookies/{NEW}") is not None
    assert cut_at > 5


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("full", ["journal", "ledgers"])
async def test_a_full_disk_leaves_the_data_directory_to_the_standalone_server_and_a_repeat_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    move = Move(tmp_path, MemoryTree())
    write = RealDisk.write_atomic

    def refused(disk: RealDisk, path: str, data: bytes) -> None:
        if path.startswith(f"{tmp_path}/bookie/{full}/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(disk, path, data)

    before = files_in(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "write_atomic", refused)
        with pytest.raises(ShellError, match=r"No space left on device; the data directory is as it was\. Make room"):
            await move.run()
    for folder in (move.journal, move.ledgers):
        assert decode_cookie((Path(folder) / "current/VERSION").read_bytes()).bookie_id == OLD
    assert files_in(tmp_path) == before, "no file is left"
    assert await move.run() == 0
    for folder in (move.journal, move.ledgers):
        assert decode_cookie((Path(folder) / "current/VERSION").read_bytes()).bookie_id == NEW


async def test_a_configuration_of_another_bookie_is_refused(tmp_path: Path) -> None:
    move = Move(tmp_path, MemoryTree())
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"journalDirectories": ("/elsewhere",)}, "journalDirectories=/elsewhere: set it to"),
        ({"advertisedAddress": ""}, "names no bookie"),
        ({"metadataServiceUri": "zk+hierarchical://zk1:2181/bk"}, "must end with /ledgers"),
        ({"indexDirectories": ("/index",)}, "leave it out"),
    )
    for changed, text in refused:
        with pytest.raises(ShellError, match=text):
            await move.run(dry_run=False, **changed)
