"""Rows of other brokers in the table of topics (`broker.console.topics.sampler`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from broker.console.topics import sampler
from broker.console.topics.sampler import ASK_S, EVERY_S, PART, SILENT_S, Sampler
from broker.console.topics.silent import SilentBundles
from broker.errors import ServiceNotReadyError
from broker.ownership.values import Owner, encode_owner
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.local.memory import MemoryStore, MemoryTree

TOPIC = "persistent://public/default/"


class FakeOthers:
    """Other brokers: rows by URL; None: it never answers; an error is raised."""

    def __init__(self, **rows: Any) -> None:
        self.rows = rows
        self.asked: list[str] = []

    async def call(self, url: str, method: str, path: str) -> Any:
        self.asked.append(f"{method} {url}{path}")
        await trio.lowlevel.checkpoint()
        found = self.rows[url]
        if found is None:
            await trio.sleep_forever()
        if isinstance(found, Exception):
            raise found
        return found.pop(0)


def one_row(name: str, rate: float) -> list[Any]:
    return [TOPIC + name, rate, 0, 0, 0, 5, 0, 1, 0, 1]


async def elsewhere(monkeypatch: pytest.MonkeyPatch, others: FakeOthers) -> list[dict[str, Any]]:
    found, _ = await asked(monkeypatch, others)
    return found


async def asked(monkeypatch: pytest.MonkeyPatch, others: FakeOthers) -> tuple[list[dict[str, Any]], SilentBundles]:
    """Each broker has the bundle with its name as namespace."""

    async def urls(call: Any, url_of: Any) -> list[tuple[str, list[str]]]:
        await trio.lowlevel.checkpoint()
        return [(url, [f"public/{url}/0x00000000_0xffffffff"]) for url in others.rows]

    monkeypatch.setattr(sampler, "_others", urls)
    return await Sampler()._elsewhere(call_of(others))


def call_of(others: FakeOthers, metadata: Any = None) -> Any:
    others_of: Any = SimpleNamespace(call=others.call, url_of=lambda owner: owner.web_url)
    cluster = SimpleNamespace(others=others_of, broker_id="me", wall_ms=lambda: 1)
    cluster.metadata = MemoryStore(MemoryTree()) if metadata is None else metadata
    return SimpleNamespace(cluster=cluster)


async def test_rows_of_all_brokers_come_in_parts_and_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    others = FakeOthers(
        a=[{"rows": [one_row("x", 1)], "next": PART}, {"rows": [one_row("y", 2)], "next": None}],
        b=[{"rows": [one_row("z", 3)], "next": None}],
    )
    found = await elsewhere(monkeypatch, others)
    rates = {name: row[0] for rows in found for name, row in rows.items()}
    assert rates == {TOPIC + "x": 1, TOPIC + "y": 2, TOPIC + "z": 3}
    path = "/console/api/loaded-topics"
    assert sorted(others.asked) == [
        f"GET a{path}?from=0&limit={PART}",
        f"GET a{path}?from={PART}&limit={PART}",
        f"GET b{path}?from=0&limit={PART}",
    ]


@pytest.mark.parametrize(
    "bad",
    [
        ServiceNotReadyError("away"),
        [[]],
        [{"rows": [["x", 1]], "next": None}],
        [{"rows": [7], "next": None}],
        [{"rows": [["x", *[None] * 9]], "next": None}],
    ],
)
async def test_a_broker_with_an_error_or_a_strange_answer_has_no_rows(
    monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    found = await elsewhere(monkeypatch, FakeOthers(bad=bad, good=[{"rows": [one_row("x", 1)], "next": None}]))
    assert [list(rows) for rows in found if rows] == [[TOPIC + "x"]]


async def test_bundles_of_brokers_without_an_answer_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    others = FakeOthers(a=None, b=ServiceNotReadyError("away"), good=[{"rows": [], "next": None}])
    _, silent = await asked(monkeypatch, others)
    assert [silent.has(f"persistent://public/{name}/x") for name in ("a", "b", "good")] == [True, True, False]


async def test_a_bundle_that_a_silent_broker_took_since_its_report_is_silent_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata = MemoryStore(MemoryTree())
    owners = {"new": "a", "other": "good", "strange": None}
    for namespace, url in owners.items():
        owner = b"no JSON" if url is None else encode_owner(Owner(broker_url=f"pulsar://{url}", web_url=url))
        await metadata.create(f"/namespace/public/{namespace}/0x00000000_0xffffffff", owner, make_parents=True)
    others = FakeOthers(a=None, good=[{"rows": [], "next": None}] * 3)
    await asked(monkeypatch, others)  # (sets the URLs)
    made = Sampler()
    for _ in range(2):
        _, silent = await made._elsewhere(call_of(others, metadata))
        names = ("a", "new", "other", "strange")
        assert [silent.has(f"persistent://public/{name}/x") for name in names] == [True, True, False, False]


async def test_brokers_are_those_of_the_last_look_while_the_metadata_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = FakeOthers(a=None, good=[{"rows": [one_row("x", 1)], "next": None}] * 3)
    await asked(monkeypatch, others)
    others.rows["good"] = [{"rows": [one_row("x", 1)], "next": None}] * 2
    made, call = Sampler(), call_of(others)
    await made._elsewhere(call)

    async def fails(call: Any, url_of: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise MetadataUnavailableError("away")

    monkeypatch.setattr(sampler, "_others", fails)
    found, silent = await made._elsewhere(call)
    assert ([list(rows) for rows in found], silent.has("persistent://public/a/x")) == ([[TOPIC + "x"]], True)


async def test_a_broker_that_is_no_longer_registered_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    others = FakeOthers(a=None)
    await asked(monkeypatch, others)
    made, call = Sampler(), call_of(others)
    _, silent = await made._elsewhere(call)
    assert silent.has("persistent://public/a/x")
    del others.rows["a"]
    _, silent = await made._elsewhere(call)
    assert not silent.has("persistent://public/a/x"), "its session has ended: others may serve its bundles"


async def test_brokers_that_hang_do_not_keep_the_table_from_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging: dict[str, Any] = {f"h{number}": None for number in range(5)}
    start = trio.current_time()
    found = await elsewhere(monkeypatch, FakeOthers(**hanging, good=[{"rows": [one_row("x", 1)], "next": None}]))
    assert trio.current_time() - start == pytest.approx(ASK_S)
    assert [list(rows) for rows in found if rows] == [[TOPIC + "x"]]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """This broker has no topics, and the cluster has no names."""

    async def names(self: Sampler, call: Any) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    monkeypatch.setattr(Sampler, "_all_names", names)
    monkeypatch.setattr(sampler, "loaded_topics", lambda call: iter(()))


@pytest.mark.usefixtures("alone")
async def test_pages_get_the_table_before_while_a_broker_hangs_and_others_get_rows_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers ask each other: rows that waited for a table would make two brokers wait for each other."""
    others = FakeOthers(a=[{"rows": [one_row("x", 1)], "next": None}])
    await asked(monkeypatch, others)  # (sets the URLs)
    others.rows["a"] = [{"rows": [one_row("x", 1)], "next": None}]
    call, made = call_of(others), Sampler()
    first = await made.table(call)
    others.rows["a"] = None
    await trio.sleep(2 * EVERY_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.table, call)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        assert await made.table(call) is first
        assert await made.rows(call) == {}
        assert trio.current_time() == start, "neither waits for the broker that hangs"
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("alone")
async def test_a_broker_that_hung_is_asked_again_soon_and_not_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    others = FakeOthers(a=None)
    await asked(monkeypatch, others)
    others.asked.clear()
    call, made = call_of(others), Sampler()
    start = trio.current_time()
    await made.table(call)
    assert trio.current_time() - start == pytest.approx(ASK_S)
    others.rows["a"] = [{"rows": [one_row("x", 1)], "next": None}]
    await trio.sleep(2 * EVERY_S)  # the time that was waited is no work, which the next look would have to rest from
    number = (await made.table(call)).number
    assert (number, len(others.asked)) == (2, 1)
    await trio.sleep(SILENT_S)
    table = await made.table(call)
    assert (table.names, table.totals["silent"], len(others.asked)) == ([TOPIC + "x"], 0, 2)
