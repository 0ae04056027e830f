"""Data of the cluster pages, over a real store with registered brokers and bookies."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest
import trio

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from broker.console.cluster_handlers import BASE
from broker.console.cluster_ledgers import TableRow
from broker.console.cluster_loss import Loss
from broker.console.cluster_ports import ClusterParts
from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker, encode_leader, encode_report
from managed_ledger.ledger_list import LedgerInfo, LedgerList, encode
from managed_ledger.offloading import completed, left, prepared
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.errors import BookieUnavailableError, NoSuchLedgerError
from quire.ledger.placement.policy import Cluster, EnsemblePlacementPolicy, PlacementConfig
from quire.ledger.placement.rack_aware import RackAwarePolicy
from quire.metadata.bookies import BookieServiceInfo, Cookie, Endpoint, register, write_cookie
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.service.latest.warnings import LATEST
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.bookkeeper.v3 import BookieInfo
from tests.unit.broker.admin.cluster_fakes import OTHER, ClusterRest, on_cluster
from tests.unit.broker.admin.fakes import BROKER_URL, WEB_URL


class FakeLedgerAccess:
    """Ledgers and bookies of a cluster, from its fields."""

    def __init__(self) -> None:
        self.metadata: dict[int, LedgerMetadata] = {}
        self.space: dict[str, tuple[int, int]] = {}
        self.cluster: Cluster | None = Cluster(writable=("a:1", "b:1", "c:1"), locations={"a:1": "/r1"})

    async def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        for ledger_id in sorted(self.metadata):
            yield ledger_id

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        await trio.lowlevel.checkpoint()
        if ledger_id not in self.metadata:
            raise NoSuchLedgerError(f"ledger {ledger_id} has no metadata")
        return self.metadata[ledger_id]

    @property
    def bookies(self) -> BookieClient:
        return cast(BookieClient, self)

    def connection(self, bookie_id: str) -> FakeLedgerAccess:
        if bookie_id not in self.space:
            raise BookieUnavailableError(f"bookie {bookie_id} does not answer")
        self.asked = bookie_id
        return self

    def bookie_info(self, bits: int) -> FakeLedgerAccess:
        return self

    async def wait(self) -> BookieInfo:
        await trio.lowlevel.checkpoint()
        total, free = self.space[self.asked]
        return BookieInfo(Rc.OK, total, free)


def placement_in(cluster: Cluster) -> EnsemblePlacementPolicy:
    return RackAwarePolicy(PlacementConfig(), lambda: cluster, random.Random(1))


class Pages:
    """A cluster with two brokers and three bookies, one of them gone."""

    def __init__(self, rest: ClusterRest, nursery: trio.Nursery) -> None:
        self.rest = rest
        self.ledgers = FakeLedgerAccess()
        parts = ClusterParts(
            ledgers=self.ledgers,
            network=cast(Any, None),
            nursery=nursery,
            cluster=lambda: cast(Cluster, self.ledgers.cluster),
            placement_in=placement_in,
        )
        rest.show(parts)

    async def fill(self) -> None:
        store = self.rest.store
        for bookie_id in ("a:1", "b:1", "x:1"):
            cookie = Cookie(
                bookie_id=bookie_id, journal_directories=("/j",), ledger_directories=("/l",), instance_id="i"
            )
            await write_cookie(store, cookie, None)
        await register(store, "a:1", BookieServiceInfo((Endpoint("a", 1),)))
        await register(store, "b:1", BookieServiceInfo((Endpoint("b", 1),)), read_only=True)
        await register(store, "c:1", BookieServiceInfo((Endpoint("c", 1),)))
        for ledger_id in range(30):
            self.ledgers.metadata[ledger_id] = LedgerMetadata(
                ensemble_size=2,
                write_quorum=2,
                ack_quorum=1,
                fragments=(Fragment(0, ("a:1", "x:1" if ledger_id % 3 == 0 else "b:1")),),
                state=LedgerState.CLOSED,
                last_entry_id=9,
                length=100,
                custom_metadata=(("pulsar/managed-ledger", b"public/default/persistent/t%d" % (ledger_id % 2)),),
            )
        log = LedgerList(
            ledgers=tuple(LedgerInfo(ledger_id=each, entries=10, size=100, closed_ms=1) for each in (4, 6, 98, 99))
        )
        # 98 is in tiered storage only
        log = prepared(log, 98, UUID(int=1), instead="", driver="d", now_ms=1)
        log = left(completed(log, 98, UUID(int=1), now_ms=1), 98, str(UUID(int=1)))
        await store.create("/managed-ledgers/public/default/persistent/t0", encode(log), make_parents=True)

    async def get(self, path: str) -> Any:
        return await self.rest.get(f"{BASE}{path}")

    async def surveyed(self) -> Any:
        """Wait until all ledgers are examined."""
        response = await self.rest.ask("POST", f"{BASE}/survey")
        assert response.status_code == 200
        found: Any = None
        while found is None or found["survey"]["running"]:
            found = await self.get("/ledgers")
        return found


@pytest.fixture
async def pages(nursery: trio.Nursery) -> AsyncIterator[Pages]:
    rest = ClusterRest()
    found = Pages(rest, nursery)
    async with rest.served():
        await found.fill()
        yield found


async def test_the_map_has_all_ledgers_and_the_share_of_each_bookie(pages: Pages) -> None:
    found = await pages.surveyed()
    assert (found["survey"]["examined"], found["survey"]["total"], len(found["rows"])) == (30, 30, 30)
    by_id = {each["bookie"]: (each["state"], each["ledgers"], each["bytes"]) for each in found["bookies"]}
    assert by_id == {
        "a:1": ("writable", 30, 3000),
        "b:1": ("read-only", 20, 2000),
        "c:1": ("writable", 0, 0),
        "x:1": ("gone", 10, 1000),
    }


async def test_rows_are_chosen_by_bookie_state_and_owner(pages: Pages) -> None:
    await pages.surveyed()

    async def ids(query: str) -> list[int]:
        return [each["ledger"] for each in (await pages.get(f"/ledgers?{query}"))["rows"]]

    assert await ids("harm=BELOW_WRITE_QUORUM") == list(range(0, 30, 3))
    assert await ids("bookie=x:1&owner=/t1") == [3, 9, 15, 21, 27]
    assert await ids("bookie=nowhere:1") == []
    first = await pages.get("/ledgers?bookie=x:1&limit=4")
    assert [each["ledger"] for each in first["rows"]] == [0, 3, 6, 9]
    assert await ids(f"bookie=x:1&limit=2&from={first['next']}") == [12, 15]


async def test_marks_are_shown_beside_the_ledgers(pages: Pages) -> None:
    marks = UnderreplicatedLedgers(pages.rest.store, rng=random.Random(1), wall_ms=lambda: 1, owner="w")
    await marks.mark(3, ["x:1"])
    repairs = await pages.get("/repairs")
    assert (repairs["marked"], [each["ledger"] for each in repairs["urgent"]]) == (1, [3])
    found = await pages.surveyed()
    assert [each["ledger"] for each in found["rows"] if each["marked"]] == [3]


async def test_the_ledgers_of_a_topic_are_read_now(pages: Pages) -> None:
    found = await pages.get("/ledgers?topic=persistent://public/default/t0")
    assert (found["examined"], found["total"], found["withoutMetadata"]) == (2, 4, [99])
    assert [each["ledger"] for each in found["rows"]] == [4, 6]
    assert found["rows"][1]["harm"] == "BELOW_WRITE_QUORUM"
    reason = await pages.rest.refused("GET", f"{BASE}/ledgers?topic=persistent://public/default/none", 404)
    assert "does not exist" in reason
    await pages.rest.refused("GET", f"{BASE}/ledgers?topic=a/b/c/d/e/f", 412)


async def test_the_loss_of_a_bookie_is_computed_for_all_ledgers(pages: Pages) -> None:
    await pages.surveyed()
    found = await pages.get("/loss/a:1")
    assert (found["examined"], found["total"], found["affected"], found["copyBytes"]) == (30, 30, 30, 3000)
    assert found["then"] == {"belowWriteQuorum": 30, "belowAckQuorum": 10, "unreadable": 10}
    assert found["now"] == {"belowWriteQuorum": 10, "belowAckQuorum": 0, "unreadable": 0}
    assert (found["verdict"], found["topicsTotal"], found["state"]) == ("lost", 2, "writable")
    assert (await pages.get("/loss/c:1"))["verdict"] == "nothing"
    await pages.rest.refused("GET", f"{BASE}/loss/y:1", 404)


async def test_without_a_survey_an_answer_says_that_nothing_was_examined(pages: Pages) -> None:
    found = await pages.get("/loss/a:1")
    assert (found["examined"], found["survey"]["running"]) == (0, True)


async def test_bookies_have_their_disks_and_what_is_not_known_is_absent(pages: Pages) -> None:
    pages.ledgers.space = {"a:1": (1000, 400)}
    found = await pages.get("/bookies")
    by_id = {each["bookie"]: each for each in found["bookies"]}
    assert [(each, by_id[each]["state"], by_id[each]["total"], by_id[each]["free"]) for each in by_id] == [
        ("a:1", "writable", 1000, 400),
        ("b:1", "read-only", None, None),
        ("c:1", "writable", None, None),
        ("x:1", "gone", None, None),
    ]
    assert (by_id["a:1"]["rack"], by_id["a:1"]["directories"], by_id["c:1"]["directories"]) == ("/r1", ["/l"], [])
    assert by_id["b:1"]["problems"] == ["its disks: bookie b:1 does not answer"]
    assert by_id["x:1"]["problems"] == []


async def test_brokers_have_their_load_and_an_unreadable_report_is_named(pages: Pages) -> None:
    store = pages.rest.store
    for name, url, web, rate in (("broker:8080", BROKER_URL, WEB_URL, 5.0), ("other:8080", *OTHER[:2], 2.0)):
        me = LocalBroker(id=name, broker_url=url, web_url=web)
        loads = {f"public/default/0x00000000_0x{4 if rate == 5 else 8}0000000": BundleLoad(topics=3, messages_in=rate)}
        report = encode_report(BrokerReport(broker=me, bundles=loads), version="1", started_ms=1, now_ms=2)
        await store.create(f"/loadbalance/brokers/{name}", report, make_parents=True)
    await store.create("/loadbalance/brokers/odd:1", b"{}")
    await store.create("/loadbalance/leader", encode_leader(LocalBroker("other:8080", *OTHER[:2])))
    found = await pages.get("/brokers")
    assert [(each["id"], each["isLeader"], each["isMine"], each["messagesIn"]) for each in found["brokers"]] == [
        ("broker:8080", False, True, 5.0),
        ("other:8080", True, False, 2.0),
    ]
    assert (found["unread"], found["bundlesTotal"]) == (["odd:1"], 2)


async def test_a_ring_has_the_owners_of_bundles_and_the_places_of_topics() -> None:
    async with trio.open_nursery() as nursery, on_cluster() as rest:
        Pages(rest, nursery)
        await rest.own("public/default/0x40000000_0x80000000", OTHER)
    async with on_cluster() as rest:
        await rest.own("public/default/0x40000000_0x80000000", OTHER)
        rest.administration.names = ["persistent://public/default/orders"]
        found = await rest.get(f"{BASE}/bundles/public/default")
        assert [(each["range"], each["ownerUrl"]) for each in found["bundles"]] == [
            ("0x00000000_0x40000000", None),
            ("0x40000000_0x80000000", OTHER.broker_url),
            ("0x80000000_0xc0000000", None),
            ("0xc0000000_0xffffffff", None),
        ]
        assert found["topics"][0] == {
            "topic": "persistent://public/default/orders",
            "place": 0xB135B9DC,
            "range": "0x80000000_0xc0000000",
            "messagesIn": None,
            "messagesOut": None,
        }
        await rest.refused("GET", f"{BASE}/bundles/public/none", 404)


async def test_warnings_of_this_broker_are_shown_and_processes_without_a_port_are_named(pages: Pages) -> None:
    before = await pages.get("/warnings")
    LATEST.keep({"timestamp": "t", "level": "warning", "logger": "x", "event": "a disk is slow", "disk": "a"})
    found = await pages.get(f"/warnings?after={before['newest']}")
    assert [(each["source"], each["event"], each["text"]) for each in found["lines"]] == [
        ("broker:8080", "a disk is slow", "disk=a")
    ]
    assert [(each["name"], each["problem"]) for each in found["sources"]] == [
        ("broker:8080", ""),
        ("a:1", "it has no web port"),
        ("b:1", "it has no web port"),
        ("c:1", "it has no web port"),
    ]


async def test_parameters_out_of_bounds_are_refused(pages: Pages) -> None:
    for query in ("harm=SAD", "limit=0", "limit=101", "from=x"):
        await pages.rest.refused("GET", f"{BASE}/ledgers?{query}", 400)


async def test_while_the_metadata_service_is_away_pages_say_so(pages: Pages) -> None:
    pages.rest.store.disconnect()
    for path in ("/repairs", "/bookies", "/ledgers", "/loss/a:1", "/brokers", "/warnings"):
        await pages.rest.refused("GET", f"{BASE}{path}", 503)
    pages.rest.store.reconnect()


async def test_no_step_of_a_large_answer_is_long(pages: Pages) -> None:
    """Rows examined between two turns of other tasks stay below a number that takes some milliseconds."""
    for ledger_id in range(30, 3000):
        pages.ledgers.metadata[ledger_id] = pages.ledgers.metadata[ledger_id % 3]
    await pages.surveyed()
    steps, examined = [0], 0
    add = Loss.add

    def counted(self: Loss, row: TableRow) -> None:
        nonlocal examined
        examined += 1
        add(self, row)

    async def watch() -> None:
        while True:
            steps.append(examined)
            await trio.lowlevel.checkpoint()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Loss, "add", counted)
        async with trio.open_nursery() as watching:
            watching.start_soon(watch)
            found = await pages.get("/loss/a:1")
            watching.cancel_scope.cancel()
    assert found["examined"] == examined == 3000
    assert max(after - before for before, after in pairwise(steps)) <= 200
