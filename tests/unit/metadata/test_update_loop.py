from __future__ import annotations

import pytest
import trio

from quire.metadata.errors import NoNodeError
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import Node, Versioned
from quire.metadata.update_loop import update_node
from tests.support.refusals import raises

pytestmark = pytest.mark.real_clock


async def test_concurrent_changes_are_all_made(store: MemoryStore) -> None:
    await store.create("/n", b"0")

    async def add() -> None:
        await update_node(store, "/n", lambda value: b"%d" % (int(value) + 1))

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(add, name=f"add {index}")
    assert await store.get("/n") == Node(b"10", 10)


async def test_a_value_that_is_right_is_not_written(store: MemoryStore) -> None:
    await store.create("/n", b"right")
    assert await update_node(store, "/n", lambda value: None) == Versioned(b"right", 0)
    assert await store.get("/n") == Node(b"right", 0)


async def test_the_answer_is_the_value_as_it_then_stands(store: MemoryStore) -> None:
    await store.create("/n")
    assert await update_node(store, "/n", lambda value: b"new") == Versioned(b"new", 1)


async def test_a_change_may_give_up_and_a_missing_value_is_an_error(store: MemoryStore) -> None:
    await raises(NoNodeError, update_node(store, "/n", lambda value: b"new"))
    await store.create("/n", b"old")

    def refuse(value: bytes) -> bytes:
        raise ValueError("not this one")

    await raises(ValueError, update_node(store, "/n", refuse), "not this one")
    assert await store.get("/n") == Node(b"old", 0)
