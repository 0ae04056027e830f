from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Cookie, Endpoint
from quire.metadata.errors import (
    BadVersionError,
    InvalidPathError,
    MalformedMetadataError,
    NodeExistsError,
    NoNodeError,
)
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Versioned
from tests.support.refusals import raises, refuses

INFO = BookieServiceInfo(endpoints=(Endpoint(host="bk1", port=3181),))
COOKIE = Cookie(bookie_id="bk1:3181", journal_directories=("/j",), ledger_directories=("/d",))


async def cluster() -> MemoryTree:
    tree = MemoryTree()
    await initialize_layout(MemoryStore(tree), rng=Random(1))
    return tree


@pytest.mark.real_clock
async def test_a_bookie_is_there_as_long_as_its_session() -> None:
    tree = await cluster()
    store, client = MemoryStore(tree), MemoryStore(tree)
    assert await bookies.available(client) == []
    await bookies.register(store, "bk1:3181", INFO)
    await bookies.register(store, "bk0:3181", INFO)
    assert await bookies.available(client) == ["bk0:3181", "bk1:3181"]
    assert await bookies.service_info(client, "bk1:3181") == INFO
    await store.aclose()
    assert await bookies.available(client) == []
    assert await bookies.service_info(client, "bk1:3181") is None


@pytest.mark.real_clock
async def test_a_bookie_changes_between_writable_and_read_only() -> None:
    store = MemoryStore(await cluster())
    for read_only in (False, True, True, False):
        await bookies.register(store, "bk1:3181", INFO, read_only=read_only)
        assert await bookies.available(store) == ([] if read_only else ["bk1:3181"])
        assert await bookies.readonly(store) == (["bk1:3181"] if read_only else [])
        assert await bookies.service_info(store, "bk1:3181") == INFO
    await bookies.unregister(store, "bk1:3181")
    await bookies.unregister(store, "bk1:3181")
    assert await bookies.available(store) == await bookies.readonly(store) == []


@pytest.mark.real_clock
async def test_registering_again_renews_what_is_said() -> None:
    store = MemoryStore(await cluster())
    await bookies.register(store, "bk1:3181", INFO)
    other = BookieServiceInfo(
        endpoints=(Endpoint(host="bk1", port=1, auth=("a", "b"), extensions=("tls",)),),
        properties=(("a", "1"), ("b", "2")),
    )
    await bookies.register(store, "bk1:3181", other)
    assert await bookies.service_info(store, "bk1:3181") == other


async def test_a_bookie_waits_until_its_former_session_has_gone() -> None:
    tree = await cluster()
    former, now = MemoryStore(tree, session_timeout_s=10.0), MemoryStore(tree)
    await bookies.register(former, "bk1:3181", INFO)
    former.disconnect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.run, name="tree")
        await bookies.register(now, "bk1:3181", INFO)
        assert trio.current_time() == 10.0
        nursery.cancel_scope.cancel()
    node = await now.get("/ledgers/available/bk1:3181")
    assert node is not None
    assert node.mine


async def test_an_id_that_another_live_bookie_holds_is_not_taken() -> None:
    tree = await cluster()
    other, now = MemoryStore(tree), MemoryStore(tree)
    await bookies.register(other, "bk1:3181", INFO)
    with pytest.raises(trio.TooSlowError), trio.fail_after(30):
        await bookies.register(now, "bk1:3181", INFO)
    await bookies.unregister(now, "bk1:3181")
    await wait_all_tasks_blocked()
    assert await bookies.available(now) == ["bk1:3181"]


@pytest.mark.parametrize("bookie_id", ["", "readonly", "a/b", "a b", "..", ".", "é", "a\n"])
def test_ids_that_no_bookie_can_have_are_refused(bookie_id: str) -> None:
    refuses(InvalidPathError, lambda: bookies.check_bookie_id(bookie_id))


def test_empty_service_info_means_the_host_and_port_of_the_id() -> None:
    info = bookies.decode_service_info("10.0.0.1:3181", b"")
    assert info == BookieServiceInfo(endpoints=(Endpoint(host="10.0.0.1", port=3181),))
    for bookie_id in ("custom", "custom:", ":1", "custom:x"):
        with pytest.raises(MalformedMetadataError):
            bookies.decode_service_info(bookie_id, b"")


@pytest.mark.parametrize("data", [b"\xff", b"\x32\x01", b"\x32\x02\x10\x01"], ids=repr)
def test_damaged_service_info_is_refused(data: bytes) -> None:
    refuses(MalformedMetadataError, lambda: bookies.decode_service_info("bk1:3181", data))


def test_the_bookie_endpoint_is_the_one_with_its_protocol() -> None:
    http = Endpoint(host="bk1", port=8000, id="http", protocol="http")
    assert BookieServiceInfo(endpoints=(http, *INFO.endpoints)).bookie_endpoint == INFO.endpoints[0]
    assert BookieServiceInfo(endpoints=(http,)).bookie_endpoint is None


@pytest.mark.real_clock
async def test_cookies_are_kept_by_compare_and_set() -> None:
    store = MemoryStore(await cluster())
    assert await bookies.read_cookie(store, "bk1:3181") is None
    assert await bookies.write_cookie(store, COOKIE, None) == 0
    await raises(NodeExistsError, bookies.write_cookie(store, COOKIE, None))
    assert await bookies.read_cookie(store, "bk1:3181") == Versioned(COOKIE, 0)
    assert await bookies.write_cookie(store, COOKIE, 0) == 1
    await raises(BadVersionError, bookies.write_cookie(store, COOKIE, 0))
    await raises(BadVersionError, bookies.delete_cookie(store, "bk1:3181", 0))
    await bookies.delete_cookie(store, "bk1:3181", 1)
    await raises(NoNodeError, bookies.delete_cookie(store, "bk1:3181"))
