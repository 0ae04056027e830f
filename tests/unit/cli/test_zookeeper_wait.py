"""quire.cli.zookeeper_wait: bookie, broker and auto recovery wait for a ZooKeeper that is not there yet."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from quire.cli import autorecovery, bookie, broker, process, zookeeper_wait
from quire.cli.zookeeper_wait import open_when_there
from quire.metadata.zookeeper import ZooKeeperConfig
from quire.service.log import Event
from quire.world.real import real_world


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_a_zookeeper_that_is_away_is_waited_for_until_the_process_is_stopped(
    log_events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_wait, "ATTEMPT_S", 0.1)

    async def main() -> None:
        stop = trio.Event()
        config = ZooKeeperConfig(servers=(("127.0.0.1", closed_port()),))
        async with trio.open_nursery() as nursery:

            async def stop_when_it_waits() -> None:
                while not [event for event in log_events if event["event"] == "waiting for ZooKeeper"]:
                    await trio.sleep(0.01)
                stop.set()

            nursery.start_soon(stop_when_it_waits)
            with trio.fail_after(20):
                assert await open_when_there(real_world(), config, stop) is None

    trio.run(main)


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
    waited = []

    async def never(world: object, config: ZooKeeperConfig, stop: trio.Event) -> None:
        waited.append(config.servers)

    monkeypatch.setattr(module, "open_when_there", never)
    monkeypatch.setattr(process, "_serve_with_signals", lambda serve: serve(trio.Event()))
    monkeypatch.setattr(process.gc, "freeze", lambda: None)
    monkeypatch.setattr(process.gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(process.sys, "setswitchinterval", lambda _: None)
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
