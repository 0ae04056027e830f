"""quire/servers/bookie/metrics_keys.py, web_ports.py, layout_keys.py: where metrics are served, and which there are;
the layout that a bookie insists on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.sanity import INTERVAL_S, SanityWatch
from quire.metadata.clusters import init_new_cluster
from quire.metadata.layouts import FLAT
from quire.metadata.ledgers import initialize_layout, read_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.addresses import free_port
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located
from quire.servers.bookie.process import BookieStartError, serve
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.unwrap import leaves
from tests.support.refusals import refuses
from tests.unit.bookie.build import CONFIG, with_bookie
from tests.unit.servers.bookie.asking import request

PROMETHEUS = "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
OWN: dict[str, Any] = {"statsProviderClass": PROMETHEUS, "prometheusStatsHttpPort": "PORT"}
NONE = "org.apache.bookkeeper.stats.NullStatsProvider"


@asynccontextmanager
async def serving(folder: Path, store: MemoryStore, **keys: Any) -> AsyncIterator[int]:
    """Serve a bookie; yield a free port that is neither its own nor listened on by others."""
    port = free_port()
    settings = {
        "advertisedAddress": "127.0.0.1",
        "allowEphemeralPorts": True,
        "bookiePort": 0,
        "journalDirectories": (str(folder / "journal"),),
        "ledgerDirectories": (str(folder / "ledgers"),),
        "journalPreAllocSizeMB": 1,
        **{key: port if value == "PORT" else value for key, value in keys.items()},
    }
    config = located(BOOKIE.build(settings), "/ledgers")
    stop, ready = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            nursery.start_soon(lambda: serve(real_world(), config, store, ready=lambda _: ready.set(), stop=stop))
            await ready.wait()
            yield port
        stop.set()


async def made_store() -> MemoryStore:
    store = MemoryStore(MemoryTree())
    await init_new_cluster(store, "/ledgers", rng=real_world().rng)
    return store


async def scrape(port: int, path: str = "/metrics") -> tuple[int, str] | None:
    """Return status and text; None if nothing listens."""
    try:
        return await request(("127.0.0.1", port), "GET", path, None)
    except OSError:
        return None


@pytest.mark.real_clock
@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ({**OWN}, 200),
        (
            {**OWN, "prometheusStatsHttpEnable": False},
            None,
        ),
        ({**OWN, "enableStatistics": False}, None),
        ({"prometheusStatsHttpPort": "PORT"}, None),
        ({"statsProviderClass": NONE, "prometheusStatsHttpPort": "PORT"}, None),
        ({"httpServerEnabled": True, "httpServerPort": "PORT"}, 200),
        ({"httpServerEnabled": True, "httpServerPort": "PORT", "statsProviderClass": NONE}, 500),
        ({"httpServerEnabled": True, "httpServerPort": "PORT", "enableStatistics": False}, 500),
    ],
)
async def test_metrics_are_served_where_the_keys_say(keys: dict[str, Any], status: int | None, tmp_path: Path) -> None:
    async with serving(tmp_path, await made_store(), **keys) as port:
        found = await scrape(port)
        assert (found and found[0]) == status
        if found and status == 200:
            assert "bookie_SERVER_STATUS 1.0" in found[1]
        if found and status == 500:
            assert found[1].startswith("Stats provider is not enabled")


@pytest.mark.real_clock
async def test_the_port_of_the_metrics_has_nothing_else(tmp_path: Path) -> None:
    keys = {**OWN}
    async with serving(tmp_path, await made_store(), prometheusStatsHttpAddress="127.0.0.1", **keys) as port:
        for path in ("/api/v1/bookie/state", "/heartbeat", "/quire/loggers"):
            found = await scrape(port, path)
            assert found is not None
            assert found[0] == 404


@pytest.mark.real_clock
@pytest.mark.parametrize("wanted", [False, True])
async def test_sanity_is_measured_if_that_is_asked_for(wanted: bool, tmp_path: Path) -> None:
    keys = {"httpServerEnabled": True, "httpServerPort": "PORT", "sanityCheckMetricsEnabled": wanted}
    async with serving(tmp_path, await made_store(), **keys) as port:
        found = await scrape(port)
        assert found is not None
        assert ("bookie_SERVER_SANITY" in found[1]) is wanted


@pytest.mark.seeded
async def test_sanity_follows_the_state_of_the_bookie() -> None:
    async with with_bookie(config=CONFIG) as bookie, trio.open_nursery() as nursery:
        watch = SanityWatch(bookie)
        assert watch.passed == -1
        nursery.start_soon(watch.run, name="sanity")
        await trio.sleep(1)
        assert watch.passed == 1
        bookie.failed.set()
        await trio.sleep(INTERVAL_S)
        assert watch.passed == 0
        nursery.cancel_scope.cancel()


def test_a_provider_that_cannot_be_loaded_is_refused_with_the_remedy() -> None:
    refuses(
        ConfigError,
        lambda: BOOKIE.build({"statsProviderClass": "org.apache.bookkeeper.stats.codahale.CodahaleMetricsProvider"}),
        "CodahaleMetricsProvider: metrics are served in Prometheus' text; name .*PrometheusMetricsProvider",
    )
    refuses(
        ConfigError,
        lambda: BOOKIE.build({"statsProviderClass": PROMETHEUS, "prometheusStatsHttpPort": 0}),
        "needs allowEphemeralPorts",
    )


@pytest.mark.real_clock
async def test_a_bookie_does_not_start_on_a_cluster_of_another_layout_than_its_key_names(tmp_path: Path) -> None:
    store = MemoryStore(MemoryTree())
    await initialize_layout(store, rng=real_world().rng, layout=FLAT)
    flat, hierarchical = (f"org.apache.bookkeeper.meta.{name}LedgerManagerFactory" for name in ("Flat", "Hierarchical"))
    async with serving(tmp_path, store, ledgerManagerFactoryClass=flat):
        pass
    with pytest.raises(ExceptionGroup) as failed:
        async with serving(tmp_path, store, ledgerManagerFactoryClass=hierarchical):
            raise AssertionError("it has started")
    [cause] = leaves(failed.value)
    assert isinstance(cause, BookieStartError)
    assert "ledgerManagerFactoryClass: /ledgers has another layout than the hierarchical one" in str(cause)


@pytest.mark.real_clock
async def test_a_new_cluster_gets_the_layout_that_the_key_names(tmp_path: Path) -> None:
    store = await made_store()
    await store.delete("/ledgers/LAYOUT")
    name = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
    async with serving(tmp_path, store, ledgerManagerFactoryClass=name):
        assert await read_layout(store) is FLAT


def test_a_layout_that_does_not_exist_is_refused_with_those_that_do() -> None:
    refuses(
        ConfigError,
        lambda: BOOKIE.build({"ledgerManagerFactoryClass": "org.apache.bookkeeper.meta.MSLedgerManagerFactory"}),
        "name one of FlatLedgerManagerFactory, HierarchicalLedgerManagerFactory",
    )
