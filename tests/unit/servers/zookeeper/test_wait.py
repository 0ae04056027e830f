"""quire.servers.zookeeper.wait: bookie, broker and auto recovery wait for a ZooKeeper that does not serve yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.zookeeper.store import ZooKeeperConfig
from quire.servers import process
from quire.servers.autorecovery import process as autorecovery
from quire.servers.bookie import process as bookie
from quire.servers.broker import process as broker
from quire.servers.zookeeper import wait as zookeeper_wait
from quire.service.log import Event
from tests.unit.managed_ledger.fake_ledgers import fake_world


async def test_a_zookeeper_that_is_away_is_waited_for_until_the_process_is_stopped(
    log_events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = trio.Event()
    attempts = []

    async def nothing_there(world: object, config: ZooKeeperConfig) -> None:
        attempts.append(config.connect_timeout_s)
        if len(attempts) == 20:
            stop.set()
        await trio.sleep(config.connect_timeout_s)
        raise MetadataUnavailableError("no ZooKeeper answers at z:2181")

    monkeypatch.setattr(zookeeper_wait, "open_store", nothing_there)
    assert await zookeeper_wait.open_when_there(fake_world(), ZooKeeperConfig(servers=(("z", 2181),)), stop) is None
    assert sum(attempts) >= 60  # seconds
    waits = [event for event in log_events if event["event"] == "waiting for ZooKeeper"]
    assert waits[0]["servers"] == "z:2181"
    assert len(waits) == len(attempts)


async def never_there(waited: list[object], world: object, config: ZooKeeperConfig, stop: trio.Event) -> None:
    waited.append(config.servers)


@pytest.mark.parametrize(
    ("module", "run"),
    [
        (broker, lambda conf: broker.run_broker(conf, "error")),
        (bookie, lambda conf: bookie.run_bookie(conf, "error")),
        (autorecovery, lambda conf: autorecovery.run_autorecovery_command(conf, "error")),
    ],
    ids=["broker", "bookie", "autorecovery"],
)
def test_every_server_waits_by_the_same_rule_and_ends_well_when_it_is_stopped(
    module: object, run: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[object] = []
    monkeypatch.setattr(module, "open_when_there", partial(never_there, waited))
    monkeypatch.setattr(process, "_serve_with_signals", lambda serve: serve(trio.Event()))
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    conf = tmp_path / "server.conf"
    uri = (
        "metadataStoreUrl=zk:127.0.0.1:1\nclusterName=c\n"
        if module is broker
        else (
            f"metadataServiceUri=zk+hierarchical://127.0.0.1:1/ledgers\nallowLoopback=true\nadvertisedAddress=127.0.0.1\n"
            f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n"
        )
    )
    conf.write_text(uri)
    assert run(conf) == 0
    assert waited == [(("127.0.0.1", 1),)]
