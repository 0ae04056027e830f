"""Values that Apache BookKeeper wrote into ZooKeeper and VERSION files are decoded with the same meaning and written
alike.

How the data was made: tests/golden/bookkeeper/zk/README.md and tests/golden/bookkeeper/cookies/README.md.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from quire.metadata import bookies, ledger_codec
from quire.metadata.cookies import decode_cookie, encode_cookie
from quire.metadata.errors import UnsupportedLayoutError
from quire.metadata.ledgers import (
    BlockLedgerIds,
    LedgerManager,
    LedgerState,
    SequenceLedgerIds,
    initialize_layout,
    ledger_path,
)
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Create, Kind
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from tests.golden.metadata_tree import GOLDEN, tree_of

pytestmark = pytest.mark.real_clock

MEANING: dict[str, list[dict[str, Any]]] = json.loads((GOLDEN / "zk/ledgers.json").read_text())
HIERARCHICAL = [
    "running",
    "autorecovery",
    "underreplicated",
    "disabled",
    "readonly",
    "versions",
    "pulsar-running",
    "pulsar-stopped",
]
ROOTS = {"flat": "/flat/ledgers", "long": "/longh/ledgers", "versions": "/direct2/ledgers"}


def root_of(name: str) -> str:
    return ROOTS.get(name, "/pulsar/ledgers" if name.startswith("pulsar") else "/db/ledgers")


def ledger_values() -> list[tuple[str, bytes]]:
    """Return every ledger's value in every tree, with its path."""
    trees = [path.stem for path in sorted((GOLDEN / "zk").glob("*.json")) if path.stem != "ledgers"]
    return [
        (f"{name}:{path}", value)
        for name in trees
        for path, (value, _) in tree_of(name).items()
        if path.rpartition("/")[2][1:].isdigit() and path.rpartition("/")[2][0] == "L"
    ]


async def store_with(name: str) -> MemoryStore:
    store = MemoryStore(MemoryTree())
    for path, (value, ephemeral) in tree_of(name).items():
        kind = Kind.EPHEMERAL if ephemeral else Kind.PERSISTENT
        await store.multi([Create(path=path, value=value, kind=kind, make_parents=True)])
    return store


def test_there_are_ledgers_of_every_format_version() -> None:
    versions = [ledger_codec.decode(value).format_version for _, value in ledger_values()]
    assert len(versions) > 70
    assert sorted(set(versions)) == [1, 2, 3]


@pytest.mark.parametrize(("path", "value"), ledger_values(), ids=lambda item: item if isinstance(item, str) else "")
def test_ledger_metadata_is_written_back_byte_for_byte(path: str, value: bytes) -> None:
    metadata, token = ledger_codec.decode_with_token(value)
    assert ledger_codec.encode(metadata, token=token) == value


@pytest.mark.parametrize("name", ["running", "autorecovery", "readonly", "versions", "flat", "long"])
def test_ledger_metadata_means_what_its_maker_wrote_down(name: str) -> None:
    values = tree_of(name)
    found = {
        int("".join(path.removeprefix(root_of(name)).split("/")).replace("L", "")): value
        for path, (value, _) in values.items()
        if path.rpartition("/")[2].startswith("L0") or path.rpartition("/")[2].startswith("L1")
    }
    checked = 0
    for row in MEANING[name]:
        if row["ledger"] not in found:
            assert row["state"] == "DELETED" or "only in" in row["note"], row
            continue
        metadata = ledger_codec.decode(found[row["ledger"]])
        assert metadata.ensemble_size == row["ensemble"]
        assert metadata.write_quorum == row["writeQuorum"]
        assert metadata.ack_quorum == row["ackQuorum"]
        assert metadata.state.name == row["state"]
        if metadata.format_version > 1:
            assert metadata.digest_type is DIGEST_TYPES[row["digest"]]
            assert metadata.password == row["password"].encode()
        if metadata.state is LedgerState.CLOSED:
            assert (metadata.last_entry_id, metadata.length) == (row["lac"], row["length"])
        checked += 1
    assert checked == len(found) > 0


@pytest.mark.parametrize("name", ["pulsar-running", "pulsar-stopped"])
def test_pulsars_ledgers_mean_what_its_own_tool_said(name: str) -> None:
    values = tree_of(name)
    for row in MEANING[name]:
        metadata = ledger_codec.decode(values[ledger_path("/pulsar/ledgers", row["ledger"])][0])
        sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        assert "/".join(map(str, sizes)) == row["ensemble"]
        assert metadata.state.name == row["state"]
        assert metadata.digest_type is DIGEST_TYPES[row["digest"]]
        assert metadata.password.hex() == row["passwordHex"]
        custom = {
            key: bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
            for key, text in row["customMetadata"].items()
        }
        assert dict(metadata.custom_metadata) == custom
        if metadata.state is LedgerState.CLOSED:
            assert (metadata.last_entry_id, metadata.length) == (row["lastEntry"], row["length"])


def test_a_ledger_with_two_fragments_is_read() -> None:
    metadata = ledger_codec.decode(tree_of("autorecovery")["/db/ledgers/00/0000/L0010"][0])
    assert [fragment.first_entry_id for fragment in metadata.fragments] == [0, 3]
    assert metadata.fragment_at(2) is metadata.fragments[0]
    assert metadata.fragment_at(3) is metadata.fragments[1]


@pytest.mark.parametrize("name", HIERARCHICAL)
async def test_the_ledgers_of_a_hierarchical_tree_are_listed(name: str) -> None:
    store = await store_with(name)
    manager = LedgerManager(store, ids=BlockLedgerIds(store), rng=Random(1), root=root_of(name))
    found = [ledger_id async for ledger_id in manager.ledger_ids()]
    assert found == sorted(found)
    leaves = [path for path in tree_of(name) if path.rpartition("/")[2].startswith("L0")]
    assert sorted(map(manager.path, found)) == sorted(leaves)
    for ledger_id in found:
        assert await manager.read(ledger_id) is not None


@pytest.mark.parametrize("name", ["running", "formatted", "pulsar-running"])
async def test_the_layout_and_the_instance_id_are_recognised(name: str) -> None:
    store = await store_with(name)
    root = root_of(name)
    expected = tree_of(name)[f"{root}/INSTANCEID"][0].decode()
    assert await initialize_layout(store, root, rng=Random(1)) == expected


async def test_what_is_initialised_here_is_what_metaformat_leaves() -> None:
    store = MemoryStore(MemoryTree())
    instance_id = await initialize_layout(store, "/db/ledgers", rng=Random(1))
    for path, (value, _) in tree_of("formatted").items():
        if "underreplication" in path:
            continue
        node = await store.get(path)
        assert node is not None, path
        assert node.value == (instance_id.encode() if path.endswith("INSTANCEID") else value), path


@pytest.mark.parametrize("name", ["flat", "long"])
async def test_other_layouts_are_refused(name: str) -> None:
    store = await store_with(name)
    with pytest.raises(UnsupportedLayoutError):
        await initialize_layout(store, root_of(name), rng=Random(1))


async def test_sequence_numbers_count_all_creates_as_the_flat_layout_shows() -> None:
    """Four other nodes were created in the flat root before, and each ledger created two: 4, 6, 8 ..."""
    store = MemoryStore(MemoryTree())
    for name in ("LAYOUT", "INSTANCEID", "available", "cookies"):
        await store.create(f"/flat/{name}", make_parents=True)
    numbers = []
    for _ in range(3):
        path = await store.create("/flat/ID-", kind=Kind.EPHEMERAL, sequential=True)
        await store.delete(path)
        await store.create(f"/flat/L{path[-10:]}")
        numbers.append(int(path[-10:]))
    flat = [path[-10:] for path in tree_of("flat") if path.startswith("/flat/ledgers/L0")]
    assert numbers == sorted(map(int, flat))[:3]


async def test_the_sequence_of_a_new_cluster_gives_id_0_first() -> None:
    store = await store_with("formatted")
    ids = SequenceLedgerIds(store, "/db/ledgers")
    assert [await ids.next_id() for _ in range(3)] == [0, 1, 2]
    assert await store.children("/db/ledgers/idgen") == []


@pytest.mark.parametrize("name", ["running", "readonly", "flat", "pulsar-running"])
async def test_registered_bookies_are_found_and_written_back_alike(name: str) -> None:
    store = await store_with(name)
    root = root_of(name)
    writable = await bookies.available(store, root=root)
    read_only = await bookies.readonly(store, root=root)
    registered = [path for path, (_, ephemeral) in tree_of(name).items() if ephemeral]
    assert len(writable) + len(read_only) == len(registered) > 0
    for path in registered:
        bookie_id = path.rpartition("/")[2]
        info = await bookies.service_info(store, bookie_id, root=root)
        assert info is not None
        endpoint = info.bookie_endpoint
        assert endpoint is not None
        assert f"{endpoint.host}:{endpoint.port}" == bookie_id
        assert bookies.encode_service_info(info) == tree_of(name)[path][0]


@pytest.mark.parametrize("name", ["bk1", "bk2", "bk3"])
def test_cookies_are_written_back_byte_for_byte(name: str) -> None:
    data = (GOLDEN / f"cookies/{name}.VERSION").read_bytes()
    cookie = decode_cookie(data)
    assert cookie.bookie_id == f"127.0.0.1:328{name[-1]}"
    assert cookie.journal_directories == (f"{name}/journal",)
    assert cookie.ledger_directories == (f"{name}/ledgers",)
    assert cookie.index_directories is None
    assert cookie.instance_id == "d6f079cb-d093-43cb-b061-4f0d2e4e6646"
    assert encode_cookie(cookie) == data
    assert tree_of("running")[f"/db/ledgers/cookies/{cookie.bookie_id}"][0] == data


def test_a_cookie_with_index_directories_is_written_back_byte_for_byte() -> None:
    data = (GOLDEN / "cookies/longh.VERSION").read_bytes()
    cookie = decode_cookie(data)
    assert cookie.index_directories == ("longh/index",)
    assert encode_cookie(cookie) == data
