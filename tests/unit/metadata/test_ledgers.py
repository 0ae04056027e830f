from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio

from quire.metadata import ledger_codec
from quire.metadata.errors import (
    BadVersionError,
    MalformedMetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    UnsupportedLayoutError,
)
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledgers import (
    BlockLedgerIds,
    Fragment,
    LedgerManager,
    LedgerMetadata,
    LedgerState,
    ensure_layout,
    initialize_layout,
    read_instance_id,
    read_layout,
)
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import ANY_VERSION, Create, Node, Op, Put, Versioned
from tests.support.refusals import raises

pytestmark = pytest.mark.real_clock

METADATA = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("bk1:3181",)),))


IDS = [(1 << 63) - 1, 5_000_000_000, (1 << 31) - 1, (1 << 31) - 2, 123_456_789, 10_000, 9_999, 1, 0]


class LosesAnswers(MemoryStore):
    """A store whose next multis are carried out or not, and not answered.

    It then repeats them, like a client library that hides a lost connection.
    """

    made_but_lost = 0
    not_made = 0
    retries = False

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        if self.not_made:
            self.not_made -= 1
            raise MetadataUnavailableError("cut")
        results = await super().multi(ops)
        if self.made_but_lost:
            self.made_but_lost -= 1
            if self.retries:
                return await super().multi(ops)
            raise MetadataUnavailableError("cut")
        return results


class Ids:
    def __init__(self, *ids: int) -> None:
        self._ids = list(ids)

    async def next_id(self) -> int:
        await trio.lowlevel.checkpoint()
        return self._ids.pop(0)


@pytest.fixture
async def store() -> LosesAnswers:
    store = LosesAnswers(MemoryTree())
    await initialize_layout(store, rng=Random(1))
    return store


@pytest.fixture
async def ledgers(request: pytest.FixtureRequest, store: LosesAnswers) -> LedgerManager:
    """A manager of ledgers with the ids of the marker."""
    marker = request.node.get_closest_marker("ids")
    return LedgerManager(store, ids=Ids(*(() if marker is None else marker.args)), rng=Random(2))


@pytest.mark.ids(7)
async def test_a_ledger_is_created_read_changed_and_deleted(ledgers: LedgerManager) -> None:
    assert await ledgers.create(METADATA) == (7, 0)
    assert await ledgers.read(7) == Versioned(METADATA, 0)
    closed = replace(METADATA, state=LedgerState.CLOSED, last_entry_id=3, length=12)
    assert await ledgers.write(7, closed, 0) == 1
    assert await ledgers.read(7) == Versioned(closed, 1)
    await raises(BadVersionError, ledgers.write(7, METADATA, 0))
    await raises(BadVersionError, ledgers.delete(7, 0))
    await ledgers.delete(7, 1)
    assert await ledgers.read(7) is None
    await ledgers.delete(7)
    await raises(NoNodeError, ledgers.write(7, METADATA, 1))


@pytest.mark.ids(0, 1)
async def test_the_token_is_random_at_creation_and_0_after_a_change(store: LosesAnswers, ledgers: LedgerManager):
    tokens = []
    for _ in range(2):
        ledger_id, version = await ledgers.create(METADATA)
        node = await store.get(ledgers.path(ledger_id))
        assert node is not None
        tokens.append(ledger_codec.decode_with_token(node.value)[1])
    assert 0 not in tokens
    assert tokens[0] != tokens[1]
    await ledgers.write(ledger_id, METADATA, version)
    node = await store.get(ledgers.path(ledger_id))
    assert node is not None
    assert ledger_codec.decode_with_token(node.value)[1] == 0


@pytest.mark.ids(4, 5, 6)
async def test_the_callers_ops_are_done_with_the_creation_or_not_at_all(store: LosesAnswers, ledgers: LedgerManager):
    await store.create("/list", b"")

    def also(ledger_id: int) -> list[Op]:
        return [Put(path="/list", value=b"%d" % ledger_id, version=0), Create(path="/new")]

    assert await ledgers.create(METADATA, also=also) == (4, 0)
    assert await store.get("/list") == Node(b"4", 1)
    with pytest.raises(BadVersionError) as caught:
        await ledgers.create(METADATA, also=also)
    assert caught.value.index == 1
    assert await ledgers.read(5) is None
    with pytest.raises(NodeExistsError) as exists:
        await ledgers.create(METADATA, also=lambda ledger_id: [Create(path="/new")])
    assert exists.value.index == 1
    assert await ledgers.read(6) is None


@pytest.mark.parametrize("retries", [False, True])
@pytest.mark.ids(3)
async def test_a_creation_whose_answer_was_lost_is_recognised_as_ours(retries, store, ledgers):
    store.made_but_lost, store.retries = 1, retries
    assert await ledgers.create(METADATA, also=lambda ledger_id: [Create(path="/also")]) == (3, 0)
    assert await store.get("/also") is not None


@pytest.mark.ids(3)
async def test_a_creation_that_was_not_made_says_that_it_does_not_know(store: LosesAnswers, ledgers: LedgerManager):
    store.not_made = 1
    await raises(MetadataUnavailableError, ledgers.create(METADATA))
    assert await ledgers.read(3) is None


@pytest.mark.ids(3, 4)
async def test_an_id_that_somebody_took_by_hand_is_skipped(store: LosesAnswers, ledgers: LedgerManager) -> None:
    await store.create(ledgers.path(3), ledger_codec.encode(METADATA, token=99), make_parents=True)
    assert await ledgers.create(METADATA) == (4, 0)


@pytest.mark.ids(3)
async def test_changes_that_race_are_all_made(ledgers: LedgerManager) -> None:
    ledger_id, _ = await ledgers.create(METADATA)

    def grow(metadata: LedgerMetadata) -> LedgerMetadata:
        last = metadata.fragments[-1]
        return replace(metadata, fragments=(*metadata.fragments, Fragment(last.first_entry_id + 1, last.bookies)))

    async def change() -> None:
        await ledgers.update(ledger_id, grow)

    async with trio.open_nursery() as nursery:
        for index in range(5):
            nursery.start_soon(change, name=f"change {index}")
    found = await ledgers.read(ledger_id)
    assert found is not None
    assert (len(found.value.fragments), found.version) == (6, 5)
    await raises(NoNodeError, ledgers.update(99, grow))


async def test_a_damaged_ledger_is_said_to_be_damaged(store: LosesAnswers, ledgers: LedgerManager) -> None:
    await store.create(ledgers.path(3), b"noise", make_parents=True)
    await raises(MalformedMetadataError, ledgers.read(3))


@pytest.mark.ids(*IDS)
async def test_all_ledgers_are_listed_in_order_and_nothing_else(store: LosesAnswers, ledgers: LedgerManager) -> None:
    for _ in IDS:
        await ledgers.create(METADATA)
    for other in (
        "cookies/bk1",
        "idgen",
        "idgen-long/HOB-0000000001",
        "underreplication/ledgers/0000/0000",
        "1",
        "0a",
    ):
        await store.create(f"/ledgers/{other}", make_parents=True)
    for other in ("00/0000/X0000", "00/0000/L00000", "00/0000/L000x", "00/000", "00/L0000", "00/0000/0001"):
        await store.create(f"/ledgers/{other}", make_parents=True)
    assert [ledger_id async for ledger_id in ledgers.ledger_ids()] == IDS[::-1]
    for first in [*IDS, 2, 10_001, 1 << 32, (1 << 63) - 2]:
        assert [ledger_id async for ledger_id in ledgers.ledger_ids(first)] == [i for i in IDS[::-1] if i >= first]


@pytest.mark.ids(*range(100))
async def test_other_tasks_run_while_a_long_folder_is_listed(ledgers: LedgerManager, monkeypatch) -> None:
    """A folder has up to 10,000 names, which would take 15 ms in one step."""
    for _ in range(100):
        await ledgers.create(METADATA)
    passes: list[int] = []

    async def count() -> None:
        passes.append(0)
        while True:
            await trio.lowlevel.checkpoint()
            passes[-1] += 1

    for names in (10_000, 5):
        monkeypatch.setattr("quire.metadata.ledgers.NAMES_IN_STEP", names)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert len([each async for each in ledgers.ledger_ids()]) == 100
            nursery.cancel_scope.cancel()
    assert passes[1] - passes[0] >= 100 // 5 - 2


@pytest.mark.ids(0, 1, 10000, 2)
async def test_folders_that_the_last_ledger_leaves_go_too(store: LosesAnswers, ledgers: LedgerManager) -> None:
    before = await store.children("/ledgers")
    for _ in range(3):
        await ledgers.create(METADATA)
    await ledgers.delete(0)
    assert await store.children("/ledgers/00") == ["0000", "0001"]
    await ledgers.delete(10_000)
    assert await store.children("/ledgers/00") == ["0000"]
    await ledgers.delete(1)
    assert await store.children("/ledgers") == before
    assert await ledgers.create(METADATA) == (2, 0)


@pytest.mark.ids(0)
async def test_a_watch_of_a_ledger_tells_of_its_changes(ledgers: LedgerManager) -> None:
    await ledgers.create(METADATA)
    watch = ledgers.watch(0)
    await ledgers.write(0, METADATA, 0)
    assert (await watch.next()).path == ledgers.path(0)


async def test_the_layout_is_made_once_and_keeps_its_instance_id() -> None:
    store = MemoryStore(MemoryTree())
    await raises(NoNodeError, read_instance_id(store))
    first = await initialize_layout(store, rng=Random(1))
    assert await initialize_layout(store, rng=Random(2)) == first == await read_instance_id(store)
    assert await initialize_layout(store, "/other/ledgers", rng=Random(2)) != first
    assert await store.children("/ledgers") == ["INSTANCEID", "LAYOUT", "available"]


async def test_whoever_comes_first_to_a_cluster_that_was_only_set_up_says_how_ledgers_are_laid_out() -> None:
    store = MemoryStore(MemoryTree())
    await raises(NoNodeError, ensure_layout(store))
    await store.create("/ledgers/INSTANCEID", b"x", make_parents=True)
    await ensure_layout(store)
    await ensure_layout(store)
    assert await read_layout(store) == HIERARCHICAL
    flat = b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
    await store.put("/ledgers/LAYOUT", flat, ANY_VERSION)
    await ensure_layout(store)
    node = await store.get("/ledgers/LAYOUT")
    assert node is not None
    assert node.value == flat


async def test_two_that_initialise_at_once_agree() -> None:
    tree = MemoryTree()
    found: list[str] = []

    async def initialise(seed: int) -> None:
        found.append(await initialize_layout(MemoryStore(tree), rng=Random(seed)))

    async with trio.open_nursery() as nursery:
        for seed in range(5):
            nursery.start_soon(initialise, seed, name=f"initialise {seed}")
    assert len(set(found)) == 1


async def test_a_root_with_another_layout_or_half_a_layout_is_refused() -> None:
    store = MemoryStore(MemoryTree())
    await store.create("/flat/LAYOUT", b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", make_parents=True)
    await store.create("/half/INSTANCEID", b"x", make_parents=True)
    for root in ("/flat", "/half"):
        await raises(UnsupportedLayoutError, initialize_layout(store, root, rng=Random(1)))


async def test_ids_from_blocks_and_ledgers_live_under_one_root() -> None:
    store = MemoryStore(MemoryTree())
    await initialize_layout(store, rng=Random(1))
    ledgers = LedgerManager(store, ids=BlockLedgerIds(store), rng=Random(2))
    assert [(await ledgers.create(METADATA))[0] for _ in range(3)] == [0, 1, 2]
    assert [ledger_id async for ledger_id in ledgers.ledger_ids()] == [0, 1, 2]


@pytest.mark.ids(0, 1, 10000, 2)
async def test_a_caller_that_leaves_early_leaves_no_generator_open(
    ledgers: LedgerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abandoned asynchronous generator is a ResourceWarning, which trio gives at the end of the run."""
    for _ in range(3):
        await ledgers.create(METADATA)
    opened: list[Any] = []
    walk = ledgers._walk

    def watched(*given: Any) -> Any:
        opened.append(walk(*given))
        return opened[-1]

    monkeypatch.setattr(ledgers, "_walk", watched)
    async with aclosing(ledgers.ledger_ids()) as found:
        async for _ in found:
            break
    assert len(opened) > 1
    assert [each.ag_frame for each in opened] == [None] * len(opened)
